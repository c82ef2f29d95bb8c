"""Training with noise: no unit moves a step by more than it may, and a step is what it is by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.core.errors import ConsilienceError, InvalidInput
from consilience.core.federation.forming import negotiate
from consilience.core.learners import as_learner
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.tasks.lifecycle import Describe, Join
from consilience.core.tasks.outgoing import answer
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.losses import NoisyTraining
from consilience.privacy.accounting.party import protect
from consilience.privacy.accounting.privacy_of import privacy_of

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from consilience.core.numerics.outcomes import Classes  # noqa: E402
from consilience.models.torch.losses import SQUARED  # noqa: E402
from consilience.models.torch.recipe import TorchRecipe  # noqa: E402
from consilience.privacy.accounting.dp_sgd import train_with_noise  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = np.where(X[:, 0] > 0, "a", "b")
PUBLIC = Public(RNG.normal(size=(9, 2)))
HOW = NoisyTraining(rows=30, batch=10, epochs=2)
BUDGET = Budget(3.0, 1e-3, training=HOW, measured=True)
STEP = TorchRecipe(optimizer="sgd", learning_rate=1.0)


class Silent:
    """A source without noise, by which every unit is in every batch."""

    def normal(self, *, scale, size):
        return np.zeros(size) - (scale == 1.0)


def one_step(rows, targets, units, clip: float) -> np.ndarray:
    """How far a step from 0 goes, times the batch: the sum of the clipped gradients."""
    module = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(module.weight)
    tensors = [torch.tensor(one, dtype=torch.float32) for one in (rows, targets)]
    more = {"recipe": STEP, "loss": SQUARED, "noise": 2.0}
    more |= {"rate": 1.0, "steps": 1, "batch": 20, "clip": clip}
    train_with_noise(module, *tensors, np.array(units), source=Silent, **more)
    return -20 * module.weight.detach().numpy()[0]


def test_a_step_by_hand() -> None:
    """At w = 0 the gradient of (w·x − y)² is −2 y x: (−6, 0) and (0, −8), of lengths 6 and 8."""
    rows, targets = [[1.0, 0.0], [0.0, 2.0]], [[3.0], [2.0]]
    np.testing.assert_allclose(one_step(rows, targets, [0, 1], 100.0), [-6, -8], rtol=1e-5)
    np.testing.assert_allclose(one_step(rows, targets, [0, 1], 7.0), [-6, -7], rtol=1e-5)
    np.testing.assert_allclose(one_step(rows, targets, [0, 0], 5.0), [-3, -4], rtol=1e-5)


def test_no_unit_moves_a_step_by_more_than_the_clip() -> None:
    rows, targets = RNG.normal(size=(150, 2)) * 9, RNG.normal(size=(150, 1)) * 9
    rows[3] = 1e30  # whose gradient is not finite
    units = np.arange(150) // 3
    whole = one_step(rows, targets, units, 1.0)
    for unit in range(0, 50, 7):
        kept = units != unit
        without = one_step(
            rows[kept], targets[kept], np.unique(units[kept], return_inverse=True)[1], 1.0
        )
        assert np.linalg.norm(whole - without) <= 1.0 + 1e-4
    assert np.isfinite(whole).all()


def test_noise_is_as_wide_as_it_is_said_and_batches_are_drawn_unit_by_unit() -> None:
    """Of rows that move nothing, a step is noise alone; of rows that all move it alike, their number."""
    rng, module = np.random.default_rng(0), nn.Linear(2000, 1, bias=False)
    nn.init.zeros_(module.weight)
    nothing = torch.zeros((20, 2000))
    more = {"recipe": STEP, "loss": SQUARED, "noise": 3.0, "source": lambda: rng}
    more |= {"rate": 0.25, "steps": 4, "batch": 5, "clip": 2.0}
    train_with_noise(module, nothing, nothing[:, :1], np.arange(20), **more)
    assert module.weight.std().item() == pytest.approx(2 * 3.0 * 2.0 / 5, rel=0.05)
    counted, alike = nn.Linear(1, 1, bias=False), torch.ones((1000, 1))
    nn.init.zeros_(counted.weight)
    more |= {"noise": 1e-9, "rate": 0.05, "batch": 1, "recipe": replace(STEP, learning_rate=1e-3)}
    train_with_noise(counted, alike, 9 * alike, np.arange(1000), **more)
    drawn = counted.weight.item() / 1e-3 / 2.0
    assert drawn == pytest.approx(200, abs=50) and drawn == pytest.approx(round(drawn), abs=0.05)


def party(name: str = "p", seed: int = 0, model=None) -> Party:
    made = as_learner(model or nn.Linear(2, 2), recipe={"distill_epochs": 1})
    found = Party(name, made, X, Y, test=(X, Y), outcome=Classes(("a", "b")))
    protect(found, BUDGET, noise=lambda: np.random.default_rng(seed))
    return found


def run(parties: list[Party], rounds: int = 2, seed: int = 0):
    federation = Federation(parties, public=PUBLIC, seed=seed)
    return federation.run(ensemble_distillation(aggregate=avg(), rounds=rounds), progress=False)


def test_training_is_the_one_release_and_predictions_leave_after_it() -> None:
    """Another seed and more rounds begin with the same parameters, and spend nothing more."""
    parties = [party(name) for name in "pq"]
    first = run(parties)
    spent = privacy_of(parties[0]).accountant.spent
    assert spent.renyi and spent.epsilon(1e-3) == pytest.approx(3.0, rel=1e-6)
    again = run(parties, rounds=3, seed=5)
    assert privacy_of(parties[0]).accountant.spent == spent
    np.testing.assert_array_equal(first.rounds[1].teacher.values, again.rounds[1].teacher.values)
    assert parties[0].trainer.rows.train[0].shape == (0, 2)


def test_what_was_trained_without_noise_does_not_leave() -> None:
    one = party()
    protect(one, None)
    run([one, party("q")], rounds=1)
    protect(one, BUDGET)
    failure = answer(one, [PredictPublic(round=1)])
    assert isinstance(failure, Failure) and "not trained with noise" in failure.reason
    one.join(one.agreement)
    answer(one, [FitPrivate(round=1)])
    assert not isinstance(answer(one, [PredictPublic(round=1)]), Failure)
    assert isinstance(answer(one, [PredictPublic(round=1)]), tuple)


class Counts(nn.Module):
    """A layer whose work hangs on what a row holds, as one for texts of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(2, 2)

    def forward(self, rows):
        return self.last(rows[:, : int((rows > -99).any(dim=0).sum())])


def test_a_network_without_gradients_by_row_is_refused_when_its_party_joins() -> None:
    """Before anything is trained, by name, and with what to do: of texts as of any other."""
    texts = np.array(["one two", "three"] * 15)
    for model, X_of, rows in (
        (Counts(), X, PUBLIC.X),
        ("text-embedding", texts, np.array(["four five", "six"])),
    ):
        one = Party("p", model, X_of, Y, outcome=Classes(("a", "b")))
        protect(one, BUDGET)
        one.hold_public(Public(rows))
        failure = answer(one, [Join(agreement=negotiate([Describe().run(one)], one.public))])
        assert isinstance(failure, Failure) and failure.code == "budget", failure
        name = "text_embedding" if model == "text-embedding" else "Counts"
        assert name in failure.reason and "row by row" in failure.reason
        assert "private_sums" in failure.mend


def test_what_cannot_be_bounded_is_refused_with_the_reason() -> None:
    norm = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(ConsilienceError, match="normalises by means over rows"):
        run([party("p", model=norm), party("q", model=norm)])
    from sklearn.naive_bayes import GaussianNB

    with pytest.raises(InvalidInput, match="nothing bounds what one row does"):
        protect(Party("p", GaussianNB(), X, Y, outcome=Classes(("a", "b"))), BUDGET)
    with pytest.raises(InvalidInput, match="added or removed"):
        Budget(3.0, adjacency="replace", training=HOW)
    for wrong in ({"rows": 0}, {"rows": 9, "clip": 0.0}, {"rows": 9, "batches": 3}):
        with pytest.raises(InvalidInput, match="training"):
            Budget(3.0, training=wrong)


def test_other_things_of_the_party_do_not_leave() -> None:
    from consilience import uwa

    with pytest.raises(ConsilienceError, match="states no privacy cost"):
        federation = Federation([party("p"), party("q")], public=PUBLIC)
        federation.run(ensemble_distillation(aggregate=uwa(), rounds=1), progress=False)
