"""What protocols that exchange parameters share: what travels, first parameters, means, a party's own state.

All parameters of a model travel in one line of numbers: those that training changes by gradients, by name,
then the others (buffers such as the running means of batch normalisation, and what is frozen), by name. Whole
numbers, such as counters, stay each party's own. Servers treat the first kind as their papers say, and take
the mean of the others.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, load_file

from consilience.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.messages.message import message
from consilience.messages.replies import (
    LARGEST,
    Agreement,
    Asked,
    Receipt,
    Replies,
    countable,
    within_reach,
)
from consilience.messages.sums import Weights
from consilience.protocols.base import RoundState
from consilience.tasks.base import Network, Task
from consilience.validation.arrays import Array

# --- what travels ---------------------------------------------------------------------------------------


@message
class Architecture:
    """What the parameters of a party's model are.

    Attributes:
        party: its name.
        round: the round of the task.
        parts: name and shape of each, in line.
        size: how many numbers there are in all.
        trained: how many of them, the first in line, training changes by gradients.
        precision: of the numbers, ``"float32"`` or ``"float64"``.
        rows: how many rows the party trains on.
    """

    party: str
    round: int
    parts: tuple[str, ...]
    size: int
    trained: int = 0
    precision: str = "float32"
    rows: int = 1

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the party speaks for itself, and has any."""
        if (self.party, self.round) != (party, task.round) or self.size < 1:
            raise KnowledgeRefused("speaks for another party or round, or of nothing", where=party)
        if not 0 <= self.trained <= self.size:
            raise KnowledgeRefused("counts that cannot be", where=party)
        countable(self.rows, where=party)
        if self.precision not in ("float32", "float64"):
            raise KnowledgeRefused(f"numbers of precision {self.precision!r}", where=party)


@message
class Parameters:
    """All parameters of a party's model in one line, and how many rows it trains on.

    Attributes:
        party: its name.
        round: the round of the task.
        values: shape ``(size,)``.
        rows: n_k.
    """

    party: str
    round: int
    values: Array
    rows: int

    def validate(self, *, party: str, task: Asked, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless they are finite and as many as were asked for."""
        if (self.party, self.round) != (party, task.round):
            raise KnowledgeRefused("speaks for another party or round", where=party)
        size = getattr(task, "size", len(self.values))
        check_line("parameters", self.values, size, where=party)
        countable(self.rows, where=party)


def check_line(what: str, values: Array, size: int, *, where: str) -> None:
    """Raise ``KnowledgeRefused`` unless ``values`` are ``size`` fractions in one line, none too large."""
    if values.dtype not in (np.float32, np.float64) or values.shape != (size,):
        got = f"{values.dtype} of shape {values.shape}"
        raise KnowledgeRefused(f"{what} are {got}, expected {(size,)}", where=where)
    if not np.isfinite(values).all():
        raise KnowledgeRefused(f"{what} are NaN or infinite", where=where)
    within_reach(what, values, where=where)


# --- the party's side -----------------------------------------------------------------------------------


@runtime_checkable
class Parametric(Protocol):
    """A learner whose parameters can be read, set and pulled at, as :class:`TorchLearner`'s can."""

    @property
    def fitted(self) -> bool:
        """Whether it has any."""

    def trained_parameters(self) -> frozenset[str]:
        """Names of those that training changes by gradients."""

    def start(self, X: Array, *, rng: np.random.Generator) -> None:
        """Draw first parameters."""

    def parameters(self) -> dict[str, Array]:
        """By name."""

    def set_parameters(self, values: Mapping[str, Array]) -> None:
        """In place of what :meth:`parameters` gives."""

    def fit_corrected(self, X: Array, targets: Array, **how: Any) -> Any:
        """Train with changed gradients: see :class:`consilience.learners.GradientCorrection`."""

    def check_plain_steps(self) -> None:
        """Raise ``InvalidInput`` unless training makes plain gradient steps."""


@message
class DescribeParameters(Task, reply_type=Architecture, exchanges="parameters", protocol=None):
    """Draw first parameters, and say what they are.

    Attributes:
        plain_steps: whether the protocol needs plain gradient steps.
    """

    round: int
    plain_steps: bool = False

    def run(self, party: Any) -> Architecture:
        """Names, shapes and counts."""
        learner = learner_of(party)
        if self.plain_steps:
            learner.check_plain_steps()
        parts = _in_line(learner)
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
            rows=party.train_rows,
        )


@message
class SendParameters(Task, reply_type=Parameters, exchanges="parameters", protocol=None):
    """Send your parameters as they are."""

    round: int
    size: int

    def run(self, party: Any) -> Parameters:
        """All of them, in one line."""
        values = line_of(learner_of(party))
        return Parameters(party=party.name, round=self.round, values=values, rows=party.train_rows)


@message
class AdoptParameters(
    Task, reply_type=Receipt, exchanges="parameters", protocol=None, deferrable=True
):
    """Take these parameters for your own."""

    round: int
    values: Array

    def run(self, party: Any) -> Receipt:
        """The model is then the server's."""
        adopt(party, self.values)
        return Receipt(party=party.name, round=self.round)


@message
class TrainParameters(Task, reply_type=Parameters, exchanges="parameters", protocol=None):
    """Train on your private rows, and send your parameters.

    Attributes:
        size: how many numbers they are.
        values: what to start from; ``None`` where every party that is asked holds it already.
        strength: how strongly training is pulled back to where it starts.
    """

    round: int
    size: int
    values: Array | None = None
    strength: float = 0.0

    def __post_init__(self) -> None:
        check_number("strength", self.strength, least=0, where="TrainParameters")

    def run(self, party: Any) -> Parameters:
        """The parameters after training."""
        adopt(party, self.values)
        party.fit_corrected(self.round, strength=self.strength)
        return SendParameters(round=self.round, size=self.size).run(party)


def learner_of(party: Any) -> Parametric:
    """The party's learner, its first parameters drawn.

    Raises:
        InvalidInput: it has no parameters.
    """
    learner = party.learner
    if not isinstance(learner, Parametric):
        raise InvalidInput(
            "its model has no parameters to average",
            mend="Give every party the same torch module, or take averaged_distillation.",
        )
    if not learner.fitted:
        learner.start(party.X, rng=party.stream(0, "parameters"))
    return learner


def line_of(learner: Parametric) -> Array:
    """All parameters in one line, shape ``(size,)``."""
    return np.concatenate([part.ravel() for part in _in_line(learner).values()])


def adopt(party: Any, values: Array | None) -> None:
    """Have the party's model take a line of parameters; nothing happens where it is ``None``."""
    learner = learner_of(party)
    if values is not None:
        party.adopt(_by_name(_in_line(learner), values))


def trained_of(learner: Parametric) -> Array:
    """The part of :func:`line_of` that training changes, shape ``(trained,)``."""
    parts, trained = _in_line(learner), learner.trained_parameters()
    return np.concatenate([part.ravel() for name, part in parts.items() if name in trained])


def trained_by_name(learner: Parametric, values: Array) -> dict[str, Array]:
    """One number for every one that training changes, ``(trained,)``, as arrays by name."""
    parts, trained = _in_line(learner), learner.trained_parameters()
    return _by_name({name: part for name, part in parts.items() if name in trained}, values)


def _in_line(learner: Parametric) -> dict[str, Array]:
    """The parameters by name, in the order in which they travel."""
    parts, trained = learner.parameters(), learner.trained_parameters()
    return {
        name: parts[name] for name in sorted(parts, key=lambda name: (name not in trained, name))
    }


def _by_name(parts: Mapping[str, Array], values: Array) -> dict[str, Array]:
    """One line of numbers in the shapes of these parts, in their order."""
    sizes = [part.size for part in parts.values()]
    if values.shape != (sum(sizes),):
        raise InvalidInput(f"{values.shape} parameters for a model that has {sum(sizes)}")
    pieces = np.split(values, np.cumsum(sizes)[:-1])
    return {
        name: piece.reshape(part.shape)
        for (name, part), piece in zip(parts.items(), pieces, strict=True)
    }


def recall(party: Any, counted: Mapping[str, int], size: int) -> Array:
    """What the party remembers of its last answer that counted, shape ``(size,)``; 0 before the first.

    An answer that came late, or was refused, is not in the server's sums, and must not be in the party's own
    state either; the server says which was the last one that is.

    Args:
        party: whose memory is read.
        counted: party to the round of its last answer that counted.
        size: how many numbers they are.

    Raises:
        RunFailed: the party does not remember that round.
    """
    last = counted.get(party.name, 0)
    if last == 0:
        return np.zeros(size)
    for kept in ("proposed", "own"):
        if int(party.memory.get(f"{kept}_in", -1)) == last:
            return np.asarray(party.memory[kept])
    raise RunFailed(
        f"it does not remember round {last}, in which its answer counted",
        where=f"party {party.name!r}",
        mend="Start it with the state that it saved.",
    )


def remember(party: Any, counted: Mapping[str, int], round: int, own: Array, new: Array) -> None:
    """Keep what :func:`recall` gave, and what takes its place if the answer of this round counts."""
    party.memory = {
        "own": own,
        "own_in": np.array(counted.get(party.name, 0)),
        "proposed": new,
        "proposed_in": np.array(round),
    }


# --- the server's side ----------------------------------------------------------------------------------


def begin(network: Network, *, initial: Any, where: str, plain_steps: bool = False) -> RoundState:
    """Round 0: all parties are sent the first parameters.

    ``state.memory`` then holds ``parameters``, shape ``(size,)``; ``holders``, who has them; ``trained``, how
    many numbers training changes; ``rows``, how many rows all parties train on.

    Args:
        network: the parties.
        initial: a model to start from (:func:`named_parameters`); by default the first party by name draws.
        where: the protocol, for errors.
        plain_steps: whether the protocol needs plain gradient steps.

    Raises:
        InvalidInput: a party's model has no parameters, or other ones than the first party's or ``initial``,
            or is not trained by plain steps where it should be.
    """
    described = network.require(DescribeParameters(round=0, plain_steps=plain_steps))
    first = _alike(described, where)
    if initial is None:
        drawn = network.ask(SendParameters(round=0, size=first.size), to=[first.party])
        values = drawn.of(Parameters)[0].values.astype(first.precision)
    else:
        values = _fitting(named_parameters(initial, where=where), first, where)
    rows = sum(one.rows for one in described.of(Architecture))
    return send(network, 0, values, {"trained": first.trained, "rows": rows}, where=where)


def send(
    network: Network, round: int, values: Array, memory: Mapping[str, Any], *, where: str
) -> RoundState:
    """The state after all parties have been sent new parameters: these, and who holds them.

    Args:
        network: the parties.
        round: the round that ends.
        values: shape ``(size,)``.
        memory: what else the server remembers.
        where: the protocol, for errors.

    Raises:
        RunFailed: the parameters are NaN, or beyond :data:`~consilience.messages.replies.LARGEST`.
    """
    if not np.abs(values).max() <= LARGEST:  # nor is NaN
        raise RunFailed(
            f"the server's parameters are NaN, or beyond {LARGEST:g}, after round {round}",
            where=where,
            mend="Lower the parties' learning_rate or the server's, or raise the strength.",
        )
    holders = network.ask(AdoptParameters(round=round, values=values)).parties
    return RoundState(round=round, memory={**memory, "parameters": values, "holders": holders})


def missed(state: RoundState, chosen: Sequence[str]) -> Array | None:
    """The parameters, where one of the chosen parties does not have them; else ``None``."""
    held: Sequence[str] = state.memory["holders"]
    return None if set(chosen) <= set(held) else np.asarray(state.memory["parameters"])


def average(replies: Replies, weights: Weights, precision: Any) -> Array:
    """The mean of the parties' parameters, in the precision agreed on, whatever a party may have sent.

    Args:
        replies: of type :class:`Parameters`.
        weights: how much each party counts.
        precision: the dtype of the mean.
    """
    return replies.sum(Parameters, weights=weights, over=None).values.astype(precision)


def check_weights(weights: str, *, where: str) -> None:
    """Raise ``InvalidInput`` on another weighting than :data:`Weights`."""
    if weights not in ("rows", "uniform"):
        raise InvalidInput(f"weights is {weights!r}", where=where, mend='Known: "rows", "uniform".')


def check_number(
    name: str, value: float, *, where: str, above: float | None = None, least: float | None = None,
    below: float = math.inf,
) -> None:  # fmt: skip
    """Raise ``InvalidInput`` unless an option is a number within its bounds."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if (
        number
        and value < below
        and (above is None or value > above)
        and (least is None or value >= least)
    ):
        return
    said = f"above {above:g}" if above is not None else f"of {least:g} or more"
    said += f" and below {below:g}" if below < math.inf else ", and finite"
    raise InvalidInput(f"{name} is {value!r}", where=where, mend=f"Give a number {said}.")


def named_parameters(model: Any, *, where: str) -> dict[str, Array]:
    """The parameters of a model by name, to start from.

    Args:
        model: a trained learner such as those of ``history.models``, a distilled Boosted among them, or
            what ``ensemble.distilled(…)`` gives; a ``torch.nn.Module``; names and arrays; or the path of
            a safetensors file that holds them, such as a model file in a run folder.
        where: the protocol, for errors.

    Raises:
        InvalidInput: it has no parameters, or the file cannot be read.
    """
    source = getattr(model, "learner", model)
    parts: Mapping[str, Any]
    try:
        source = getattr(source, "student", source)  # of a boosted sum that is one model
    except InvalidInput as error:
        raise InvalidInput(f"initial: {error.what}", where=where, mend=error.mend) from error
    if isinstance(source, str | os.PathLike):
        try:
            parts = load_file(source)
            if parts.keys() == {"0", "weights"} and parts["weights"].tolist() == [1.0]:
                parts = load(parts["0"].tobytes())  # a boosted sum of one model, as it is saved
        except (OSError, SafetensorError, TypeError, KeyError) as error:
            raise InvalidInput(
                f"initial: {os.fspath(source)} cannot be read ({error})",
                where=where,
                mend="Give a safetensors file of parameters in float32 or float64.",
            ) from error
    elif isinstance(source, Mapping):
        parts = source
    elif isinstance(source, Parametric):
        try:
            parts = source.parameters()
        except InvalidInput as error:
            raise InvalidInput(f"initial: {error.what}", where=where, mend=error.mend) from error
    elif hasattr(source, "state_dict"):
        parts = {}
        for name, part in source.state_dict(keep_vars=True).items():
            if not any(part is other for other in parts.values()):  # what layers share, once
                parts[name] = part
    else:
        raise InvalidInput(
            f"initial is of type {type(model).__name__}, which has no parameters",
            where=where,
            mend="Give a model of the parties' architecture; another can be distilled into one first.",
        )
    arrays = {str(name): _array(part) for name, part in parts.items()}
    return {name: part for name, part in arrays.items() if part.dtype.kind == "f"}


def _array(part: Any) -> Array:
    """An array or a tensor as an array; tensors of fractions in double precision."""
    if not hasattr(part, "detach"):
        return np.asarray(part)
    tensor = part.detach().cpu()
    return np.asarray(tensor.double() if tensor.is_floating_point() else tensor)


def _fitting(parts: Mapping[str, Array], architecture: Architecture, where: str) -> Array:
    """Given parameters in line, if they are those of the architecture."""
    given = {f"{name} {part.shape}": part for name, part in parts.items()}
    for what, extra in (
        ("lacks", sorted(set(architecture.parts) - set(given))),
        ("has beside", sorted(set(given) - set(architecture.parts))),
    ):
        if extra:
            raise InvalidInput(
                f"initial {what} {', '.join(extra[:3])}: {architecture.party!r} has another architecture",
                where=where,
                mend="Give a model of the parties' architecture.",
            )
    if not all(np.isfinite(part).all() for part in parts.values()):
        raise InvalidInput("initial holds NaN or infinite parameters", where=where)
    return np.concatenate([given[part].ravel() for part in architecture.parts]).astype(
        architecture.precision
    )


def _alike(replies: Replies, where: str) -> Architecture:
    """The first party's architecture, which must be everybody's."""
    first, *others = replies.of(Architecture)
    for other in others:
        here, there = (
            ", ".join(sorted(set(one.parts) - set(two.parts))[:3]) or "nothing else"
            for one, two in ((first, other), (other, first))
        )
        if here == there:  # nothing: the same names and shapes
            if (other.parts, other.trained, other.precision) == (
                first.parts,
                first.trained,
                first.precision,
            ):
                continue
            here, there = (
                f"{one.trained} trained numbers in {one.precision}" for one in (first, other)
            )
        raise InvalidInput(
            f"parameters differ: {first.party!r} has {here}; {other.party!r} has {there}",
            where=where,
            mend="Averaging needs one architecture; averaged_distillation works with any models.",
        )
    return first
