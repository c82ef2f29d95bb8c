"""Tasks of protocols that exchange models, and the messages that a party replies with.

The tasks of boosting are in :mod:`consilience.methods.functional_boosting.tasks`. The papers, their
pseudo-code and its legend are in the protocols of :mod:`consilience.methods.model_exchange`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.learners import Learner
from consilience.core.messages.base import Reply
from consilience.core.messages.message import message
from consilience.core.messages.replies import Receipt, SharedModel
from consilience.core.messages.schema import Agreement, TaskLike
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.validation.arrays import Array
from consilience.methods.model_exchange.party import check_sharing, predict_private_with, share


def shared_model(
    party: PartyView, round: int, learner: Learner | None = None, *, notes: tuple[str, ...] = ()
) -> SharedModel:
    """Pack a trained model of a party as a message.

    Args:
        party: the party.
        round: the round of the task.
        learner: the model; by default the party's own.
        notes: warnings for the ledger.

    Returns:
        The message.

    Raises:
        InvalidInput: the model contains private rows against the party's rules, or cannot be sent.
    """
    about, data = share(party, learner)
    return SharedModel(party=party.name, round=round, about=about, data=data, notes=notes)


# --- AKD, AvgKD, PKD, EKD -------------------------------------------------------------------------------


@message
class CheckSharing(
    Task,
    reply_type=Receipt,
    exchanges="models",
    protocol=None,
    static=True,
    keeps_model=True,
    exposure="nothing",
    limits=(),
):
    """Check that the party's trained model may and can be sent to others."""

    round: int = 0

    def run(self, party: PartyView) -> Receipt:
        """Raise ``InvalidInput`` if the model may not or cannot be sent."""
        check_sharing(party)
        return Receipt(party=party.name, round=self.round)


@message
class TrainTowards(
    Task,
    reply_type=SharedModel,
    exchanges="models",
    protocol="model_exchange",
    exposure="usual",
    limits=(),
):
    """Train on the party's inputs with a mix of others' predictions and the party's labels; send the model.

    Attributes:
        models: the others' models.
        share: weight of the predictions of each of these models.
        own: weight of the predictions of the party's own model.
        labels: weight of the party's labels.
        warm_start: continue training networks from their previous parameters; other models always start from
            an untrained model.
    """

    round: int
    models: tuple[SharedModel, ...] = ()
    share: float = 0.0
    own: float = 0.0
    labels: float = 0.0
    warm_start: bool = False

    def run(self, party: PartyView) -> SharedModel:
        """The newly trained model."""
        opinions, weight, notes = np.zeros(party.trainer.labels.shape), self.labels, []
        if self.own and party.trainer.learner.fitted:
            opinions, weight = self.own * party.trainer.predict_private(), weight + self.own
        elif self.own:
            notes.append("without a model of its own")
        for model in self.models:
            try:
                opinions = opinions + self.share * predict_private_with(
                    party, model.about, model.data
                )
                weight += self.share
            except KnowledgeRefused as refusal:
                notes.append(f"without the model of {model.party}: {refusal.what}")
        if weight == 0:
            raise InvalidInput("; ".join(notes))
        party.trainer.fit_on_mixed_targets(
            self.round, opinions / weight, self.labels / weight, warm_start=self.warm_start
        )
        return shared_model(party, self.round, notes=tuple(notes))


# --- conjugate distillation: lines of its pseudo-code ---------------------------------------------------


@message
class Products(Reply, privacy="unbudgeted"):
    """One inner product for every target column.

    Attributes:
        values: the inner products, shape ``(n_outputs,)``, float64.
        ridge: the agent's ``λ N_a``.
        kernel: name and parameters of the agent's kernel.
    """

    values: Array
    ridge: float
    kernel: str

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless there is one finite number per output."""
        assert agreement is not None
        numbers = (
            self.values.dtype == np.float64 and np.isfinite([*self.values.flat, self.ridge]).all()
        )
        if self.values.shape != (agreement.outputs,) or not numbers:
            raise KnowledgeRefused(
                "its products are not one finite number an output", where=self.party
            )


@message
class CheckKernel(
    Task,
    reply_type=Receipt,
    exchanges="models",
    protocol="conjugate_distillation",
    exposure="nothing",
    limits=(),
):
    """Check that the party's model is a kernel ridge regression and may be sent."""

    round: int = 0

    def run(self, party: PartyView) -> Receipt:
        """Raise ``InvalidInput`` if the check fails."""
        _check_kernel(party)
        check_sharing(party)
        return Receipt(party=party.name, round=self.round)


@message
class Start(
    Task,
    reply_type=SharedModel,
    exchanges="models",
    protocol="conjugate_distillation",
    exposure="usual",
    limits=(),
):
    """Begin conjugate distillation: train on the party's labels, and send the model (line 1)."""

    round: int

    def run(self, party: PartyView) -> SharedModel:
        """The model trained on the agent's labels."""
        nothing = np.zeros(party.trainer.labels.shape)
        party.trainer.fit_on_mixed_targets(self.round, party.trainer.labels, 0.0)
        arrays = dict.fromkeys(("direction", "p", "q", "residual"), nothing)
        party.trainer.memory.replace({**arrays, "labels": np.array(party.trainer.labels)})
        return shared_model(party, self.round)


@message
class Residual(
    Task,
    reply_type=Products,
    exchanges="models",
    protocol="conjugate_distillation",
    exposure="unmeasured",
    limits=(),
):
    """Step along the direction, and send the remaining residual's r·z (lines 2 and 7).

    Attributes:
        models: the others' models, in line 2.
        step: γ, shape ``(n_outputs,)``, in line 7.
    """

    round: int
    step: Array
    models: tuple[SharedModel, ...] = ()

    def run(self, party: PartyView) -> Products:
        """r·z."""
        kept = party.trainer.memory
        labels = kept["labels"] + self.step * kept["direction"]
        residual = (
            kept["residual"] - self.step * kept["q"] - _sum_of_predictions(party, self.models)
        )
        kept.keep(labels=labels, residual=residual)
        party.trainer.fit_on_mixed_targets(self.round, residual, 0.0)
        z, ridge, kernel = _kernel_regression(party)
        kept.keep(z=z)
        return Products(
            party=party.name,
            round=self.round,
            values=(residual * z).sum(axis=0),
            ridge=ridge,
            kernel=kernel,
        )


@message
class Direction(
    Task,
    reply_type=SharedModel,
    exchanges="models",
    protocol="conjugate_distillation",
    exposure="usual",
    limits=(),
):
    """Train on the next direction of conjugate gradients, and send the model (line 4).

    Attributes:
        keep: factor β of the last direction, shape ``(n_outputs,)``.
    """

    round: int
    keep: Array

    def run(self, party: PartyView) -> SharedModel:
        """The model trained on the direction's labels."""
        kept = party.trainer.memory
        direction = kept["residual"] + self.keep * kept["direction"]
        kept.keep(direction=direction, p=kept["z"] + self.keep * kept["p"])
        party.trainer.fit_on_mixed_targets(self.round, direction, 0.0)
        return shared_model(party, self.round)


@message
class Image(
    Task,
    reply_type=Products,
    exchanges="models",
    protocol="conjugate_distillation",
    exposure="unmeasured",
    limits=(),
):
    """Apply the operator to the direction, and send p·q for the step length (line 5).

    Attributes:
        models: the others' models of the direction.
    """

    round: int
    models: tuple[SharedModel, ...]

    def run(self, party: PartyView) -> Products:
        """p·q."""
        kept = party.trainer.memory
        q = kept["direction"] + _sum_of_predictions(party, self.models)
        kept.keep(q=q)
        _, ridge, kernel = _kernel_regression(party)
        values = (kept["p"] * q).sum(axis=0)
        return Products(
            party=party.name, round=self.round, values=values, ridge=ridge, kernel=kernel
        )


@message
class Solution(
    Task,
    reply_type=SharedModel,
    exchanges="models",
    protocol="conjugate_distillation",
    exposure="usual",
    limits=(),
):
    """Train on the final labels of conjugate gradients, and send the model (line 8)."""

    round: int

    def run(self, party: PartyView) -> SharedModel:
        """The agent's term of the sum."""
        party.trainer.fit_on_mixed_targets(self.round, party.trainer.memory["labels"], 0.0)
        return shared_model(party, self.round)


def _check_kernel(party: PartyView) -> None:
    """Raise ``InvalidInput`` unless the model is this library's kernel ridge regression, unwrapped."""
    model = getattr(party.trainer.learner, "model", None)
    if not (hasattr(model, "kernel") and hasattr(model, "regularization")):
        raise InvalidInput(
            "its model is no consilience.KernelRidge",
            where=f"party {party.name!r}",
            mend="Give it KernelRidge(…), without transformers in front; scikit-learn's does not say "
            "its λ times rows.",
        )


def _kernel_regression(party: PartyView) -> tuple[Array, float, str]:
    """Coefficients ``(n, n_outputs)``, λ times rows, and kernel description of a kernel ridge regression."""
    trained: Any = getattr(party.trainer.learner, "trained", None)
    names = ("kernel", "gamma", "degree", "coef0")
    kernel = ", ".join(f"{name}={getattr(trained, name)}" for name in names)
    coefficients = np.asarray(trained.dual_coef_, dtype=np.float64).reshape(
        party.trainer.labels.shape
    )
    return coefficients, float(trained.regularization_) * len(party.trainer.labels), kernel


def _sum_of_predictions(party: PartyView, models: tuple[SharedModel, ...]) -> Array:
    """Sum of the models' predictions for the party's private rows, shape ``(n, n_outputs)``."""
    predictions = (predict_private_with(party, model.about, model.data) for model in models)
    return np.asarray(sum(predictions, np.zeros(party.trainer.labels.shape)))
