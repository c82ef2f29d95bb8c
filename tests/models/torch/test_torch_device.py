"""Precision, memory formats and what is moved to a device.

``meta`` stands in for a GPU: it computes nothing, and takes no tensors of the CPU beside its own.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.core.learners import GradientCorrection, Learner, as_learner
from consilience.core.validation.arrays import read_only
from consilience.lab.data import load
from consilience.methods.functional_boosting.weak_fits import SobolevTraining
from consilience.models import TorchRecipe, make
from consilience.models.torch.batching import BatchScheduler

torch = pytest.importorskip("torch")
nn = torch.nn

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from consilience.models.torch.batched import engine as batched  # noqa: E402
from consilience.models.torch.batched.architecture import architecture  # noqa: E402
from consilience.models.torch.batched.perceptron import layers_of  # noqa: E402
from consilience.models.torch.batched.stack import Stack, outputs_of  # noqa: E402
from consilience.models.torch.batched.steps import Job  # noqa: E402
from consilience.models.torch.batched.vmap import Vmapped  # noqa: E402
from consilience.models.torch.device import Rows, filters_channels_last  # noqa: E402
from consilience.models.torch.losses import CROSS_ENTROPY  # noqa: E402
from consilience.models.torch.training import train  # noqa: E402

META = torch.device("meta")


class Moves(TorchDispatchMode):  # type: ignore[misc]
    """The shapes of what is moved from one device to another."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = operation(*args, **(kwargs or {}))
        if operation is torch.ops.aten._to_copy.default and made.device != args[0].device:
            self.shapes.append(tuple(made.shape))
        return made


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def fitted(name: str, X: Any, y: Any, precision: str, **options: Any) -> Any:
    recipe = {"first_epochs": 8, "learning_rate": 1e-2, "precision": precision}
    learner = make(name, recipe=recipe, **options)
    learner.bind(10)
    learner.fit(X, np.eye(10)[y], rng=rng(), phase="first")
    return learner


@pytest.mark.parametrize(
    ("name", "options"), [("mlp", {"hidden": (32,)}), ("cnn", {"channels": (8, 16), "hidden": 32})]
)
def test_bfloat16_learns_digits_as_float32_does(name: str, options: dict[str, Any]) -> None:
    data = load("digits", test_fraction=0.3)
    wide, narrow, again = (
        fitted(name, data.X[:600], data.y[:600], precision, **options)
        for precision in ("float32", "bfloat16", "bfloat16")
    )
    said = narrow.predict(data.X_test)
    np.testing.assert_array_equal(said, again.predict(data.X_test))
    assert np.isfinite(said).all() and np.allclose(said.sum(axis=1), 1, atol=1e-12)
    assert {part.dtype for part in narrow.parameters().values()} == {np.dtype(np.float32)}
    rights = [(one.predict(data.X_test).argmax(1) == data.y_test).mean() for one in (wide, narrow)]
    assert rights[0] > 0.8 and abs(rights[0] - rights[1]) < 0.04
    assert np.abs(said - wide.predict(data.X_test)).max() > 1e-3  # it is another precision


def test_products_are_narrow_and_all_else_is_wide() -> None:
    """At x = 1 + 2⁻⁹, which bfloat16 rounds to 1, W = 0 gives ½ each; for the target (1, 0) the gradient is
    ∓½, and a step of 2⁻¹⁰ gives W = ±2⁻¹¹. A second one from W = 1 + 2⁻¹¹ is not lost in what W rounds to."""
    x, target = np.array([[1 + 2.0**-9]]), np.array([[1.0, 0.0]])
    found = {}
    for precision in ("float32", "bfloat16"):
        layer = nn.Linear(1, 2, bias=False)
        nn.init.ones_(layer.weight)
        steps = {"optimizer": "sgd", "learning_rate": 2.0**-10, "epochs": 1, "initial": "given"}
        learner: Any = as_learner(layer, recipe={**steps, "precision": precision})
        learner.bind(2)
        learner.fit(x, target, rng=rng())
        found[precision] = learner.parameters()["weight"].ravel()
        said = learner.logits(np.ones((1, 1)) + 2.0**-9)[0]
        assert (said == [1, 1]).all() == (precision == "bfloat16")
    np.testing.assert_allclose(found["bfloat16"], [1 + 2.0**-11, 1 - 2.0**-11], rtol=1e-7)
    np.testing.assert_allclose(found["float32"], found["bfloat16"], rtol=2e-6)
    assert (found["float32"] != found["bfloat16"]).all()


def test_early_stopping_in_bfloat16_keeps_the_best_epoch() -> None:
    """The held-out rows say the opposite: what is kept is the first epoch, whatever follows."""
    X = rng().normal(size=(32, 4))
    y = np.eye(2)[(X[:, 0] > 0).astype(int)]
    made = []
    for epochs in (1, 9):
        plan = {"first_epochs": epochs, "early_stop": 2, "batch_size": 8, "initial": "given"}
        layer = nn.Linear(4, 2, bias=False)
        nn.init.zeros_(layer.weight)
        learner: Any = as_learner(layer, recipe={**plan, "precision": "bfloat16"})
        learner.bind(2)
        learner.fit(X, y, rng=rng(), validation=(X, y[:, ::-1]), phase="first")
        made.append(learner.parameters())
    for name in made[0]:
        np.testing.assert_array_equal(made[0][name], made[1][name])


def test_where_bfloat16_cannot_be_is_said_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    double: Any = as_learner(nn.Linear(3, 2).double(), recipe={"precision": "bfloat16"})
    double.bind(2)
    with pytest.raises(InvalidInput, match=r"here is torch\.float64\n  Give module\.float\(\)"):
        double.check(np.zeros((2, 3)))
    with pytest.raises(InvalidInput, match="Known: float32, bfloat16"):
        TorchRecipe.of({"precision": "float16"})
    network = make("mlp", kind="regression", recipe={"precision": "bfloat16"})
    with pytest.raises(InvalidInput, match="'sobolev' takes differences of outputs"):
        SobolevTraining().check(network)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    for device in ("auto", "cuda"):
        with pytest.raises(InvalidInput, match="this GPU does not compute in bfloat16"):
            make("mlp", recipe={"precision": "bfloat16", "device": device})
        assert make("mlp", recipe={"device": device}).name == "mlp"
    assert make("mlp", recipe={"precision": "bfloat16", "device": "cpu"}).name == "mlp"


@pytest.mark.parametrize("gpu", [False, True])
def test_another_precision_is_not_trained_together(
    gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of bfloat16 train and answer by themselves, to the same bits; the others are one."""
    monkeypatch.setattr(batched, "_on_a_gpu", lambda module: gpu)
    together: list[int] = []

    def counted(whole: Any) -> Any:
        def trained(cohort: Any) -> Any:
            together.append(len(cohort.jobs))
            return whole(cohort)

        return trained

    for engine in (Stack, Vmapped):
        monkeypatch.setattr(engine, "trained", counted(engine.trained))
    X = rng().normal(size=(20, 5))
    y = rng(1).dirichlet(np.ones(3), 20)

    def one(precision: str, seed: int) -> Callable[[], Any]:
        def function() -> Any:
            recipe = {"first_epochs": 2, "batch_size": 8, "precision": precision}
            learner = make("mlp", hidden=(8,), recipe=recipe)
            learner.bind(3)
            learner.fit(X, y, rng=rng(seed), phase="first")
            return learner.predict(X)

        return function

    functions = [one(p, seed) for seed in range(2) for p in ("float32", "bfloat16")]
    met = BatchScheduler(functions).results()
    assert together == [2]
    alone = [function() for function in functions]
    assert together == [2, 1, 1]
    assert all(map(np.array_equal, alone, met))


def job(rows: int, *, epochs: int, module: Any = None, **recipe: Any) -> Job:
    """Of rows on ``meta``, 5 numbers each."""
    network = module or nn.Sequential(nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 3))
    X, targets = torch.zeros(rows, 5, device=META), torch.zeros(rows, 3, device=META)
    plan = TorchRecipe.of({"batch_size": 8, **recipe})
    return Job(
        network.to(META),
        *(
            lambda: X,
            (5,),
            id(X),
            targets,
            None,
            epochs,
            rng(rows),
            plan,
            CROSS_ENTROPY,
            GradientCorrection(),
            0,
        ),
    )


@pytest.mark.parametrize("clip", [None, 1.0])
def test_networks_as_one_lie_on_the_device(clip: float | None) -> None:
    """Moved are where rows begin, and each one's order of rows once an epoch; no batch is."""
    alike = [job(24, epochs=3, gradient_clip=clip) for _ in range(2)]
    apart = [job(24, epochs=1, gradient_clip=clip), job(28, epochs=1, gradient_clip=clip)]
    with Moves() as moves:
        steps = Vmapped(alike).trained()
    assert steps == [9, 9]
    assert moves.shapes == [(2,), (2,), *[(24,)] * 6]
    with Moves() as moves:
        steps = Vmapped(apart).trained()
    assert steps == [3, 4]
    assert sorted(moves.shapes) == [(2,), (2,), (24,), (28,)]


def test_perceptrons_as_one_lie_on_the_device() -> None:
    network = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).to(META)
    layers = layers_of(architecture(network), (5,))
    assert Stack([job(n, epochs=2, module=network) for n in (20, 33)], layers).trained() == [6, 8]
    said = outputs_of([network] * 2, layers, [torch.zeros(300, 5, device=META)] * 2)
    assert [(one.device, tuple(one.shape)) for one in said] == [(META, (300, 3))] * 2


def test_a_network_alone_moves_the_order_of_rows_alone() -> None:
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    given = job(20, epochs=3, module=module, batch_size=4)
    with Moves() as moves:
        steps = train(given)
    assert steps == 15
    assert moves.shapes == [(20,)] * 3


def test_public_rows_are_moved_once() -> None:
    """Those of a read-only array, until others are, the array is gone, or a module has written to them."""
    rows, public = Rows(), read_only(np.ones((6, 2)))
    kept = rows.moved(public, torch.float32, META)
    assert rows.moved(public, torch.float32, META) is kept
    with torch.inference_mode():
        assert rows.moved(public, torch.float32, META) is kept
    assert rows.moved(public, torch.float64, META).dtype == torch.float64
    with torch.inference_mode():
        again = rows.moved(public, torch.float32, META)
    assert not again.is_inference()  # a later training may keep them for its gradients
    with torch.inference_mode():
        again[2:].mul_(2)
    after = rows.moved(public, torch.float32, META)
    assert after is not again and rows.moved(public, torch.float32, META) is after
    own = np.ones((6, 2))
    assert rows.moved(own, torch.float32, META) is not rows.moved(own, torch.float32, META)
    assert rows.moved(public, torch.float32, META) is after
    other = read_only(np.zeros((3, 2)))
    assert rows.moved(other, torch.float32, META).shape == (3, 2)
    assert rows.moved(public, torch.float32, META) is not after
    del public
    gc.collect()
    assert rows._kept is None


def test_rows_arrive_in_the_usual_order() -> None:
    rows, images = Rows(), np.ones((6, 4, 5, 3)).transpose(0, 3, 1, 2)
    for X in (images, read_only(images.astype(np.float32, order="K"))):
        for device in (torch.device("cpu"), META):
            moved = rows.moved(X, torch.float32, device)
            assert moved.shape == X.shape and moved.is_contiguous()


def test_on_a_cpu_no_rows_are_kept() -> None:
    rows, public, cpu = Rows(), read_only(np.ones((6, 2))), torch.device("cpu")
    assert rows.moved(public, torch.float32, cpu) is not rows.moved(public, torch.float32, cpu)
    assert rows._kept is None


def test_a_learner_moves_public_rows_once() -> None:
    learner: Any = as_learner(nn.Linear(2, 3))
    learner.modules.device = META
    public = read_only(np.ones((6, 2), dtype=np.float32))
    assert learner.modules.inputs(public, nn.Linear(2, 3)) is learner.modules.inputs(
        public, nn.Linear(2, 3)
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [("cnn", {"channels": (3, 5), "hidden": 6}), ("resnet8", {"width": 4}), ("lenet5", {})],
)
def test_filters_with_channels_last_compute_the_same(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """But for rounding; what leaves the learner lies as it always does."""
    X = rng().normal(size=(20, 3, 12, 12)).astype(np.float32)
    y = rng(1).dirichlet(np.ones(3), 20)
    found, learners = [], []
    for last in (False, True):
        steps = {"optimizer": "sgd", "momentum": 0.9, "learning_rate": 0.01, "epochs": 2}
        learner: Any = make(name, recipe={**steps, "batch_size": 8}, **options)
        learner.bind(3)
        learner.start(X, rng=rng())
        if last:
            filters_channels_last(learner.module)
        learner.fit(X, y, rng=rng())
        found.append(learner.parameters())
        learners.append(learner)
    filters = [part for part in learners[1].module.parameters() if part.ndim == 4]
    assert filters and all(f.is_contiguous(memory_format=torch.channels_last) for f in filters)
    assert any(not f.is_contiguous() for f in filters)
    for part, other in zip(found[0].values(), found[1].values(), strict=True):
        np.testing.assert_allclose(part, other, atol=1e-5)
        assert other.flags.c_contiguous
    learners[1].save(tmp_path / "model.safetensors")
    loaded: Any = make(name, **options)
    loaded.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(loaded.predict(X), learners[1].predict(X), atol=1e-6)
    learners[1].set_parameters(found[0])
    np.testing.assert_allclose(learners[1].predict(X), learners[0].predict(X), atol=1e-6)


def test_networks_with_layers_of_ones_own_keep_their_order() -> None:
    """``view`` of maps with channels last fails."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.filters, self.last = nn.Conv2d(2, 3, 3, padding=1), nn.Linear(48, 2)

        def forward(self, maps: Any) -> Any:
            return self.last(self.filters(maps).view(len(maps), -1))

    own = Own()
    filters_channels_last(own)
    assert own(torch.zeros(5, 2, 4, 4)).shape == (5, 2)
    own.filters.to(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="view"):
        own(torch.zeros(5, 2, 4, 4))


def test_what_a_step_keeps_by_hand() -> None:
    """Of 8 rows: their 5 numbers and 4 outputs, kept twice, as ReLU's and by the next layer, and its 4×3
    weights, by which the gradient goes on: 40 + 2 · 32 + 12."""
    network = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    assert batched.kept(network, (8, 5)) == 116
    assert all(part.device.type == "cpu" and part.grad is None for part in network.parameters())


def test_as_many_train_as_one_as_a_gpu_holds() -> None:
    """4 bytes for each of 6 · 39 numbers of parameters, 2 · 45 of rows and 2 · 116 of a step of 8 of them.

    With less than for one, each trains by itself.
    """
    network = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    held = 4 * (6 * 39 + 2 * 45 + 2 * 116)
    for room, expected in ((3 * held, 3), (3 * held - 1, 2), (1, 1), (2**40, 128)):
        assert batched.fit_on_gpu(network, 6, (9, 5), 8, room) == expected


def test_on_a_gpu_all_train_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched, "_on_a_gpu", lambda module: True)
    parts: list[int] = []
    whole = Vmapped.trained
    monkeypatch.setattr(
        Vmapped, "trained", lambda self: parts.append(len(self.jobs)) or whole(self)
    )

    def one(seed: int) -> Callable[[], Any]:
        def function() -> Any:
            net = nn.Sequential(
                nn.Linear(5, 4), nn.ReLU(), nn.Identity(), nn.Linear(4, 3), nn.GELU()
            )
            learner: Any = as_learner(net, recipe={"epochs": 1, "batch_size": 8})
            learner.bind(3)
            X = rng(seed).normal(size=(9, 5))
            learner.fit(X, np.eye(3)[np.arange(9) % 3], rng=rng(seed))
            return learner.parameters()

        return function

    functions = [one(seed) for seed in range(7)]
    together = BatchScheduler(functions).results()
    assert parts == [7]
    for some, others in zip((function() for function in functions), together, strict=True):
        assert all(np.allclose(some[name], others[name], atol=1e-6) for name in some)


def test_predictions_are_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batched, "_on_a_gpu", lambda module: True)
    network = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    said = batched.Prediction(
        network, lambda: torch.zeros(8, 5), (8, 5), lambda: torch.zeros(8, 3), "float32"
    )
    assert said.max_batch == 128
    assert batched.fit_on_gpu(network, 1, (8, 5), 8, room=2 * 4 * (39 + 2 * 40 + 2 * 116)) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_on_a_gpu_together_is_as_alone(precision: str) -> None:
    X = read_only(rng().normal(size=(40, 3, 12, 12)).astype(np.float32))
    y = rng(1).dirichlet(np.ones(3), 40)

    def one(seed: int) -> Callable[[], Any]:
        def function() -> Any:
            recipe = {"epochs": 2, "optimizer": "sgd", "device": "cuda", "precision": precision}
            learner: Learner = make("cnn", recipe={**recipe, "batch_size": 8 + seed})
            learner.bind(3)
            learner.fit(X[: 20 + seed], y[: 20 + seed], rng=rng(seed))
            learner.fit(X, y, rng=rng(seed), phase="distill")
            return learner.predict(X)

        return function

    functions = [one(seed) for seed in (0, 1, 0)]
    for met, function in zip(BatchScheduler(functions).results(), functions, strict=True):
        np.testing.assert_allclose(met, function(), atol=1e-2)
        assert np.isfinite(met).all() and np.allclose(met.sum(axis=1), 1)
