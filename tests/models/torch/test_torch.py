"""torch modules as learners: steps by hand, determinism, warm start, files, bad inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners import GradientCorrection, Steps, as_learner
from consilience.models import make

torch = pytest.importorskip("torch")
nn = torch.nn

from consilience.models.torch.training import held_out_weights, train_to_the_end  # noqa: E402

X = np.random.default_rng(0).normal(size=(65, 6))
T = np.eye(3)[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0)]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def network(*, dropout: float = 0.0, norm: bool = False) -> Any:
    return nn.Sequential(
        nn.Linear(6, 8),
        nn.BatchNorm1d(8) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(8, 3),
    )


def zeros(n_inputs: int, n_outputs: int) -> Any:
    layer = nn.Linear(n_inputs, n_outputs, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


def one_step(loss: str | None = None, rate: float = 1.0) -> dict[str, Any]:
    step: dict[str, Any] = {"optimizer": "sgd", "learning_rate": rate, "initial": "given"}
    return {**step, "epochs": 1, "first_epochs": 1, "loss": loss, "batch_size": 8}


def test_a_soft_cross_entropy_step_by_hand() -> None:
    """W = 0, x = 2, target (¼, ¾): the softmax is (½, ½), the gradient (p − t)x = (½, −½), so a
    step of 1 gives W = (−½, ½), the logits at x = 1. A second fit goes on from there: at x = 2
    the logits are (−1, 1), p₁ = 1/(1+e⁻²), and W₁ = ½ − 2(p₁ − ¾)."""
    learner = as_learner(zeros(1, 2), recipe=one_step())
    x, target = np.array([[2.0]]), np.array([[0.25, 0.75]])
    learner.fit(x, target, rng=rng())
    np.testing.assert_allclose(learner.logits(np.array([[1.0]])), [[-0.5, 0.5]], rtol=1e-6)
    learner.fit(x, target, rng=rng())
    second = 0.5 - 2 * (1 / (1 + np.exp(-2)) - 0.75)
    np.testing.assert_allclose(learner.logits(np.array([[1.0]])), [[-second, second]], rtol=1e-6)
    share = 1 / (1 + np.exp(-2 * second))
    np.testing.assert_allclose(learner.predict(np.array([[1.0]])), [[1 - share, share]], rtol=1e-6)


def test_row_weights_by_hand() -> None:
    """Two rows x = 1 with targets (1, 0), (0, 1) and weights 3, 1, which become 1.5, 0.5: the
    gradient of W₀ is (1.5·(½ − 1) + 0.5·(½ − 0))/2 = −¼, so W = (¼, −¼)."""
    learner = as_learner(zeros(1, 2), recipe=one_step())
    learner.fit(np.ones((2, 1)), np.eye(2), rng=rng(), weights=np.array([3.0, 1.0]))
    np.testing.assert_allclose(learner.logits(np.ones((1, 1))), [[0.25, -0.25]], rtol=1e-6)


@pytest.mark.parametrize("weights", [None, np.array([3.0, 3.0, 0.0])])
def test_a_squared_error_step_by_hand(weights: np.ndarray | None) -> None:
    """W = 0, x = 2, y = 3: the gradient of (Wx − y)² is −12, a step of 0.1 gives W = 1.2. The
    third row weighs nothing, so it changes nothing."""
    rows = 3 if weights is not None else 1
    inputs, values = np.array([[2.0], [2.0], [9.0]])[:rows], np.array([[3.0], [3.0], [-9.0]])[:rows]
    learner = as_learner(zeros(1, 1), kind="regression", recipe=one_step(rate=0.1))
    learner.fit(inputs, values, rng=rng(), weights=weights)
    np.testing.assert_allclose(learner.predict(np.ones((1, 1))), [[1.2]], rtol=1e-6)


@pytest.mark.parametrize("weights", [None, [1.0, 3.0]])
def test_a_brier_step_by_hand(weights: list[float] | None) -> None:
    """p = (½, ½), t = (1, 0): dL/dp = p − t = (−½, ½) for the mean over two classes, dL/dz =
    p(g − Σpg) = (−¼, ¼), so W = (¼, −¼) after a step of 1 at x = 1; both rows are the same."""
    learner = as_learner(zeros(1, 2), recipe=one_step("mse"))
    learner.fit(
        np.ones((2, 1)),
        np.array([[1.0, 0.0]] * 2),
        rng=rng(),
        weights=None if weights is None else np.array(weights),
    )
    np.testing.assert_allclose(learner.logits(np.ones((1, 1))), [[0.25, -0.25]], rtol=1e-6)


def test_a_clipped_step_by_hand() -> None:
    """The first step's gradient (½, −½) has norm √½; clipped to ½ it is (√2/4, −√2/4)."""
    learner = as_learner(zeros(1, 2), recipe={**one_step(), "gradient_clip": 0.5})
    learner.fit(np.array([[2.0]]), np.array([[0.25, 0.75]]), rng=rng())
    expected = 2**0.5 / 4
    np.testing.assert_allclose(learner.logits(np.ones((1, 1))), [[-expected, expected]], rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_same_stream_same_bits_and_torchs_own_stream_is_left_alone(optimizer: str) -> None:
    mine = network(dropout=0.5)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    answers = []
    for seed in (0, 0, 1):
        learner = as_learner(mine, recipe={"optimizer": optimizer})
        generator = rng(seed)
        learner.fit(X, T, rng=generator, phase="first")
        learner.fit(X, T, rng=generator, phase="distill")
        answers.append(learner.predict(X))
    np.testing.assert_array_equal(answers[0], answers[1])
    assert (answers[0] != answers[2]).any()
    assert torch.equal(torch_state, torch.get_rng_state())
    np.testing.assert_array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002


def test_parties_that_share_a_module_start_apart_and_it_stays_as_it_was() -> None:
    mine = network(norm=True)
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    answers = []
    for seed in (0, 1):
        learner = as_learner(mine, recipe={"first_epochs": 0})
        learner.fit(X, T, rng=rng(seed), phase="first")
        answers.append(learner.predict(X))
    assert (answers[0] != answers[1]).any()
    kept = as_learner(mine, recipe={"first_epochs": 0, "initial": "given"})
    kept.fit(X, T, rng=rng(), phase="first")
    mine.eval()
    with torch.no_grad():
        expected = mine(torch.tensor(X, dtype=torch.float32)).double().numpy()
    np.testing.assert_allclose(kept.logits(X), expected, atol=1e-6)
    assert all(torch.equal(before[name], value) for name, value in mine.state_dict().items())


def test_phases_have_their_own_epochs() -> None:
    recipe = {"learning_rate": 0.01, "first_epochs": 30, "epochs": 0, "distill_epochs": 1}
    learner = as_learner(network(), recipe=recipe)
    learner.fit(X, T, rng=rng(), phase="first")
    first = learner.predict(X)
    assert (first.argmax(axis=1) == T.argmax(axis=1)).mean() > 0.7
    learner.fit(X, T[::-1], rng=rng(), phase="private")
    np.testing.assert_array_equal(learner.predict(X), first)
    learner.fit(X, T, rng=rng(), phase="distill")
    assert (learner.predict(X) != first).any()


def test_a_last_batch_of_one_row_joins_the_one_before() -> None:
    learner = as_learner(network(norm=True), recipe={"batch_size": 32})
    learner.fit(X, T, rng=rng())  # 65 rows: 32 and 33
    assert np.isfinite(learner.predict(X)).all()
    with pytest.raises(InvalidInput, match="more than 1 value per channel"):
        learner.fit(X[:1], T[:1], rng=rng())


def test_early_stop_keeps_the_best_epoch() -> None:
    """Held-out labels contradict the training labels, so every epoch after the first is worse."""
    recipe = {"learning_rate": 0.05, "first_epochs": 50, "optimizer": "sgd"}
    wrong = np.roll(T, 1, axis=1)
    stopped = as_learner(network(), recipe={**recipe, "early_stop": 2})
    stopped.fit(X, T, rng=rng(), validation=(X, wrong), phase="first")
    first = as_learner(network(), recipe={**recipe, "first_epochs": 1})
    first.fit(X, T, rng=rng(), phase="first")
    np.testing.assert_array_equal(stopped.predict(X), first.predict(X))


@pytest.mark.parametrize(
    ("losses", "kept", "made"),
    [
        ([5, 3, 4, 2, 2.5, 2.2], 3, 5),  # two spells in a row without a lower loss than 2
        ([5, 6, 7], 0, 2),  # no spell helps: it stays as it was
        (range(100, 0, -1), 20, 20),  # it falls as long as it may
    ],
)
def test_a_student_learns_until_its_loss_stops_falling(losses: Any, kept: int, made: int) -> None:
    """Each spell adds 1 to the weight and makes 10 steps."""
    student, told, spells = zeros(1, 1), iter(losses), []

    def spell() -> int:
        spells.append(1)
        with torch.no_grad():
            student.weight += 1
        return 10

    assert train_to_the_end(student, spell, lambda: next(told)) == 10 * kept
    assert student.weight.item() == kept and len(spells) == made


def test_a_tenth_of_the_rows_is_held_out_the_same_in_every_round() -> None:
    """18 of 20 rows share the weight of 20; given weights keep their ratios, and mean 1."""
    judged, weights = held_out_weights(20, None)
    assert len(judged) == 2 and (weights[judged] == 0).all()
    np.testing.assert_allclose(np.delete(weights, judged), 20 / 18)
    np.testing.assert_array_equal(held_out_weights(20, None)[0], judged)
    given = np.arange(1.0, 21)
    weighted = held_out_weights(20, given)[1]
    np.testing.assert_allclose(
        np.delete(weighted / given, judged), weighted.sum() / given[weighted > 0].sum()
    )
    assert [part.tolist() for part in held_out_weights(1, None)] == [[0], [1.0]]


def test_distillation_reaches_the_teacher_and_fixed_epochs_stop_before() -> None:
    """y = 2x at x = 1: a step moves w by 0.2 (2 − w), of 20 rows in one batch. One epoch leaves 1.6 of the 2
    to go, and 100, as many as there may be, 2 · 0.8^100. Two rows are held out; where they say −2, every
    spell is further from them, so that w stays."""
    plain = {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 20, "initial": "given"}
    x, y = np.ones((20, 1)), np.full((20, 1), 2.0)

    def taught(values: np.ndarray, **recipe: Any) -> float:
        learner = as_learner(zeros(1, 1).double(), kind="regression", recipe={**plain, **recipe})
        learner.fit(x, values, rng=rng(), phase="distill")
        return float(learner.predict(np.ones((1, 1)))[0, 0])

    assert taught(y, distill_epochs=1) == pytest.approx(0.4)
    assert taught(y) == pytest.approx(2, abs=1e-6)
    y[held_out_weights(20, None)[0]] = -2
    assert taught(y) == 0


def test_a_student_that_diverges_is_named() -> None:
    learner = as_learner(zeros(1, 1), kind="regression", recipe=one_step(rate=1e30))
    with pytest.raises(RunFailed, match="training diverged"):
        learner.fit(np.full((20, 1), 3.0), np.full((20, 1), 1e30), rng=rng(), phase="distill")


@pytest.mark.parametrize("norm", [False, True])
def test_saved_equals_loaded_and_training_goes_on_alike(norm: bool, tmp_path: Any) -> None:
    learner = as_learner(network(norm=norm))
    learner.fit(X, T, rng=rng())
    file = tmp_path / "model.safetensors"
    learner.save(file)
    again = as_learner(network(norm=norm))
    assert not again.fitted
    again.load(file)
    assert again.fitted and again.n_outputs == 3
    np.testing.assert_array_equal(again.logits(X), learner.logits(X))
    for one in (learner, again):
        one.fit(X, T, rng=rng(5), phase="distill")
    np.testing.assert_array_equal(again.logits(X), learner.logits(X))
    assert [one.name for one in tmp_path.iterdir()] == ["model.safetensors"]


def test_damaged_and_foreign_files(tmp_path: Any) -> None:
    from safetensors.torch import save_file

    learner = as_learner(network())
    learner.fit(X, T, rng=rng())
    file = tmp_path / "model.safetensors"
    learner.save(file)
    whole = file.read_bytes()
    for damaged in (whole[:-50], b"", b"not a model"):
        file.write_bytes(damaged)
        with pytest.raises(RunFailed, match="Sequential"):
            learner.load(file)
    save_file({"weight": torch.zeros(2)}, file)
    with pytest.raises(RunFailed, match="Sequential"):
        learner.load(file)
    with pytest.raises(RunFailed):
        learner.load(tmp_path / "missing.safetensors")
    file.write_bytes(whole)
    with pytest.raises(RunFailed, match="Linear"):
        as_learner(nn.Linear(6, 3)).load(file)
    other = as_learner(network())
    other.bind(4)
    with pytest.raises(RunFailed, match="3 outputs, expected 4"):
        other.load(file)
    with pytest.raises(RunFailed, match="cannot be written"):
        learner.save(tmp_path / "missing" / "model.safetensors")


def test_factories_draw_their_own_parameters_from_the_stream() -> None:
    def build(input_shape: tuple[int, ...], n_outputs: int) -> Any:
        module = nn.Linear(input_shape[0], n_outputs)
        nn.init.normal_(module.weight, std=3.0)
        return module

    answers = []
    for seed in (0, 0, 1):
        learner = as_learner(build, recipe={"first_epochs": 0})
        learner.fit(X, T, rng=rng(seed), phase="first")
        answers.append(learner.logits(X))
    np.testing.assert_array_equal(answers[0], answers[1])
    assert (answers[0] != answers[2]).any()
    assert answers[0].std() > 3  # √6 · 3 = 7.3 on average; the layer's own draw gives 0.6


def test_lazy_layers_double_precision_and_read_only_inputs() -> None:
    learner = as_learner(nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3)).double())
    fixed = X.copy()
    fixed.flags.writeable = False
    learner.fit(fixed, T, rng=rng())
    assert next(learner.module.parameters()).dtype == torch.float64
    assert learner.predict(fixed[::-1]).shape == (65, 3)


def test_whole_numbers_reach_an_embedding_as_they_are() -> None:
    words = np.arange(12).reshape(6, 2) % 5
    bag = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 2))
    learner = as_learner(bag)
    learner.bind(2)
    learner.check(words)
    learner.fit(words, np.eye(2)[words[:, 0] % 2], rng=rng())
    linear = as_learner(nn.Linear(2, 2))
    linear.fit(words.astype(np.uint8), np.eye(2)[words[:, 0] % 2], rng=rng())


@pytest.mark.parametrize("shape", [(64,), (8, 8), (1, 8, 8), (8, 8, 3), (3, 8, 8)])
@pytest.mark.parametrize("name", ["mlp", "cnn", "lenet5"])
def test_networks_fit_their_inputs(name: str, shape: tuple[int, ...], tmp_path: Any) -> None:
    images = rng().normal(size=(5, *shape)).astype(np.float32)
    learner = make(name)
    learner.bind(3)
    learner.check(images)
    learner.fit(images, T[:5], rng=rng())
    learner.save(tmp_path / "m.safetensors")
    again = make(name)
    again.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(images), learner.predict(images))


@pytest.mark.parametrize(
    ("module", "example", "said"),
    [
        (nn.Linear(6, 4), X, r"into \(2, 4\), expected \(2, 3\)"),
        (nn.Linear(5, 3), X, "cannot use these inputs"),
        (nn.Flatten(0), X, "expected"),
        (nn.Linear(6, 3), np.array(["a", "b"]), "takes numbers"),
        (nn.LSTM(6, 3), X, "gave a tuple, expected a tensor"),
    ],
)
def test_check_names_the_mismatch(module: Any, example: np.ndarray, said: str) -> None:
    learner = as_learner(module)
    learner.bind(3)
    with pytest.raises(InvalidInput, match=said):
        learner.check(example)


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("cnn", (63,), "no images"),
        ("cnn", (2, 2), "too small"),
        ("cnn", (5, 5, 5), "no images"),
        ("lenet5", (63,), "no images"),
        ("lenet5", (33, 20), "larger than 32×32"),
        ("vgg16", (3, 28, 28), "smaller than 32×32"),
    ],
)
def test_networks_refuse_what_is_no_image_for_them(
    name: str, shape: tuple[int, ...], said: str
) -> None:
    learner = make(name)
    learner.bind(3)
    with pytest.raises(InvalidInput, match=f"{name}.*{said}"):
        learner.check(np.zeros((2, *shape)))


def test_cnn_with_other_filters_and_more_layers() -> None:
    """Without margins 32 → 28 → 14 → 10 → 5: 4,864 + 102,464 weights, then 1,600 · 394 + 394 and so on."""
    learner = make("cnn", channels=(64, 64), kernel=5, hidden=(394, 192), padded=False)
    learner.bind(10)
    learner.start(np.zeros((2, 3, 32, 32)), rng=rng())  # type: ignore[attr-defined]
    parts = learner.parameters()  # type: ignore[attr-defined]
    assert sum(part.size for part in parts.values()) == 4864 + 102464 + 630794 + 75840 + 1930
    for wrong, said in [({"kernel": 4}, "kernel is 4"), ({"hidden": ()}, "no hidden layer")]:
        with pytest.raises(InvalidInput, match=said):
            make("cnn", **wrong)


@pytest.mark.parametrize("shape", [(28, 28), (784,), (32, 32)])
def test_lenet5_has_the_layers_of_the_paper(shape: tuple[int, ...]) -> None:
    """Parameters: 6·(5·5 + 1) + 16·(6·5·5 + 1) = 156 + 2416 in the convolutions, whose maps are
    28², 14² when pooled, 10², 5²; then 120·(16·5·5 + 1) = 48,120, 84·121 = 10,164 and 85."""
    learner = make("lenet5", kind="regression", recipe={"first_epochs": 0})
    learner.fit(np.zeros((2, *shape)), np.zeros((2, 1)), rng=rng(), phase="first")
    sizes = [part.numel() for part in learner.module.parameters()]
    pairs = [sum(pair) for pair in zip(sizes[::2], sizes[1::2], strict=True)]
    assert pairs == [156, 2416, 48_120, 10_164, 85]
    maps: list[tuple[int, ...]] = []
    for part in learner.module:
        if isinstance(part, nn.Conv2d | nn.AvgPool2d):
            part.register_forward_hook(lambda _, __, out: maps.append(tuple(out.shape[1:])))
    learner.predict(np.zeros((1, *shape)))
    assert maps == [(6, 28, 28), (6, 14, 14), (16, 10, 10), (16, 5, 5)]


@pytest.mark.parametrize(
    ("batch_norm", "hidden", "parameters"),
    [
        # 9 depth filters + filters, summed over the thirteen convolutions: 14,714,688; 512·10 + 10
        (False, (), 14_714_688 + 5_130),
        # a factor and a shift in place of each of 4,224 shifts; 512·512 + 512 twice
        (True, (512, 512), 14_714_688 + 4_224 + 2 * 262_656 + 5_130),
    ],
)
def test_vgg16_has_the_layers_of_the_paper(
    batch_norm: bool, hidden: tuple[int, ...], parameters: int
) -> None:
    learner = make("vgg16", batch_norm=batch_norm, hidden=hidden, recipe={"first_epochs": 0})
    learner.bind(10)
    images = np.random.default_rng(0).random((4, 3, 32, 32), dtype=np.float32)
    learner.fit(images, np.eye(10)[:4], rng=np.random.default_rng(0), phase="first")
    module = learner.module  # type: ignore[attr-defined]
    assert sum(part.numel() for part in module.parameters()) == parameters
    assert sum(isinstance(part, torch.nn.Conv2d) for part in module.modules()) == 13
    assert learner.predict(images).shape == (4, 10)


def test_lenet5_centres_small_images() -> None:
    """A 28×28 image is the 32×32 image with two rows and columns of zeros on every side."""
    learner = make("lenet5", recipe={"first_epochs": 1})
    small = rng().random((4, 28, 28))
    learner.bind(3)
    learner.fit(small, T[:4], rng=rng(), phase="first")
    padded = np.pad(small, ((0, 0), (2, 2), (2, 2)))
    other = make("lenet5", recipe={"first_epochs": 1})
    other.bind(3)
    other.fit(padded, T[:4], rng=rng(), phase="first")
    np.testing.assert_array_equal(learner.predict(small), other.predict(padded))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_lenet5_learns_values(activation: str) -> None:
    """Where a bright square lies, left to right: a constant guess has the variance of the places."""
    places = rng().integers(0, 24, size=120)
    images = np.zeros((120, 28, 28))
    for image, place in zip(images, places, strict=True):
        image[12:16, place : place + 4] = 1
    values = (places[:, None] - 11.5) / 7
    recipe = {"learning_rate": 2e-3, "first_epochs": 25}
    learner = make("lenet5", activation=activation, kind="regression", recipe=recipe)
    learner.fit(images[:80], values[:80], rng=rng(), phase="first")
    layer = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
    assert sum(isinstance(part, layer) for part in learner.module) == 4
    error = np.square(learner.predict(images[80:]) - values[80:]).mean()
    assert error < 0.1 * values[80:].var()


def test_bad_use() -> None:
    with pytest.raises(InvalidInput, match="class"):
        as_learner(nn.Linear)
    with pytest.raises(InvalidInput, match="only torch models take a recipe"):
        as_learner("naive-bayes", recipe={"epochs": 1})
    with pytest.raises(InvalidInput, match="loss for classification"):
        as_learner(nn.Linear(1, 1), kind="regression", recipe={"loss": "cross-entropy"})
    learner = as_learner(network())
    with pytest.raises(InvalidInput, match="not been trained"):
        learner.predict(X)
    with pytest.raises(InvalidInput, match="not been trained"):
        learner.save("nowhere")  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(InvalidInput, match="no GPU"):
            as_learner(network(), recipe={"device": "cuda"})


def test_divergence_is_said() -> None:
    learner = as_learner(
        zeros(1, 1), kind="regression", recipe={"optimizer": "sgd", "learning_rate": 1e9}
    )
    with pytest.raises(RunFailed, match="diverged"):
        learner.fit(np.full((50, 1), 1e3), np.ones((50, 1)), rng=rng(), phase="first")


def corrected(
    change: GradientCorrection, *, held_out: float | None = None, **recipe: Any
) -> tuple[float, Steps]:
    """``w x`` from w = 0 on one row x = 1, y = 2, where the gradient is 2 (w − 2): two steps of 0.1."""
    steps = {"optimizer": "sgd", "learning_rate": 0.1, "epochs": 2, "initial": "given", **recipe}
    learner = as_learner(zeros(1, 1), kind="regression", recipe=steps)
    learner.bind(1)
    one = np.ones((1, 1))
    validation = None if held_out is None else (one, held_out * one)
    made = learner.fit_corrected(one, 2 * one, rng=rng(), correction=change, validation=validation)
    return float(learner.predict(one)[0, 0]), made


def test_pulled_steps_by_hand() -> None:
    """Plain: −4 → 0.4, −3.2 → 0.72. With correction −1 and strength 3: −5 → 0.5, −3 − 1 + 1.5 → 0.75.

    A gradient clipped to −1 and then pulled: −2 → 0.2, −2 + 0.6 → 0.34.
    """
    change = GradientCorrection(strength=3.0, offset={"weight": np.array([[-1.0]])})
    assert corrected(GradientCorrection()) == (pytest.approx(0.72), Steps(2, 0.1))
    assert corrected(change) == (pytest.approx(0.75), Steps(2, 0.1))
    assert corrected(change, gradient_clip=1.0)[0] == pytest.approx(0.34)
    assert corrected(GradientCorrection(strength=3.0))[0] == pytest.approx(0.4 + 0.32 - 0.12)


def test_steps_are_those_to_what_is_kept() -> None:
    """Held-out rows like 0.4 best, which is where the first of five epochs leads."""
    w, steps = corrected(GradientCorrection(), held_out=0.4, epochs=5, early_stop=2)
    assert w == pytest.approx(0.4) and steps.count == 1
    assert corrected(GradientCorrection(), epochs=5, early_stop=2)[1].count == 5


def test_what_a_batch_does_not_use_is_pulled_too() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = zeros(1, 1), zeros(1, 1)

        def forward(self, x: Any) -> Any:
            return self.used(x)

    recipe = {"optimizer": "sgd", "learning_rate": 0.1, "epochs": 2, "initial": "given"}
    learner = as_learner(Half(), kind="regression", recipe=recipe)
    learner.bind(1)
    change = GradientCorrection(offset={"unused.weight": np.ones((1, 1))})
    learner.fit_corrected(np.ones((1, 1)), np.ones((1, 1)), rng=rng(), correction=change)
    assert learner.parameters()["unused.weight"] == pytest.approx(-0.2)


def test_pulls_of_other_parameters_are_refused() -> None:
    for name, shape, here in (("bias", (1,), "None"), ("weight", (2,), r"\(1, 1\)")):
        with pytest.raises(InvalidInput, match=f"for parameter '{name}', here {here}"):
            corrected(GradientCorrection(offset={name: np.zeros(shape)}))


def test_trained_parameters_are_neither_buffers_nor_frozen() -> None:
    module = network(norm=True)
    module[0].bias.requires_grad_(False)
    learner = as_learner(module, recipe={"initial": "given"})
    learner.bind(3)
    learner.start(X, rng=rng())
    kept = {"0.bias", "1.running_mean", "1.running_var"}
    assert set(learner.parameters()) - learner.trained_parameters() == kept


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_same_bits_on_a_gpu(tmp_path: Any) -> None:
    answers = []
    for _ in range(2):
        learner = as_learner(network(dropout=0.3, norm=True), recipe={"device": "cuda"})
        learner.fit(X, T, rng=rng(), phase="first")
        answers.append(learner.predict(X))
    np.testing.assert_array_equal(*answers)
    learner.save(tmp_path / "m.safetensors")
    other = as_learner(network(dropout=0.3, norm=True), recipe={"device": "cpu"})
    other.load(tmp_path / "m.safetensors")
    np.testing.assert_allclose(other.predict(X), answers[0], atol=1e-5)


def test_a_preset_is_tried_once_for_rows_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one row; a module of one's own each time, with two. Parameters are the same bits all the same."""
    from consilience.models.torch import modules

    tried: list[int] = []
    whole = modules.ModuleBuilder._try

    def counted(self: Any, module: Any, example: Any, n_outputs: int) -> None:
        tried.append(len(example))
        whole(self, module, example, n_outputs)

    monkeypatch.setattr(modules.ModuleBuilder, "_try", counted)
    preset, own = make("mlp"), as_learner(nn.Linear(2, 3))
    for learner in (preset, own):
        learner.bind(3)
        for rows in (np.zeros((5, 2)), np.ones((4, 2))):
            learner.check(rows)
    preset.check(np.zeros((5, 3)))
    assert tried == [1, 2, 2, 1]
    first, again = preset, make("mlp")
    again.bind(3)
    for learner in (first, again):
        learner.start(np.zeros((5, 2)), rng=rng())  # type: ignore[attr-defined]
        assert not learner.module.training  # type: ignore[attr-defined]
    for name, part in first.parameters().items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(part, again.parameters()[name])  # type: ignore[attr-defined]
