"""Tasks of protocols that exchange parameters, and the messages that a party replies with.

:mod:`consilience.methods.parameters.flat_parameters` flattens parameters into one vector. The papers, their
pseudo-code and its legend are in the protocols of :mod:`consilience.methods.parameters`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.base import Reply, check_count, check_reach
from consilience.core.messages.message import message
from consilience.core.messages.replies import Receipt
from consilience.core.messages.schema import Agreement, TaskLike
from consilience.core.messages.sums import Weights, party_weights, weighted_sum
from consilience.core.party.trainer import Teaching
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_number
from consilience.methods.functional_boosting.losses import softmax
from consilience.methods.parameters.flat_parameters import (
    flatten,
    flatten_trainable,
    in_order,
    learner_of,
    load_flat,
    recall,
    remember,
    unflatten_trainable,
)

# --- what travels ---------------------------------------------------------------------------------------


@message
class Architecture(Reply, privacy="unbudgeted"):
    """Names, shapes and counts of the parameters of a party's model.

    Attributes:
        parts: name and shape of each parameter array, in the order of the flat vector.
        size: length of the flat vector.
        trained: number of trainable parameters, which come first in the flat vector.
        precision: ``"float32"`` or ``"float64"``.
        rows: number of training rows of the party; 1 if the task did not request it.
    """

    parts: tuple[str, ...]
    size: int
    trained: int = 0
    precision: str = "float32"
    rows: int = 1

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless there are parameters, and counts and precision are valid."""
        if self.size < 1:
            raise KnowledgeRefused("its model has no parameters", where=self.party)
        if not 0 <= self.trained <= self.size:
            raise KnowledgeRefused("counts that cannot be", where=self.party)
        check_count(self.rows, where=self.party)
        if self.precision not in ("float32", "float64"):
            raise KnowledgeRefused(f"numbers of precision {self.precision!r}", where=self.party)


@message
class Parameters(Reply, privacy="unbudgeted", lossy={"values": "numbers"}):
    """All parameters of a party's model as a flat vector, and its number of training rows.

    Attributes:
        values: the parameters, shape ``(size,)``.
        rows: number of training rows n_k.
    """

    values: Array
    rows: int

    @classmethod
    def of(cls, party: PartyView, round: int) -> Parameters:
        """Make the message with the current parameters of a party's model."""
        values = flatten(learner_of(party))
        return cls(party=party.name, round=round, values=values, rows=party.trainer.rows.train_rows)

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the parameters are finite and match the requested size."""
        size = getattr(task, "size", len(self.values))
        check_line("parameters", self.values, size, where=self.party)
        check_count(self.rows, where=self.party)


@message
class ControlledParameters(Reply, privacy="unbudgeted", lossy={"values": "numbers"}):
    """Parameters after training, and the change of the control variate.

    Attributes:
        values: y_i, shape ``(size,)``.
        change: c_i⁺ − c_i, shape ``(trained,)``.
        rows: number of training rows of the party.
    """

    values: Array
    change: Array
    rows: int

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless both vectors are finite and match the requested sizes."""
        assert isinstance(task, TrainControlled)
        check_line("parameters", self.values, task.size, where=self.party)
        check_count(self.rows, where=self.party)
        check_line("changes", self.change, len(task.control), where=self.party)


def check_line(what: str, values: Array, size: int, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` unless values are a floating-point vector of ``size`` bounded numbers.

    Args:
        what: the noun for the error.
        values: the received numbers.
        size: expected length.
        where: the party, for the error.
    """
    if values.dtype not in (np.float32, np.float64) or values.shape != (size,):
        got = f"{values.dtype} of shape {values.shape}"
        raise KnowledgeRefused(f"{what} are {got}, expected {(size,)}", where=where)
    if not np.isfinite(values).all():
        raise KnowledgeRefused(f"{what} are NaN or infinite", where=where)
    check_reach(what, values, where=where)


# --- tasks of all protocols -----------------------------------------------------------------------------


@message
class DescribeParameters(
    Task,
    reply_type=Architecture,
    exchanges="parameters",
    protocol=None,
    exposure="usual",
    limits=(),
):
    """Draw initial parameters, and send their names, shapes and counts.

    Attributes:
        plain_steps: require a model trained by plain gradient steps.
        counted: send the number of training rows.
    """

    round: int
    plain_steps: bool = False
    counted: bool = True

    @property
    def row_free(self) -> bool:
        """Whether the reply is independent of the private rows: true unless rows are counted."""
        return not self.counted

    def run(self, party: PartyView) -> Architecture:
        """Names, shapes and counts."""
        learner = learner_of(party)
        if self.plain_steps:
            learner.check_plain_steps()
        parts = in_order(learner)
        if getattr(getattr(learner, "recipe", None), "epochs", 1) == 0:
            raise InvalidInput(
                "its recipe trains for 0 epochs in a round",
                mend="Set epochs; first_epochs is for models that are trained alone.",
            )
        if not learner.trained_parameters():
            raise InvalidInput(
                "all parameters of its model are frozen",
                mend="Let some be trained: module.requires_grad_(True).",
            )
        return Architecture(
            party=party.name,
            round=self.round,
            parts=tuple(f"{name} {part.shape}" for name, part in parts.items()),
            size=sum(part.size for part in parts.values()),
            trained=sum(parts[name].size for name in learner.trained_parameters()),
            precision=str(np.result_type(*parts.values())),
            rows=party.trainer.rows.train_rows if self.counted else 1,
        )


@message
class SendParameters(
    Task, reply_type=Parameters, exchanges="parameters", protocol=None, exposure="usual", limits=()
):
    """Send the current parameters of the party's model."""

    round: int
    size: int

    @property
    def remembered(self) -> bool:
        """False, because the task changes no state and goes to one party only."""
        return False

    @property
    def drawn(self) -> bool:
        """Whether the parameters are the initial ones."""
        return self.round == 0

    def run(self, party: PartyView) -> Parameters:
        """Return all parameters as a flat vector."""
        return Parameters.of(party, self.round)


@message
class AdoptParameters(
    Task,
    reply_type=Receipt,
    exchanges="parameters",
    protocol=None,
    deferrable=True,
    lossy={"values": "numbers"},
    exposure="nothing",
    limits=(),
):
    """Load the server's parameters into the party's model."""

    round: int
    values: Array

    def run(self, party: PartyView) -> Receipt:
        """Load the parameters, and return a receipt."""
        load_flat(party, self.values)
        return Receipt(party=party.name, round=self.round)


@message
class TrainParameters(
    Task,
    reply_type=Parameters,
    exchanges="parameters",
    protocol=None,
    lossy={"values": "numbers"},
    exposure="usual",
    limits=(),
    summed="parameters",
):
    """Train on the party's private rows, and send the parameters.

    Attributes:
        size: number of parameters.
        values: initial parameters, shape ``(size,)``; ``None`` if every chosen party holds them already.
        strength: weight of the proximal term to the initial parameters.
    """

    round: int
    size: int
    values: Array | None = None
    strength: float = 0.0

    def __post_init__(self) -> None:
        check_number("strength", self.strength, at_least=0, where="TrainParameters")

    def entries(self, agreement: Agreement) -> int:
        """Count the numbers that a secure sum adds up: the parameters and their weight."""
        return self.size + 1

    def run(self, party: PartyView) -> Parameters:
        """The parameters after training."""
        load_flat(party, self.values)
        party.trainer.fit_corrected(self.round, strength=self.strength)
        return Parameters.of(party, self.round)


# --- SCAFFOLD -------------------------------------------------------------------------------------------


@message
class TrainControlled(
    Task,
    reply_type=ControlledParameters,
    exchanges="parameters",
    protocol="scaffold",
    exposure="usual",
    limits=(),
):
    """Lines 3 and 4 of :func:`~consilience.methods.parameters.scaffold.scaffold`.

    Attributes:
        size: number of parameters.
        control: c, shape ``(trained,)``.
        counted: round of each party's last accepted answer.
        values: x, shape ``(size,)``; ``None`` if every chosen party holds it already.
    """

    round: int
    size: int
    control: Array
    counted: Mapping[str, int]
    values: Array | None = None

    def run(self, party: PartyView) -> ControlledParameters:
        """y_i and c_i⁺ − c_i."""
        load_flat(party, self.values)
        learner = learner_of(party)
        own = recall(party, self.counted, len(self.control))
        before = flatten_trainable(learner)
        correction = unflatten_trainable(learner, self.control - own)
        steps = party.trainer.fit_corrected(self.round, correction=correction)  # line 3
        moved = (before - flatten_trainable(learner)).astype(np.float64)
        change = moved / (steps.count * steps.rate) - self.control  # line 4
        change = change.astype(before.dtype)  # as it is sent, so that both sides add the same
        remember(party, self.counted, self.round, own, own + change)
        return ControlledParameters(
            party=party.name,
            round=self.round,
            values=flatten(learner),
            change=change,
            rows=party.trainer.rows.train_rows,
        )


# --- FedDyn ---------------------------------------------------------------------------------------------


@message
class TrainDynamically(
    Task,
    reply_type=Parameters,
    exchanges="parameters",
    protocol="federated_dynamics",
    exposure="usual",
    limits=(),
):
    """Lines 3 and 4 of :func:`~consilience.methods.parameters.federated_dynamics.federated_dynamics`.

    Attributes:
        size: number of parameters.
        strength: α.
        counted: round of each party's last accepted answer.
        mean_rows: n / m if parties are weighted by their rows; ``None`` for equal weights.
        values: θ^{t−1}, shape ``(size,)``; ``None`` if every chosen party holds it already.
    """

    round: int
    size: int
    strength: float
    counted: Mapping[str, int]
    mean_rows: float | None = None
    values: Array | None = None

    def __post_init__(self) -> None:
        check_number("strength", self.strength, above=0, where="TrainDynamically")
        check_number("mean_rows", self.mean_rows, above=0, optional=True, where="TrainDynamically")

    def run(self, party: PartyView) -> Parameters:
        """θ_k."""
        load_flat(party, self.values)
        learner = learner_of(party)
        before = flatten_trainable(learner).astype(np.float64)
        gradient = recall(party, self.counted, before.size)
        weight = 1.0 if self.mean_rows is None else party.trainer.rows.train_rows / self.mean_rows
        party.trainer.fit_corrected(  # line 3
            self.round,
            strength=self.strength / weight,
            correction=unflatten_trainable(learner, -gradient / weight),
        )
        after = gradient - self.strength * (flatten_trainable(learner) - before)  # line 4
        remember(party, self.counted, self.round, gradient, after)
        return Parameters.of(party, self.round)


# --- FedDF ----------------------------------------------------------------------------------------------


@message
class CheckFusion(
    Task,
    reply_type=Receipt,
    exchanges="parameters",
    protocol="federated_fusion",
    exposure="nothing",
    limits=(),
):
    """Check that the party's model supports distillation from given parameters."""

    round: int

    def run(self, party: PartyView) -> Receipt:
        """Raise ``InvalidInput`` if the model restarts in every fit, or its recipe distils for 0 epochs."""
        learner_of(party)
        if not party.trainer.learner.abilities.incremental:
            raise InvalidInput(
                "its model starts anew in every fit, and not from the average",
                mend="Give every party the same torch module, or take federated_averaging.",
            )
        if getattr(getattr(party.trainer.learner, "recipe", None), "distill_epochs", 1) == 0:
            raise InvalidInput(
                "its recipe distils for 0 epochs",
                mend="Set distill_epochs to 1 or more; without distillation it is federated_averaging.",
            )
        return Receipt(party=party.name, round=self.round)


@message
class FuseModels(
    Task,
    reply_type=Parameters,
    exchanges="parameters",
    protocol="federated_fusion",
    exposure="usual",
    limits=(),
):
    """Distil models into their average on the public rows, and send the result.

    Attributes:
        size: number of parameters of a model.
        trained: x^k of the chosen parties.
        weights: weighting of the parties in the average.
    """

    round: int
    size: int
    trained: tuple[Parameters, ...]
    weights: Weights

    def run(self, party: PartyView) -> Parameters:
        """x_t."""
        teacher = _teacher(party, self.trained)
        precision = flatten(learner_of(party)).dtype
        share = party_weights(self.trained, self.weights)
        mean = weighted_sum((one.values for one in self.trained), share)
        load_flat(party, mean.astype(precision))  # line 6
        # Lines 7 to 9; private rows have no weight.
        party.trainer.distill(Teaching(self.round, teacher, 0.0, chooses=False))
        return Parameters.of(party, self.round)


def _teacher(party: PartyView, models: tuple[Parameters, ...]) -> Array:
    """``σ(mean_k f(x^k))``, or the mean of values, on the public rows, shape ``(n_public, n_outputs)``."""
    values = party.rows.kind == "regression"
    total: Array | float = 0.0
    for model in models:
        load_flat(party, model.values)
        total = total + party.trainer.outputs("values" if values else "logits")
    mean = np.asarray(total / len(models))
    return mean if values else softmax(mean)
