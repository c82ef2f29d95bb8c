"""Networks that train together: the bits that they would have reached alone, on a GPU but for rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from consilience.core.errors import RunFailed
from consilience.core.learners import GradientCorrection, Learner, as_learner
from consilience.models import make
from consilience.models.torch.batching import BatchScheduler

torch = pytest.importorskip("torch")
nn = torch.nn

from consilience.models.torch.batched import engine as batched  # noqa: E402
from consilience.models.torch.batched import perceptron, stack, stages  # noqa: E402
from consilience.models.torch.batched.architecture import architecture  # noqa: E402
from consilience.models.torch.batched.stack import Stack  # noqa: E402
from consilience.models.torch.batched.steps import Job  # noqa: E402
from consilience.models.torch.batched.vmap import Vmapped  # noqa: E402
from consilience.models.torch.losses import CROSS_ENTROPY  # noqa: E402
from consilience.models.torch.recipe import TorchRecipe  # noqa: E402

CLASSES = 3
RECIPE = {"first_epochs": 3, "epochs": 2, "batch_size": 8, "learning_rate": 0.01}
SIZES = (20, 33, 8, 1, 17)
"""One divides by the batch, one is smaller, one has a last batch of one row."""


@pytest.fixture
def sizes_together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many trained together, each time that it was more than one."""
    found: list[int] = []

    def counted(whole: Any) -> Any:
        def trained(cohort: Any) -> Any:
            if len(cohort.jobs) > 1:
                found.append(len(cohort.jobs))
            return whole(cohort)

        return trained

    for engine in (Stack, Vmapped):
        monkeypatch.setattr(engine, "trained", counted(engine.trained))
    return found


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What decides finds a GPU."""
    monkeypatch.setattr(batched, "_on_a_gpu", lambda module: True)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, torch records the gradients of everything."""
    return lambda: monkeypatch.setattr(batched, "layers_of", lambda *_: None)


def trained(
    made: Callable[[], Learner],
    *,
    together: bool,
    shape: tuple[int, ...] = (5,),
    sizes: tuple[int, ...] = SIZES,
    use: Callable[[Learner, Any, Any, np.random.Generator], Any] | None = None,
) -> list[Any]:
    """The parameters of a learner for each size after ``use``: two fits, which continue, by default."""
    rng = np.random.default_rng(0)

    def twice(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.fit(X, y, rng=own, phase="first")
        learner.fit(X, y, rng=own)

    def one(i: int, X: Any, y: Any) -> Callable[[], Any]:
        def function() -> Any:
            learner = made()
            learner.bind(CLASSES)
            (use or twice)(learner, X, y, np.random.default_rng(i))
            assert not learner.module.training
            return learner.parameters()

        return function

    functions = [
        one(i, rng.normal(size=(n, *shape)), rng.dirichlet(np.ones(CLASSES), n))
        for i, n in enumerate(sizes)
    ]
    return BatchScheduler(functions).results() if together else [f() for f in functions]


def furthest(ones: list[Any], others: list[Any]) -> float:
    return max(
        float(np.abs(one[name] - other[name]).max())
        for one, other in zip(ones, others, strict=True)
        for name in one
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1},
        {"optimizer": "sgd"},
        {"optimizer": "adamw", "weight_decay": 0.1},
        {"gradient_clip": 0.05},
        {"loss": "mse"},
        {"batch_size": 1},
        {"batch_size": 16},
    ],
    ids=str,
)
@pytest.mark.parametrize("hidden", [(6,), (5, 7), ()], ids=str)
def test_the_bits_of_alone_and_the_numbers_of_torch(
    changes: dict[str, Any],
    hidden: tuple[int, ...],
    sizes_together: list[int],
    recorded: Callable[[], None],
) -> None:
    def made() -> Learner:
        return make("mlp", hidden=hidden, recipe={**RECIPE, **changes})

    alone, together = (trained(made, together=t) for t in (False, True))
    # Who has less than a batch fills up fewer rows, with others of the kind.
    few = {8: [3, 3], 1: [5, 5], 16: [3, 3]}[changes.get("batch_size", 8)]
    assert sizes_together == few or sizes_together == few + few
    assert furthest(alone, together) == 0
    recorded()
    assert 0 < furthest(trained(made, together=False), alone) < 2e-6
    # It says something: all have moved, each to a place of its own.
    assert furthest(alone[:1] * 4, alone[1:]) > 0.01


@pytest.mark.parametrize("count", [2, 4, 5, 8])
def test_norms_of_many_parameters_are_added_alike(count: int, sizes_together: list[int]) -> None:
    """Eight parameters: a sum over them in one go takes another order where there are several networks."""

    def made() -> Learner:
        return make("mlp", hidden=(6, 6, 6), recipe={**RECIPE, "gradient_clip": 0.01})

    sizes = tuple(range(20, 20 + count))
    alone, together = (trained(made, together=t, sizes=sizes) for t in (False, True))
    assert sizes_together == [count, count]
    assert furthest(alone, together) == 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 32])
def test_matrices_large_enough_for_other_kernels(threads: int, batch_size: int) -> None:
    """A last batch of one row, one row in all; predictions whose last piece is one row; a single output."""

    def made() -> Learner:
        return make("mlp", hidden=(64,), recipe={**RECIPE, "batch_size": batch_size})

    def use(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.fit(X, y, rng=own)
        for rows in (1, 257):
            said.append(learner.logits(np.tile(X[:1], (rows, 1)) + np.arange(rows)[:, None] / rows))

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        said: list[Any] = []
        options = {"shape": (64,), "sizes": (33, 33, 65, 1), "use": use}
        alone, apart = trained(made, together=False, **options), said
        said = []
        together = trained(made, together=True, **options)
        # Each says two things; together, all say the first before anyone says the second.
        assert all(map(np.array_equal, apart[0::2], said[:4]))
        assert all(map(np.array_equal, apart[1::2], said[4:]))
        assert furthest(alone, together) == 0
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_product_has_the_bits_of_alone(dtype: Any) -> None:
    """Whatever the sides and the layouts; torch's own of a stack has not, on processors without AVX-512."""
    draw = np.random.default_rng(0).normal

    def stacked(matrices: Any) -> Any:
        room = stages.room(torch.empty(0, dtype=dtype), len(matrices), *matrices.shape[1:])
        return room.copy_(torch.from_numpy(matrices))

    for n, k, m in product((1, 2, 5, 8, 33, 64), repeat=3):
        A, B = draw(size=(5, n, k)), draw(size=(5, k, m))

        def multiplied(these: slice, across: tuple[bool, bool], *, A: Any = A, B: Any = B) -> Any:
            left, right = (
                stacked(X[these].swapaxes(1, 2)).mT if turned else stacked(X[these])
                for X, turned in zip((A, B), across, strict=True)
            )
            out = stacked(np.full((*A[these].shape[:2], B.shape[2]), np.nan))
            # OpenBLAS's float32 kernels for AVX-512 read unwritten memory of the stack and discard it:
            # a signalling NaN there sets the flag of an invalid operation. Training ignores that flag too.
            with np.errstate(invalid="ignore"):
                stages.product(left, right, out)()
            return out.numpy()

        for across in product((False, True), repeat=2):
            whole = multiplied(slice(5), across)
            for i in range(5):
                assert np.array_equal(multiplied(slice(i, i + 1), across)[0], whole[i])
            np.testing.assert_allclose(whole, A @ B, atol=1e-4)


def test_an_input_of_one_number_and_one_output(sizes_together: list[int]) -> None:
    def fitted(width: int, *, together: bool) -> list[Any]:
        def one(i: int) -> Callable[[], Any]:
            def function() -> Any:
                learner = as_learner(
                    nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1)),
                    kind="regression",
                    recipe=RECIPE,
                )
                learner.bind(1)
                X = np.random.default_rng(i).normal(size=(40, width))
                learner.fit(X, X[:, :1], rng=np.random.default_rng(i))
                return learner.parameters()  # type: ignore[attr-defined]

            return function

        functions = [one(i) for i in range(3)]
        return BatchScheduler(functions).results() if together else [f() for f in functions]

    for width in (1, 8):
        assert furthest(fitted(width, together=False), fitted(width, together=True)) == 0
    assert sizes_together == [3, 3]


def test_many_steps_are_laid_out_in_blocks() -> None:
    """Of 128 steps; 150 and 210 end within the second."""

    def made() -> Learner:
        return make("mlp", hidden=(6,), recipe=RECIPE | {"first_epochs": 70, "epochs": 50})

    alone, together = (trained(made, together=one, sizes=(20, 17)) for one in (False, True))
    assert furthest(alone, together) == 0


def test_hooks_and_modes_are_heeded(sizes_together: list[int]) -> None:
    """A hook on a parameter; and a prediction while gradients are switched off, which are everyone's."""

    def hooked(shape: tuple[int, ...], outputs: int) -> Any:
        net = nn.Sequential(nn.Linear(*shape, outputs))
        net[0].weight.register_hook(lambda gradient: 0 * gradient)
        return net

    def still(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.start(X, rng=own)  # type: ignore[attr-defined]
        before = learner.parameters()["0.weight"]  # type: ignore[attr-defined]
        learner.fit(X, y, rng=own)
        assert np.array_equal(before, learner.parameters()["0.weight"])  # type: ignore[attr-defined]

    trained(lambda: as_learner(hooked, recipe=RECIPE), together=True, use=still)
    assert sizes_together == []

    def off(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.fit(X, y, rng=own)
        with torch.no_grad():
            learner.predict(X)
        learner.fit(X, y, rng=own)

    trained(lambda: make("cnn", recipe=RECIPE), together=True, use=off, shape=(8, 8), sizes=(9, 9))


@pytest.mark.parametrize("slope", [nn.ReLU, nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("width", [32, 6])
def test_activations(
    slope: Any, width: int, sizes_together: list[int], recorded: Callable[[], None]
) -> None:
    """Tanh and sigmoid round the last few numbers of a stack in another way: each slice has its own."""

    def made() -> Learner:
        layers = nn.Linear(5, width), slope(), nn.Linear(width, CLASSES, bias=False)
        return as_learner(nn.Sequential(nn.Flatten(), nn.Sequential(*layers)), recipe=RECIPE)

    alone, together = (trained(made, together=t) for t in (False, True))
    assert sizes_together
    assert furthest(alone, together) == 0
    recorded()
    assert furthest(trained(made, together=False), alone) < 2e-6


def test_many_more_than_a_cache_takes(sizes_together: list[int]) -> None:
    """In parts of one size, give or take one, and nothing depends on them.

    Of 9 · 9,708 + 3 numbers, 16 bytes each, 2²² bytes hold three.
    """

    def made() -> Learner:
        return make("mlp", hidden=(9_708,), recipe=RECIPE)

    alone, parts = (trained(made, together=one, sizes=(9,) * 7) for one in (False, True))
    assert sizes_together == [3, 2, 2, 3, 2, 2]
    assert furthest(alone, parts) == 0


def test_predictions_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits; rows beyond a piece, no rows, and another number of them."""
    asked = []
    whole = batched.outputs_of

    def counted(modules: Any, *rest: Any) -> Any:
        asked.append(len(modules))
        return whole(modules, *rest)

    monkeypatch.setattr(batched, "outputs_of", counted)
    rng = np.random.default_rng(0)
    public = rng.normal(size=(300, 5))
    learners = []
    for i in range(4):
        learner = make("mlp", hidden=(6,), recipe=RECIPE)
        learner.bind(CLASSES)
        rows = rng.normal(size=(9, 5))
        learner.fit(rows, rng.dirichlet(np.ones(CLASSES), 9), rng=np.random.default_rng(i))
        learners.append(learner)
    for X in ([public] * 4, [public] * 3 + [public[:7]], [public[:0]] * 4):
        alone = [learner.logits(rows) for learner, rows in zip(learners, X, strict=True)]
        asked.clear()
        parts = [partial(one.logits, rows) for one, rows in zip(learners, X, strict=True)]
        together = BatchScheduler(parts).results()
        assert asked == {300: [4], 7: [3, 1], 0: []}[len(X[-1])]
        assert all(map(np.array_equal, alone, together))
        with torch.inference_mode():
            own = learners[0].module(torch.from_numpy(X[0].astype(np.float32))).numpy()
        assert np.allclose(own, alone[0], atol=1e-6)


def test_rows_that_fill_up_must_be_worth_it() -> None:
    """A small network always; a wide one where its batches are nearly full."""
    wide = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    layers = perceptron.layers_of(architecture(wide), (784,))
    assert perceptron.numbers_of(layers) == 159_010
    assert perceptron.worth_it(layers, 600, 32)
    assert not perceptron.worth_it(layers, 300, 256)
    small = perceptron.layers_of(architecture(nn.Sequential(nn.Linear(64, 10))), (64,))
    assert perceptron.worth_it(small, 300, 256)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("cnn", {"channels": (2, 3), "hidden": 5}, (8, 8)),
        ("cnn", {"channels": (2,), "hidden": 5}, (8, 8, 3)),
        ("lenet5", {}, (12, 12)),
        ("mlp", {"hidden": (4, 4)}, (2, 3)),
    ],
)
def test_every_preset_is_stacked_on_a_gpu(
    name: str, options: dict[str, Any], shape: tuple[int, ...], sizes_together: list[int]
) -> None:
    def made() -> Learner:
        return make(name, recipe={**RECIPE, "first_epochs": 2, "epochs": 1}, **options)

    alone, together = (
        trained(made, together=t, shape=shape, sizes=(12, 17)) for t in (False, True)
    )
    assert sizes_together == [2, 2]
    assert furthest(alone, together) < 1e-4


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize(
    "changes", [{}, {"optimizer": "sgd", "momentum": 0.9}, {"gradient_clip": 0.05}], ids=str
)
def test_whatever_can_be_stacked_is_on_a_gpu(
    changes: dict[str, Any], sizes_together: list[int]
) -> None:
    """All five, whose batches have the lengths that they have; those who are done leave."""

    def made() -> Learner:
        layers = nn.Linear(5, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, CLASSES)
        return as_learner(nn.Sequential(*layers), recipe={**RECIPE, **changes})

    alone, together = (trained(made, together=t) for t in (False, True))
    assert sizes_together == [5, 5]
    assert furthest(alone, together) < 2e-6


def test_regression_in_double_precision(
    sizes_together: list[int], recorded: Callable[[], None]
) -> None:
    def made() -> Learner:
        net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, CLASSES)).double()
        return as_learner(net, kind="regression", recipe=RECIPE)

    alone, together = (trained(made, together=t) for t in (False, True))
    assert sizes_together == [3, 3] and furthest(alone, together) == 0
    recorded()
    assert furthest(trained(made, together=False), alone) < 1e-13


def test_a_pull_and_row_weights(sizes_together: list[int], recorded: Callable[[], None]) -> None:
    """FedProx's pull and SCAFFOLD's correction, each party with its own."""

    def corrected(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.start(X, rng=own)  # type: ignore[attr-defined]
        first = learner.parameters()  # type: ignore[attr-defined]
        correction = {name: own.normal(size=part.shape) for name, part in first.items()}
        change = GradientCorrection(strength=0.3, offset=correction)
        learner.fit_corrected(X, y, rng=own, correction=change)  # type: ignore[attr-defined]

    def weighted(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.fit(X, y, rng=own, weights=own.uniform(0.5, 2, len(X)))

    def made() -> Learner:
        return make("mlp", hidden=(6,), recipe={**RECIPE, "optimizer": "sgd"})

    sizes = (20, 33, 9, 1, 17)
    found = {}
    for use in (corrected, weighted):
        alone, together = (trained(made, together=t, use=use, sizes=sizes) for t in (False, True))
        assert furthest(alone, together) == 0
        found[use] = alone
    assert sizes_together == [4, 4]  # and one of a single row
    recorded()
    for use, alone in found.items():
        assert furthest(trained(made, together=False, use=use, sizes=sizes), alone) < 2e-6


def test_steps_are_counted() -> None:
    """In batches of 8, a last one of a single row joining the one before: 3, 4, 1, 1 and 2 steps an epoch."""
    counts = []

    def use(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.start(X, rng=own)  # type: ignore[attr-defined]
        counts.append(learner.fit_corrected(X, y, rng=own, correction=GradientCorrection()).count)  # type: ignore[attr-defined]

    trained(lambda: make("mlp", recipe=RECIPE), together=True, use=use)
    assert sorted(counts) == [2, 2, 4, 6, 8]


def test_shared_rows_are_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public rows: those in one place in memory; rows of the same numbers elsewhere are others."""
    X, y = np.random.default_rng(0).normal(size=(12, 5)), np.eye(3)[np.arange(12) % 3]
    pooled = stack.pooled
    lengths = []

    def counted(jobs: Any) -> Any:
        found = pooled(jobs)
        lengths.append(len(found[0]))
        return found

    monkeypatch.setattr(stack, "pooled", counted)

    def one(i: int, rows: Any) -> Callable[[], Any]:
        def function() -> Any:
            learner = make("mlp", hidden=(4,), recipe=RECIPE)
            learner.bind(CLASSES)
            learner.fit(rows, y, rng=np.random.default_rng(i))
            return learner.parameters()  # type: ignore[attr-defined]

        return function

    functions = [one(0, X), one(1, X.view()), one(2, X.copy())]
    together = BatchScheduler(functions).results()
    assert lengths == [24]
    assert furthest([f() for f in functions], together) == 0


def test_who_cannot_train_with_others(sizes_together: list[int]) -> None:
    """Another width or recipe, short numbers, means over all steps, a single row's norm: one by one."""
    recipes = [RECIPE, {**RECIPE, "learning_rate": 0.02}]
    layers = [
        lambda: nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)).bfloat16(),
        lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.Linear(5, 4), nn.AlphaDropout(0.5), nn.Linear(4, 3)),
    ]
    made: list[Callable[[], Learner]] = [
        lambda: make("mlp", hidden=(4,), recipe=recipes[0]),
        lambda: make("mlp", hidden=(5,), recipe=recipes[0]),
        lambda: make("mlp", hidden=(4,), recipe=recipes[1]),
        *(lambda layer=layer: as_learner(layer(), recipe=RECIPE) for layer in layers for _ in "ab"),  # type: ignore[misc]
    ]
    X, y = np.random.default_rng(0).normal(size=(12, 5)), np.eye(3)[np.arange(12) % 3]

    def one(make_one: Callable[[], Learner]) -> Callable[[], Any]:
        def function() -> Any:
            learner = make_one()
            learner.bind(CLASSES)
            learner.fit(X, y, rng=np.random.default_rng(1))
            return learner.parameters()  # type: ignore[attr-defined]

        return function

    functions = [one(m) for m in made]
    together = BatchScheduler(functions).results()
    assert sizes_together == []
    assert furthest([f() for f in functions], together) == 0


OF_ONES_OWN = {
    "norm": (nn.Linear(5, 6, bias=False), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, CLASSES)),
    "norm first": (nn.BatchNorm1d(5, affine=False), nn.Linear(5, CLASSES)),
    "dropout": (nn.Dropout(0.1), nn.Linear(5, 6), nn.Tanh(), nn.Dropout(), nn.Linear(6, CLASSES)),
    "both": (nn.Linear(5, 6), nn.Sigmoid(), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, CLASSES)),
}


@pytest.mark.parametrize("early_stop", [None, 1])
@pytest.mark.parametrize("kind", OF_ONES_OWN)
def test_draws_and_memory_of_ones_own(
    kind: str,
    early_stop: int | None,
    sizes_together: list[int],
    recorded: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Running means, what dropout drops and when to stop are each network's, whoever trains beside it."""
    monkeypatch.setattr(stack, "_DRAWN", 5_000)
    recipe = {**RECIPE, "first_epochs": 12, "learning_rate": 0.05, "early_stop": early_stop}

    def use(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.fit(X, y, rng=own, phase="first", validation=(X[:9], y[::-1][:9]))
        said.append((own.bytes(8), learner.logits(X[:2])))  # no more drawn than was trained on

    def run(together: bool) -> tuple[list[Any], list[Any]]:
        said.clear()
        made = trained(
            lambda: as_learner(nn.Sequential(*OF_ONES_OWN[kind]), recipe=recipe),
            together=together,
            sizes=(20, 33, 17, 12),
            use=use,
        )
        return made, sorted(said, key=lambda one: one[0])

    said: list[Any] = []
    (alone, drawn), (together, beside) = (run(one) for one in (False, True))
    assert max(sizes_together) == 4
    assert furthest(alone, together) == 0
    for one, other in zip(drawn, beside, strict=True):
        assert one[0] == other[0] and np.array_equal(one[1], other[1])
    recorded()
    if "dropout" not in kind and kind != "both":
        assert furthest(run(False)[0], alone) < 2e-5  # torch's, up to rounding


def test_gradients_through_norm_and_dropout_are_those_that_torch_records() -> None:
    """Two networks, three rows and one that fills up; what batch norm keeps, too."""
    net = nn.Sequential(
        nn.BatchNorm1d(2), nn.Linear(2, 4), nn.BatchNorm1d(4, momentum=0.3), nn.Tanh(), nn.Dropout(0.2),
        nn.Linear(4, 3),
    ).double()  # fmt: skip
    layers = perceptron.layers_of(architecture(net), (2,))
    named = {n: p for n, p in net.state_dict().items() if p.is_floating_point()}
    torch.manual_seed(0)
    parts = {n: torch.rand(2, *p.shape, dtype=torch.float64) for n, p in named.items()}
    before = {name: part.clone() for name, part in parts.items()}
    slopes = {name: torch.zeros_like(part) for name, part in parts.items()}
    X, aims = torch.randn(2, 4, 2, dtype=torch.float64), torch.rand(2, 4, 3, dtype=torch.float64)
    even = torch.tensor([1, 1, 1, 0], dtype=torch.float64).expand(2, 1, 4) / 3
    share = even * torch.tensor([0.5, 1, 1.5, 1], dtype=torch.float64)
    masks = (torch.rand(2, 16) < 0.8).double() / 0.8
    step = stages.Step(layers, parts, slopes, 4, 2)
    step.outputs.inputs.copy_(X)
    step(CROSS_ENTROPY, aims.mT, share, even, masks)
    for i in range(2):
        net.load_state_dict({n: part[i] for n, part in before.items()}, strict=False)
        net.train().zero_grad()
        h = net[3](net[2](net[1](net[0](X[i, :3])))) * masks[i].view(4, 4)[:, :3].T
        (CROSS_ENTROPY.values(net[5](h), aims[i, :3]) * share[i, 0, :3]).sum().backward()
        for name, part in net.named_parameters():
            torch.testing.assert_close(slopes[name][i], part.grad)
        for name, part in net.named_buffers():
            if name in parts:
                torch.testing.assert_close(parts[name][i], part)


def test_dropout_drops_its_share() -> None:
    """Of 3,200 numbers that stay with a chance of 0.7, within 4 standard deviations, scaled up."""
    net = nn.Sequential(nn.Linear(5, 100), nn.Dropout(0.3), nn.Linear(100, 3))
    job = Job(
        net, lambda: torch.zeros(20, 5), (5,), 0, torch.zeros(20, 3), None, 2,
        np.random.default_rng(0), TorchRecipe(batch_size=32), CROSS_ENTROPY, GradientCorrection(), 1,
    )  # fmt: skip
    member = Stack([job], perceptron.layers_of(architecture(net), (5,))).members[0]
    (first, second) = member.next(2)[3]
    assert first.shape == (3_200,) and not np.array_equal(first, second)
    assert np.unique(first.round(6)).tolist() == [0, round(1 / 0.7, 6)]
    assert abs((first > 0).mean() - 0.7) < 4 * (0.7 * 0.3 / 3_200) ** 0.5


@pytest.mark.usefixtures("as_on_a_gpu")
def test_early_stopping_side_by_side_on_a_gpu(sizes_together: list[int]) -> None:
    recipe = {**RECIPE, "first_epochs": 12, "learning_rate": 0.1, "early_stop": 1}

    def use(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.fit(X, y, rng=own, phase="first", validation=(X[:9], y[::-1][:9]))
        drawn.append(own.bytes(8))

    def made() -> Learner:
        layers = nn.Linear(5, 6), nn.GELU(), nn.Linear(6, CLASSES)
        return as_learner(nn.Sequential(*layers), recipe=recipe)

    drawn: list[bytes] = []
    alone, together = (trained(made, together=one, use=use) for one in (False, True))
    assert sizes_together == [5]
    assert set(drawn[:5]) == set(drawn[5:])  # each has stopped where it would have alone
    assert furthest(alone, together) < 2e-5


def test_students_that_end_at_different_spells_learn_together(sizes_together: list[int]) -> None:
    """Two have nothing to learn from labels at random; one is surer of its one class with every spell."""

    def student(learner: Learner, X: Any, y: Any, own: np.random.Generator) -> None:
        learner.fit(X, y, rng=own, phase="first")
        aims = np.eye(CLASSES)[np.zeros(len(X), dtype=int)] if len(X) == 40 else y
        learner.fit(X, aims, rng=own, phase="distill")

    def made() -> Learner:
        return make("mlp", hidden=(6,), recipe={**RECIPE, "learning_rate": 0.1})

    alone, together = (
        trained(made, together=t, sizes=(20, 40, 33), use=student) for t in (False, True)
    )
    assert furthest(alone, together) == 0
    assert sizes_together == [
        3,
        3,
        3,
    ]  # the first fit and two spells; who goes on does so by itself


def test_what_diverges_is_named_and_the_others_go_on() -> None:
    rng = np.random.default_rng(0)

    def one(scale: float) -> Callable[[], Any]:
        def function() -> Any:
            recipe = {**RECIPE, "optimizer": "sgd", "learning_rate": 0.5}
            learner = make("mlp", hidden=(4,), kind="regression", recipe=recipe)
            learner.bind(1)
            X = rng.normal(size=(20, 5))
            try:
                learner.fit(X, scale * X[:, :1], rng=np.random.default_rng(0), phase="first")
            except RunFailed as error:
                return error.what
            return bool(np.isfinite(learner.predict(X)).all())

        return function

    found = BatchScheduler([one(0.1), one(1e30), one(0.1)]).results()
    assert found[0] is True and found[2] is True and "diverged" in found[1]


def test_architecture_tells_apart_what_differs() -> None:
    def net(width: int = 4, *, slope: Any = nn.ReLU) -> Any:
        return nn.Sequential(nn.Linear(3, width), slope(), nn.Linear(width, 2))

    assert architecture(net()) == architecture(net()) != None  # noqa: E711
    assert len({architecture(net()), architecture(net(5)), architecture(net(slope=nn.Tanh))}) == 3
    frozen = net()
    frozen[0].weight.requires_grad_(False)
    assert architecture(frozen) != architecture(net())
    again = net()
    again.append(again[1])
    assert architecture(again) not in (None, architecture(net()))
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    hooked = net()
    hooked[0].register_forward_hook(lambda *_: None)
    patched = net()
    patched.forward = lambda X: X
    own = type("Own", (nn.Module,), {"forward": lambda self, X: X})()
    for module in (tied, hooked, patched, own, nn.Sequential(nn.ReLU())):
        assert architecture(module) is None
