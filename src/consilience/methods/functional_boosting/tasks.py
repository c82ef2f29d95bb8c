"""Tasks and messages of functional gradient boosting.

This is the party's side of :mod:`consilience.methods.functional_boosting.protocol`; see there for the paper,
the legend and the deviations.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.base import Reply
from consilience.core.messages.message import message
from consilience.core.messages.replies import Receipt, SharedModel
from consilience.core.messages.schema import Agreement, TaskLike
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.validation.arrays import Array
from consilience.methods.functional_boosting.boosted import Boosted
from consilience.methods.functional_boosting.weighted_ensemble import WeightedEnsemble
from consilience.methods.model_exchange.party import check_sharing, trusted_by
from consilience.methods.model_exchange.tasks import shared_model
from consilience.models.files.transfer import TRUSTED, unpack

Function = WeightedEnsemble
"""f, a weighted sum of weak learners."""


# --- what travels ---------------------------------------------------------------------------------


@message
class Change:
    """A change of f: a factor for the old terms, new terms, and the selection of the terms to keep.

    Attributes:
        since: round of the function to change; -1 to start from 0.
        factor: factor for the old terms.
        models: weak learners of the new terms.
        weights: weights of the new terms, shape ``(n_models,)``.
        kept: positions of the terms to keep, in the order of the old terms and then the new terms.
    """

    since: int
    factor: float
    models: tuple[SharedModel, ...]
    weights: Array
    kept: Array

    @classmethod
    def to(cls, models: tuple[SharedModel, ...], weights: Array) -> Change:
        """The change from 0 to the weighted sum of these models, keeping all terms."""
        kept = np.arange(len(weights))
        return cls(since=-1, factor=0.0, models=models, weights=weights, kept=kept)

    def new_terms(self, trusted: Sequence[str] = TRUSTED) -> Function:
        """The sum of the new terms.

        Raises:
            InvalidInput: there are none.
        """
        return Function(self.models, self.weights, trusted=trusted)


@message
class Objective(Reply, privacy="unbudgeted"):
    """A party's objective: its value, its loss, and the packages of its weak learners.

    Attributes:
        loss: name of the loss.
        smoothness: smoothness constant of the loss; infinite if it has none.
        packages: packages that others have to trust to use the party's weak learners.
        value: ``R_i[f] + μ/2 ‖f‖²``; infinite if it cannot be computed, and then refused.
        notes: warnings for the ledger.
    """

    loss: str
    smoothness: float
    packages: tuple[str, ...]
    value: float
    notes: tuple[str, ...] = ()

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the objective is finite and the smoothness positive."""
        if not math.isfinite(self.value) or not self.smoothness > 0:
            raise KnowledgeRefused(f"its objective is {self.value}", where=self.party)


@message
class WeakLearners(Reply, privacy="unbudgeted"):
    """The result of a party's K steps.

    Attributes:
        models: h¹ … h^K; fewer if the objective exceeded the limit.
        value: the objective at g^{K+1}.
    """

    models: tuple[SharedModel, ...]
    value: float

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless these are the party's, usable, and as many as requested."""
        if not math.isfinite(self.value):
            raise KnowledgeRefused(f"its objective is {self.value}", where=self.party)
        limit, steps = getattr(task, "limit", math.inf), len(getattr(task, "step_sizes", ()))
        if self.value <= limit and len(self.models) != steps:
            raise KnowledgeRefused(f"{len(self.models)} weak learners of {steps}", where=self.party)
        for model in self.models:
            _check_model(model, self.party, task, agreement)


@message
class Student(Reply, privacy="unbudgeted"):
    """A weak learner distilled from a sum of weak learners."""

    model: SharedModel

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the student is the party's, and usable."""
        _check_model(self.model, self.party, task, agreement)


def _check_model(
    model: SharedModel, party: str, task: TaskLike, agreement: Agreement | None
) -> None:
    assert agreement is not None
    model.validate(party=party, task=task, agreement=agreement)
    packages = getattr(task, "packages", ())
    try:
        _check_regressor(model, n_outputs=agreement.outputs, packages=packages)
    except KnowledgeRefused as refusal:
        raise KnowledgeRefused(refusal.what, where=party) from refusal


def _check_regressor(model: SharedModel, *, n_outputs: int, packages: Sequence[str]) -> None:
    """Raise ``KnowledgeRefused`` unless a packed model is a regressor with the expected outputs.

    The model is built for this check but makes no predictions. If the agreed packages include one outside of
    :data:`TRUSTED`, the coordinator does not build the model and checks only its description.

    Args:
        model: the packed model, as received.
        n_outputs: expected number of outputs.
        packages: agreed packages; models from other packages are refused.
    """
    try:
        about = json.loads(model.about)
        package = str(about["model"]).partition(":")[0].partition(".")[0]
        said = (about["kind"], int(about["outputs"]))
    except (ValueError, KeyError, TypeError) as error:
        raise KnowledgeRefused("a model that does not say what it is") from error
    if package not in packages:
        raise KnowledgeRefused(f"a model of {package!r}, which was not agreed on")
    if said != ("regression", n_outputs):
        raise KnowledgeRefused(
            f"a model for {said[0]} with {said[1]} outputs, expected regression with {n_outputs}"
        )
    if set(packages) <= set(TRUSTED):
        unpack(model.about, model.data)


@message
class StartFunction(
    Task,
    reply_type=Objective,
    exchanges="models",
    protocol="functional_gradient_boosting",
    exposure="usual",
    limits=(),
):
    """Start from ``f = 0``, and check that the party's weak learners can be sent.

    Attributes:
        ridge: μ.
        warm_start: start each student from the last one.
    """

    round: int
    ridge: float
    warm_start: bool = False

    def run(self, party: PartyView) -> Objective:
        """The objective at 0."""
        learner = _learner(party)
        check_sharing(party, learner.weak)
        if self.warm_start and not learner.weak.abilities.incremental:
            raise InvalidInput(
                "its weak learner starts anew in every fit",
                mend="warm_start is for networks: leave it out.",
            )
        learner.start()
        party.trainer.model_changed()
        shape = party.trainer.labels.shape
        party.trainer.memory.replace({"f": np.zeros(shape), "round": np.array(self.round)})
        begun = _objective(party, self.round, self.ridge)
        if not math.isfinite(begun.value):
            raise InvalidInput(
                "the objective of f = 0 is infinite", mend="Scale the targets, or look at the loss."
            )
        party.trainer.memory.keep(begun=np.array(begun.value))
        return begun


@message
class CheckTrust(
    Task,
    reply_type=Receipt,
    exchanges="models",
    protocol="functional_gradient_boosting",
    exposure="nothing",
    limits=(),
):
    """Check that the party accepts weak learners from these packages."""

    round: int
    packages: tuple[str, ...]

    def run(self, party: PartyView) -> Receipt:
        """Raise ``InvalidInput`` unless the party and its learner, which reads saved sums, trust them."""
        for package in self.packages:
            if package not in trusted_by(party) or package not in _learner(party).trusts:
                raise InvalidInput(
                    f"it would be sent weak learners of {package!r}, which it does not trust",
                    where=f"party {party.name!r}",
                    mend="Name the package in trusts = …, that of the party and that of its Boosted, or take "
                    "other weak learners.",
                )
        return Receipt(party=party.name, round=self.round)


@message
class Descend(
    Task,
    reply_type=WeakLearners,
    exchanges="models",
    protocol="functional_gradient_boosting",
    exposure="usual",
    limits=(),
):
    """Take K steps on the party's training rows, and send the weak learners.

    Attributes:
        step_sizes: η^{1,t} … η^{K,t}.
        ridge: μ.
        residual: use the residual Δ.
        limit: limit of the objective; the party stops when the objective exceeds it.
        packages: agreed packages of weak learners.
        missed: f^t, if the party does not hold it.
    """

    round: int
    step_sizes: tuple[float, ...]
    ridge: float
    residual: bool
    limit: float
    packages: tuple[str, ...]
    missed: Change | None = None

    def run(self, party: PartyView) -> WeakLearners:
        """Algorithm 2."""
        if self.missed is not None:
            _change(party, self.missed, self.round - 1)
        learner = _held(party, self.round - 1)
        X, targets = party.trainer.rows.train
        found, g = learner.descend(
            X,
            targets,
            party.trainer.memory["f"],
            step_sizes=self.step_sizes,
            ridge=self.ridge,
            residual=self.residual,
            limit=self.limit,
            rng=party.trainer.rows.stream(self.round, "fit"),
        )
        value = learner.objective(g, targets, self.ridge)
        return WeakLearners(
            party=party.name,
            round=self.round,
            models=tuple(shared_model(party, self.round, one) for one in found),
            value=math.inf if math.isnan(value) else value,
        )


@message
class DistillFunction(
    Task,
    reply_type=Student,
    exchanges="models",
    protocol="functional_gradient_boosting",
    exposure="usual",
    limits=(),
):
    """Fit one weak learner to f^{t+1} on the public rows, and send it.

    Attributes:
        change: change from f^t to f^{t+1}.
        warm_start: start from the last student.
        packages: agreed packages of weak learners.
        missed: f^t, if the party does not hold it.
    """

    round: int
    change: Change
    warm_start: bool
    packages: tuple[str, ...]
    missed: Change | None = None

    def run(self, party: PartyView) -> Student:
        """Equation 17."""
        if self.missed is not None:
            _change(party, self.missed, self.round - 1)
        learner = _held(party, self.round - 1)
        X = party.trainer.public.X
        new = self.change.new_terms(trusted_by(party))
        values = self.change.factor * learner.values(X) + new.predict(X)
        rng = party.trainer.rows.stream(self.round, "distill")
        warm = self.warm_start and learner.ensemble is not None
        student = learner.approximated(X, values, rng=rng, warm_start=warm)
        model = shared_model(party, self.round, student)
        return Student(party=party.name, round=self.round, model=model)


@message
class ChangeFunction(
    Task,
    reply_type=Objective,
    exchanges="models",
    protocol="functional_gradient_boosting",
    exposure="unmeasured",
    limits=(),
):
    """Set the party's model to f^{t+1}.

    Attributes:
        change: change from the party's function to f^{t+1}.
        ridge: μ.
    """

    round: int
    change: Change
    ridge: float

    def run(self, party: PartyView) -> Objective:
        """The objective at f^{t+1}, and a note if f = 0 was better."""
        _change(party, self.change, self.round)
        found = _objective(party, self.round, self.ridge)
        begun = float(party.trainer.memory["begun"])
        if found.value <= begun:
            return found
        note = f"its objective is {found.value:.3g}, and was {begun:.3g} at f = 0: take a smaller step_size"
        return replace(found, notes=(note,))


# --- the party's side -----------------------------------------------------------------------------


def _learner(party: PartyView) -> Boosted:
    learner = party.trainer.learner
    if not isinstance(learner, Boosted):
        raise InvalidInput(
            "its model is no sum of weak learners",
            where=f"party {party.name!r}",
            mend='Give every party Boosted(…), in a configuration { name = "boosted", weak = … }.',
        )
    return learner


def _held(party: PartyView, round: int) -> Boosted:
    """Return the party's learner; raise ``InvalidInput`` unless it holds the function of that round."""
    if int(party.trainer.memory.get("round", np.array(-1))) != round:
        raise InvalidInput(f"it does not hold the function of round {round}")
    return _learner(party)


def _change(party: PartyView, change: Change, round: int) -> None:
    """Set f to the function of a round, and store its values at the party's training rows."""
    X, targets = party.trainer.rows.train
    if change.since < 0:
        ensemble, f = None, np.zeros(targets.shape)
        learner = _learner(party)
    else:
        learner = _held(party, change.since)
        ensemble, f = learner.ensemble, party.trainer.memory["f"]
    new = change.new_terms(trusted_by(party))
    said = new.predict(X)
    if said.shape != targets.shape:
        raise KnowledgeRefused(f"weak learners that answer {said.shape}, expected {targets.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        f = change.factor * f + said
    every = new if ensemble is None else ensemble.scaled(change.factor).plus(new)
    learner.start()
    learner.ensemble = every.taken(change.kept)
    party.trainer.memory.keep(f=f, round=np.array(round))
    party.trainer.model_changed()


def _objective(party: PartyView, round: int, ridge: float) -> Objective:
    learner = _learner(party)
    value = learner.objective(party.trainer.memory["f"], party.trainer.labels, ridge)
    return Objective(
        party=party.name,
        round=round,
        loss=learner.loss.name,
        smoothness=learner.loss.smoothness,
        packages=learner.packages,
        value=math.inf if math.isnan(value) else value,
    )
