"""Tasks of functional gradient boosting, and the messages that travel.

The party's half of :mod:`consilience.methods.functional_boosting.protocol`, where the paper, the
legend and the deviations are.
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
    """A change of f: a factor on its terms, then new terms, of which some are left out.

    Attributes:
        since: the round whose function is changed; -1 to start from 0.
        factor: on the old terms.
        models: the new terms' weak learners.
        weights: their weights, shape ``(n_models,)``.
        kept: which terms stay, by their positions among the old ones and then the new ones.
    """

    since: int
    factor: float
    models: tuple[SharedModel, ...]
    weights: Array
    kept: Array

    @classmethod
    def to(cls, models: tuple[SharedModel, ...], weights: Array) -> Change:
        """The change from 0 to the sum of these models, all of which stay."""
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
    """A party's objective: its value, and the loss and weak learners that it is made of.

    Attributes:
        loss: the name of its loss.
        smoothness: of the loss; infinite where it has none.
        packages: what has to be trusted to use its weak learners.
        value: ``R_i[f] + μ/2 ‖f‖²``; infinite, and refused, where it cannot be computed any more.
        notes: for the ledger.
    """

    loss: str
    smoothness: float
    packages: tuple[str, ...]
    value: float
    notes: tuple[str, ...] = ()

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless the party speaks for itself, of a finite number."""
        if not math.isfinite(self.value) or not self.smoothness > 0:
            raise KnowledgeRefused(f"its objective is {self.value}", where=self.party)


@message
class WeakLearners(Reply, privacy="unbudgeted"):
    """The result of a party's K steps.

    Attributes:
        models: h¹ … h^K; fewer where the objective grew beyond all bounds.
        value: the objective at g^{K+1}.
    """

    models: tuple[SharedModel, ...]
    value: float

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless they are the party's, as many as were asked for, and usable."""
        if not math.isfinite(self.value):
            raise KnowledgeRefused(f"its objective is {self.value}", where=self.party)
        limit, steps = getattr(task, "limit", math.inf), len(getattr(task, "step_sizes", ()))
        if self.value <= limit and len(self.models) != steps:
            raise KnowledgeRefused(f"{len(self.models)} weak learners of {steps}", where=self.party)
        for model in self.models:
            _check_model(model, self.party, task, agreement)


@message
class Student(Reply, privacy="unbudgeted"):
    """A weak learner that stands for a sum of them."""

    model: SharedModel

    def check(self, task: TaskLike, agreement: Agreement | None) -> None:
        """Raise ``KnowledgeRefused`` unless it is the party's, and usable."""
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
    """Raise ``KnowledgeRefused`` on a packed model that is no regressor of so many outputs.

    It is built to find out, but asked nothing. Where packages outside of :data:`TRUSTED` are among those
    agreed on, which nobody here has said to trust, only the description is looked at.

    Args:
        model: as it arrived.
        n_outputs: how many there should be.
        packages: those that were agreed on; models of others are refused.
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
    """Start from ``f = 0``, and say whether your weak learners can be sent.

    Attributes:
        ridge: μ.
        warm_start: whether students go on from the last one.
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
    """Say whether you accept weak learners of these packages."""

    round: int
    packages: tuple[str, ...]

    def run(self, party: PartyView) -> Receipt:
        """Fails where it does not: the party, or its learner, which reads what it has saved."""
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
    """Take K steps on your own rows, and send the weak learners.

    Attributes:
        step_sizes: η^{1,t} … η^{K,t}.
        ridge: μ.
        residual: whether Δ is kept.
        limit: of the objective: beyond it no further step is taken.
        packages: whose weak learners were agreed on.
        missed: f^t, where the party does not hold it.
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
        change: from f^t to f^{t+1}.
        warm_start: whether it goes on from the last student.
        packages: whose weak learners were agreed on.
        missed: f^t, where the party does not hold it.
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
    """Take f^{t+1} for your model.

    Attributes:
        change: to it.
        ridge: μ.
    """

    round: int
    change: Change
    ridge: float

    def run(self, party: PartyView) -> Objective:
        """The objective at f^{t+1}, and a note where f = 0 was better."""
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
    """The party's learner, which holds the function of that round."""
    if int(party.trainer.memory.get("round", np.array(-1))) != round:
        raise InvalidInput(f"it does not hold the function of round {round}")
    return _learner(party)


def _change(party: PartyView, change: Change, round: int) -> None:
    """Make f the function of a round, and keep its values at the party's own rows."""
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
