"""Residual networks and word vectors: their layers, and what they do where models are exchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.core.checks import check_learner
from consilience.core.errors import InvalidInput
from consilience.core.messages.schema import Public
from consilience.methods.model_exchange.protocols import averaged_distillation
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.models import make
from consilience.models.files.transfer import pack, unpack

torch = pytest.importorskip("torch")
nn = torch.nn
from consilience.models.torch.words import hashed_words  # noqa: E402


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def started(name: str, X: np.ndarray, outputs: int = 10, **options: Any) -> Any:
    learner: Any = make(name, **options)
    learner.bind(outputs)
    learner.start(X, rng=rng())
    return learner


def trained_numbers(learner: Any) -> int:
    return sum(part.numel() for part in learner.module.parameters())


@pytest.mark.parametrize(
    ("name", "width", "parameters", "convolutions"),
    [
        # 3·9·64 + 2·64; stage 1: 4 · (64·64·9 + 128); stage s with d = 64·2^s: (d/2·d + 3·d·d)·9 and
        # d/2·d in the shortcut, 5 · 2d for norms; 512·10 + 10 at the end
        ("resnet18", 64, 11_173_962, 20),
        ("resnet18", 8, 176_402, 20),
        # 464; 2 · (16·16·9 + 32); (16·32 + 32·32)·9 + 512 + 192; (32·64 + 64·64)·9 + 2048 + 384; 650
        ("resnet8", 16, 78_042, 9),
    ],
)
def test_residual_networks_have_the_layers_of_the_paper(
    name: str, width: int, parameters: int, convolutions: int
) -> None:
    images = rng().random((2, 3, 32, 32), dtype=np.float32)
    learner = started(name, images, width=width)
    assert trained_numbers(learner) == parameters
    layers = [part for part in learner.module.modules() if isinstance(part, nn.Conv2d)]
    assert len(layers) == convolutions
    maps: list[Any] = []
    learner.module[-3].register_forward_hook(lambda _, given, __: maps.append(given[0].shape))
    assert learner.predict(images).shape == (2, 10)
    stages = 4 if name == "resnet18" else 3
    assert maps == [(2, width * 2 ** (stages - 1), 2 ** (6 - stages), 2 ** (6 - stages))]


def test_a_block_by_hand() -> None:
    """All filters 0: 3 goes in and comes out; where shapes differ, through a shortcut that is 0 too."""
    from consilience.models.torch.layers import ResidualBlock

    for block, expected in (
        (ResidualBlock(4, 4, 1, "group"), 3.0),
        (ResidualBlock(4, 8, 2, "group"), 0.0),
    ):
        for part in block.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.zeros_(part.weight)
        assert torch.equal(block(torch.full((1, 4, 2, 2), 3.0)).unique(), torch.tensor([expected]))


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("shape", [(64,), (8, 8), (8, 8, 3), (3, 9, 7)])
def test_they_take_images_in_every_layout(norm: str, shape: tuple[int, ...], tmp_path: Any) -> None:
    images = rng().normal(size=(5, *shape)).astype(np.float32)
    options = {"width": 4, "norm": norm}
    learner: Any = make("resnet8", **options)
    learner.fit(images, np.eye(3)[[0, 1, 2, 0, 1]], rng=rng())
    learner.save(tmp_path / "m.safetensors")
    again = make("resnet8", **options)
    again.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(images), learner.predict(images))
    np.testing.assert_allclose(learner.predict(images[:1]), learner.predict(images)[:1], atol=1e-6)


CHANNELS_LAST = """
import numpy as np
import torch
from torch import nn
from consilience.core.learners import as_learner
from consilience.models.torch.layers import ResidualBlock

block = ResidualBlock(4, 8, 2, "batch")
maps = torch.randn(5, 4, 8, 8).contiguous(memory_format=torch.channels_last)
for _ in range(1000):
    block(maps).sum().backward()
print("a module of the user's", flush=True)
layers = nn.Conv2d(4, 8, 1, stride=2, bias=False), nn.Flatten(), nn.Linear(128, 2)
learner = as_learner(nn.Sequential(*layers), recipe={"epochs": 1000})
images, targets = np.ones((5, 8, 8, 4)).transpose(0, 3, 1, 2), np.eye(2)[[0, 1, 0, 1, 0]]
learner.fit(images, targets, rng=np.random.default_rng(0))
"""


def test_images_with_channels_last_damage_no_memory() -> None:
    """torch 2.13 does, in a 1×1 convolution of stride 2: a process with the kernels of AVX2 dies of it."""
    done = subprocess.run(
        [sys.executable, "-c", CHANNELS_LAST],
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_picked_pixel_is_that_of_a_stride() -> None:
    """Through the shortcut goes what a 1×1 convolution of stride 2 gives, whatever the sides."""
    from consilience.models.torch.layers import ResidualBlock

    block = ResidualBlock(3, 4, 2, "group").eval()
    maps, filters = torch.randn(2, 3, 7, 6), block.shortcut[0].weight
    strided = nn.functional.conv2d(maps, filters, stride=2)
    seen: list[Any] = []
    block.shortcut[0].register_forward_hook(lambda *given: seen.append(given[2]))
    block(maps)
    np.testing.assert_allclose(seen[0].detach(), strided.detach(), atol=1e-6)


def test_group_norm_keeps_no_means_and_takes_single_rows() -> None:
    images = rng().normal(size=(1, 3, 4, 4)).astype(np.float32)  # 1 × 1 in the last stage
    learner = started("resnet8", images, 3, width=12, norm="group")
    assert learner.trained_parameters() == set(learner.parameters())
    learner.fit(images, np.eye(3)[:1], rng=rng())
    groups = {part.num_groups for part in learner.module.modules() if hasattr(part, "num_groups")}
    assert groups == {1, 3}  # of 12 and 24, and of 48 filters
    other = started("resnet8", images, 3, width=4)
    with pytest.raises(InvalidInput, match="more than 1 value per channel"):
        other.fit(images, np.eye(3)[:1], rng=rng())


def parties(model: Any, shape: tuple[int, ...] = (8, 8)) -> list[Party]:
    made = []
    for number, name in enumerate("ab"):
        X = rng(number).normal(size=(12, *shape)).astype(np.float32) + number
        made.append(Party(name, model, X, np.arange(12) % 3, calibration=0))
    return made


def test_running_means_travel_where_parameters_are_averaged() -> None:
    model = make("resnet18", width=2, recipe={"epochs": 1, "batch_size": 4})
    federation = Federation(parties(model), strict=False)
    for _ in federation.rounds(federated_averaging(rounds=1)):
        pass
    one, other = (kept.learner.parameters() for kept in federation.network.models().values())
    buffers = set(one) - federation.network.models()["a"].learner.trained_parameters()
    assert len(buffers) == 2 * 20 and all("running" in name for name in buffers)
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert any(one[name].any() for name in buffers if "mean" in name)


def test_residual_networks_are_sent_as_a_whole() -> None:
    images = rng().random((6, 8, 8, 3), dtype=np.float32)
    recipe = {"epochs": 1, "augment": {"crop": 1}}
    learner = make("resnet8", width=2, norm="group", recipe=recipe)
    learner.fit(images, np.eye(3)[[0, 1, 2] * 2], rng=rng())
    about, data = pack(learner)
    assert json.loads(about)["recipe"]["augment"]["crop"] == 1
    np.testing.assert_array_equal(unpack(about, data).predict(images), learner.predict(images))


# --- texts ------------------------------------------------------------------------------------------------

WORDS = ("ball goal team", "vote law party")
Y = rng().integers(2, size=60)
TEXTS = np.array([f"{rng(i).choice(WORDS[y].split())} number {i} is" for i, y in enumerate(Y)])
FAST = {"learning_rate": 0.05, "first_epochs": 8}


def test_words_are_numbered_by_their_bytes() -> None:
    one, two, pair = map(zlib.crc32, (b"gr\xc3\xbcn", b"is_2", b"gr\xc3\xbcn is_2"))
    texts = np.array(["Grün, is_2!", "IS_2", "...", ""])
    found = hashed_words(texts, buckets=999, ngrams=3, longest=5)
    assert found.tolist() == [
        [one % 999 + 1, two % 999 + 1, pair % 999 + 1],
        [two % 999 + 1, 0, 0],
        [0, 0, 0],
        [0, 0, 0],
    ]
    assert hashed_words(texts[2:], buckets=9, ngrams=2, longest=5).tolist() == [[0], [0]]
    assert hashed_words(texts, buckets=999, ngrams=2, longest=1).shape == (4, 1)
    both = hashed_words(np.array(["a b", "b a"]), buckets=9999, ngrams=2, longest=9)
    assert set(both[0, :2]) == set(both[1, :2]) and both[0, 2] != both[1, 2]


def test_a_text_is_the_mean_of_its_words() -> None:
    """Twice a word is that word; an empty text is the last layer's bias."""
    learner = started("text-embedding", TEXTS, 2, buckets=64, width=3)
    a, b, ab, aab, nothing = learner.logits(np.array(["a", "b", "a b", "a, a b", "?"]))
    np.testing.assert_allclose(ab, (a + b) / 2, atol=1e-6)
    np.testing.assert_allclose(aab, (2 * a + b) / 3, atol=1e-6)
    np.testing.assert_allclose(nothing, learner.parameters()["head.1.bias"], atol=1e-6)


def test_texts_keep_the_contract_of_every_learner() -> None:
    check_learner(lambda: make("text-embedding", buckets=256, recipe=FAST), X=TEXTS, n_outputs=2)


@pytest.mark.parametrize("dtype", [str, object])
def test_texts_are_learned_and_say_nothing_of_their_length(dtype: Any, tmp_path: Any) -> None:
    texts = TEXTS.astype(dtype)
    learner = make("text-embedding", buckets=512, hidden=(8,), ngrams=2, recipe=FAST)
    learner.fit(texts[:40], np.eye(2)[Y[:40]], rng=rng(), phase="first")
    assert (learner.predict(texts[40:]).argmax(axis=1) == Y[40:]).mean() > 0.9
    learner.save(tmp_path / "m.safetensors")
    again = make("text-embedding", buckets=512, hidden=(8,), ngrams=2, recipe=FAST)
    again.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(texts), learner.predict(texts))
    assert b'\\"dtype\\": \\"<U1\\"' in (tmp_path / "m.safetensors").read_bytes()
    about, data = pack(learner)
    np.testing.assert_array_equal(unpack(about, data).predict(texts), learner.predict(texts))


def text_parties(model: Any) -> tuple[list[Party], Public]:
    test = (TEXTS[40:], Y[40:])
    made = [
        Party(name, model, TEXTS[rows], Y[rows], test=test, calibration=0)
        for name, rows in (("a", slice(0, 20)), ("b", slice(20, 40)))
    ]
    return made, Public(TEXTS[40:])


@pytest.mark.parametrize("protocol", ["ensemble", "averaging", "models"])
def test_texts_in_a_federation(protocol: str) -> None:
    model = make("text-embedding", buckets=256, width=8, recipe={**FAST, "batch_size": 4})
    made, public = text_parties(model)
    run = {
        "ensemble": ensemble_distillation(aggregate=avg(), rounds=2),
        "averaging": federated_averaging(rounds=4),
        "models": averaged_distillation(rounds=1),
    }[protocol]
    federation = Federation(made, public) if protocol == "ensemble" else Federation(made)
    history = federation.run(run)
    scores = history.metric()[-1]
    assert scores.min() >= 0.8, scores


@pytest.mark.parametrize(
    ("name", "X", "said"),
    [
        ("text-embedding", np.zeros((2, 4)), r"rows of shape \(4,\) are no texts"),
        ("text-embedding", np.zeros(2), "takes numbers|no texts|cannot use these inputs"),
        ("text-embedding", np.array([["a", "b"]] * 2), r"rows of shape \(2,\) are no texts"),
        ("mlp", TEXTS, "takes numbers\n  For texts take 'text-embedding'"),
    ],
)
def test_what_is_no_text(name: str, X: np.ndarray, said: str) -> None:
    learner = make(name)
    learner.bind(2)
    with pytest.raises(InvalidInput, match=said):
        learner.check(X)
