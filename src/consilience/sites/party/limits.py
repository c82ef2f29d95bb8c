"""Limits of a party on the requests it answers, independent of the coordinator's settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, PlainValidator

from consilience.core.errors import InvalidInput, KnowledgeRefused, nearest
from consilience.core.messages.message import TaskGroup, registered_tasks
from consilience.core.messages.replies import Metrics
from consilience.core.numerics.coarse_ratios import Coarseness
from consilience.core.numerics.randomness import NoiseSource, SystemNoise
from consilience.core.party.party import Party
from consilience.core.tasks.base import Task, task_types
from consilience.core.tasks.fields import within
from consilience.core.validation.arguments import check_arguments
from consilience.lab.config.sections import Flag, Number, Whole
from consilience.privacy.accounting.party import protect
from consilience.sites.party.privacy_limits import PrivacyLimits

GROUPS = get_args(TaskGroup)
"""What a party may allow; tasks say which of them they come with. With ``"predictions"`` leave: what the
model says of the public rows, scores of them, counts of rows, metrics on test rows, names of classes. With
``"parameters"``: the numbers of a network; with ``"models"``: whole models; with ``"others"``: whatever
protocols send that are not part of this package, their code having been installed at the party."""


def _coarseness(value: Any) -> Coarseness | Literal["exact"] | None:
    """The settings that a table gives.

    Raises:
        InvalidInput: it is no table, or holds unknown or unsafe settings.
    """
    if isinstance(value, Mapping):
        check_arguments(Coarseness, value, where="density_ratios")
        return Coarseness(**value)
    if value is None or isinstance(value, Coarseness):
        return value
    if value == "exact":
        return "exact"
    raise InvalidInput(
        f"it should be a table, not {value!r}",
        mend="Write [limits.density_ratios]; left empty, it has the usual settings.",
    )


def _ordered(quantile: tuple[float, float]) -> tuple[float, float]:
    """The quantiles, unless no question could lie between them."""
    low, high = quantile
    if not 0 <= low <= high <= 1:
        raise ValueError(f"{low:g} to {high:g} is no range of shares; write [0.05, 0.5]")
    return quantile


_REFUSED_SETS = 10
"""Sets of sent public rows that a party refuses in all, since each refusal reveals a little of its rows."""


class Limits(PrivacyLimits):
    """Limits of a party on the requests it answers; other requests are refused before any task runs.

    The limits on privacy are in :class:`.PrivacyLimits`.

    Attributes:
        allow: groups of tasks, from :data:`GROUPS`, or names of tasks.
        rounds: maximum number of rounds over the party's lifetime, including round 0 and the rounds of
            restarted runs; ``None`` for no limit.
        requests: maximum number of requests that the party answers in a round, including failed ones. A
            request repeated because its answer was lost does not count. The same number limits how often the
            party joins, or goes back to an earlier round, between two rounds. With ``None`` there is no
            limit, and a coordinator can send all requests in one round.
        protocols: protocols whose special tasks are accepted; ``None`` for all protocols that ``allow``
            covers.
        federation: name of the only federation that the party takes part in, as the transport gives it;
            ``None`` for any.
        classes: maximum number of classes in the agreement, including the party's; the cost of models and
            answers grows with it. ``None`` for no limit.
        public_bytes: maximum memory, in bytes, of public rows sent by a coordinator to a party without a
            file of them (:attr:`~consilience.core.tasks.lifecycle.TakePublic.unpacked`); the rows of two
            federations may be on the disk at the same time. 0 accepts none, as always with ``epsilon``;
            ``None`` for no limit.
        public_sets: maximum number of different sets of sent public rows that the party accepts over its
            lifetime. The difference of two models reveals whether a record is private, if one set contains
            the record and the other does not. A repeated set does not count. The party refuses at most ten
            further sets. ``None`` for no limit.
        density_ratios: settings of the quantization of density ratios
            (:class:`~consilience.core.tasks.scores.CompareCoarsely`); ``None`` refuses these requests.
            ``"exact"`` is for simulations with trusted coordinators: the party then answers tasks from whose
            replies rows can be reconstructed (:data:`~consilience.core.tasks.base.Exposure`), such as exact
            ratios (:class:`~consilience.core.tasks.scores.ComparePublic`). ``party.toml`` cannot set it.
        quantile: lowest and highest share of private rows that a coordinator may set as the share of foreign
            rows (:class:`~consilience.methods.comparison_rules.tasks.SelectPublic`).
        regularization: lowest λ that a coordinator may choose for certainties
            (:class:`~consilience.privacy.accounting.certainty.ScoreCertainty`).
        alpha: lowest weight of the private rows when a model is refitted on private and public rows together,
            whatever weight the coordinator requests. With a weight near 0, a malicious coordinator could
            determine the model everywhere except at one targeted record.
            The limit has no effect on models without row weights, such as nearest neighbours, which weight
            private and public rows equally, or on networks, which continue from their private training.
        overlap: keep private rows equal (or almost equal) to public rows for training and testing; default
            false. If they are kept, a coordinator that places a person's record among the public rows sees
            the model's output for this record. If they are excluded, the model was not trained on the record
            in either case. Tables in which rows are often equal by chance, for example with a few binary
            columns or very many public rows, exclude none.
        metrics: maximum number of evaluations on the party's test rows in a run (from one join to the next);
            ``None`` for no limit.
        metrics_in_all: maximum number of evaluations over the party's lifetime, including restarted runs.
        digits: number of digits of these metrics; ``None`` for all.
        answers: maximum number of rows on which a frozen model with a cost per answer is evaluated; rows
            answered before do not count. ``None`` for the model's limit.
        masks: send replies derived from private rows only under secure aggregation; metrics and notes are
            sent as before.
        secret: mix a secret of the party into its random streams; default true. Without it the coordinator,
            which has the seed, can guess rows, repeat the party's training on them, and compare the results.
    """

    allow: tuple[str, ...] = ("predictions",)
    rounds: Whole | None = Field(default=None, ge=1)
    requests: Whole | None = Field(default=20, ge=1)
    protocols: tuple[str, ...] | None = None
    federation: str | None = None
    classes: Whole | None = Field(default=1_000, ge=2)
    public_bytes: Whole | None = Field(default=1 << 30, ge=0)
    public_sets: Whole | None = Field(default=1, ge=1)
    density_ratios: Annotated[Coarseness | Literal["exact"] | None, PlainValidator(_coarseness)] = (
        None
    )
    quantile: Annotated[tuple[Number, Number], AfterValidator(_ordered)] = (0.05, 0.5)
    regularization: Number = Field(default=1e-3, ge=0)
    alpha: Number = Field(default=0.1, ge=0, le=1)
    overlap: Flag = False
    metrics: Whole | None = Field(default=1, ge=0)
    metrics_in_all: Whole | None = Field(default=10, ge=0)
    digits: Whole | None = Field(default=3, ge=1)
    answers: Whole | None = Field(default=None, ge=1)
    masks: Flag = False
    secret: Flag = True

    def check_names(self) -> None:
        """Raise ``InvalidInput`` if a group, task or protocol is unknown."""
        if self.density_ratios == "exact":
            raise InvalidInput(
                "rows can be rebuilt from exact density ratios, which are for simulations",
                where="limits.density_ratios",
                mend="Write a table [limits.density_ratios]; left empty, it has the usual settings.",
            )
        # A site imports only what its limits allow, so that names are looked up before anything is imported.
        known = {*GROUPS, *(task for _, task in registered_tasks()), *task_types(registered=False)}
        for name in self.allow:
            if name not in known:
                raise InvalidInput(
                    f"unknown task or group {name!r}",
                    where="limits.allow",
                    mend=f"{nearest(name, known)} Groups: {', '.join(GROUPS)}.",
                )
        if self.protocols is None:
            return
        protocols = {task.protocol for task in self.tasks().values() if task.protocol}
        if not protocols.issuperset(self.protocols):
            protocols = {task.protocol for task in task_types().values() if task.protocol}
        for name in self.protocols:
            if name not in protocols:
                raise InvalidInput(
                    f"no protocol {name!r} has tasks of its own",
                    where="limits.protocols",
                    mend=f"{nearest(name, protocols)} What shares predictions alone comes under allow.",
                )

    def refuse(self, tasks: Sequence[Task], *, federation: str) -> None:
        """Raise ``KnowledgeRefused``, naming the limit, unless the limits allow the tasks.

        Args:
            tasks: the tasks of the request.
            federation: name of the federation that sends the request.
        """
        for task in tasks if self.masks else ():
            cost = getattr(task.reply_type, "privacy_cost", None)
            if cost not in ("nothing", "measured") and not task.row_free:
                what = f"{task.reply_type.__name__} would leave it as it is, and not in a sum"
                mend = "The coordinator sets secure_aggregation; or the party's engineer takes masks off."
                raise KnowledgeRefused(f"limits.masks: {what}", mend=mend)
        for task in within(tasks):
            name = type(task).__name__
            if not self._allows(type(task)):
                raise KnowledgeRefused(
                    f"limits.allow: it does not let {name!r} be asked",
                    mend=f"The party's engineer may add {task.exchanges or name!r} to allow.",
                )
            if not self._takes_part(type(task)):
                raise KnowledgeRefused(
                    f"limits.protocols: {name!r} is of {task.protocol!r}, which it takes no part in",
                    mend="The party's engineer may add it to protocols.",
                )
            self.refuse_costless(type(task))
            self._refuse_ratios(type(task))
            if task.lifecycle == "public" and self.epsilon is not None:
                raise KnowledgeRefused(  # reading rows by sent columns would answer about them
                    "limits.epsilon: with a budget it takes no public rows from a coordinator",
                    mend="The party's engineer names a file of them.",
                )
            for name, value in task.limited.items():
                self._refuse_value(name, value)
        if self.federation not in (None, federation):
            raise KnowledgeRefused(
                f"limits.federation: it takes part in {self.federation!r} alone, "
                f"and {federation or 'a federation without a name'!r} asks",
            )

    @property
    def needing_roster(self) -> str:
        """Name of the limit that requires a roster of the other parties' keys; empty for none."""
        return "noise" if self.noise == "shared" else "masks" if self.masks else ""

    @property
    def max_public_bytes(self) -> int:
        """Bytes of public rows that a coordinator may send; 0 for none, as with a budget of privacy."""
        if self.epsilon is not None or not self._allows_any(lifecycle="public"):
            return 0
        return sys.maxsize if self.public_bytes is None else self.public_bytes

    def _refuse_ratios(self, task: type[Task]) -> None:
        """Raise ``KnowledgeRefused`` if the limits forbid the task's exposure of private rows."""
        if self._compares(task):
            return
        if task.exposure == "unmeasured":
            name = task.__name__
            raise KnowledgeRefused(
                f"limits.allow: the risk of {name!r} for single rows has not been measured",
                mend=f"The party's engineer may add {name!r} to allow; or choose an aggregator or a protocol "
                "that needs predictions alone, such as avg.",
            )
        what, mend = "it does not say how densely its rows lie", "The party's engineer may allow it"
        if task.exposure == "noised":
            raise KnowledgeRefused(
                "limits.epsilon: it has no privacy budget, and sends no sum or fit of rows without noise",
                mend="The party's engineer may set epsilon.",
            )
        if task.exposure == "rows":
            what = "rows can be rebuilt from exact density ratios and the like, and it gives none"
            mend = (
                "Choose the aggregator coarse-density-ratio, which the party's engineer may allow"
            )
        raise KnowledgeRefused(
            f"limits.density_ratios: {what}",
            mend=f"{mend} with a table [limits.density_ratios]; or choose one that needs predictions alone, "
            "such as avg.",
        )

    def _refuse_value(self, name: str, value: float | None) -> None:
        """Raise ``KnowledgeRefused`` if a value of a request is beyond the limit of this name."""
        low, high = self.quantile
        if name == "quantile" and value is not None and not low <= value <= high:
            raise KnowledgeRefused(
                f"limits.quantile: it selects by quantiles from {low:g} to {high:g}, not {value:g}",
                mend="Give the aggregator another quantile, as in selective_mean(quantile=0.25).",
            )
        least = self.regularization
        if name == "regularization" and value is not None and value < least:
            raise KnowledgeRefused(
                f"limits.regularization: it takes {least:g} or more, not {value:g}",
                mend="Give the aggregator a larger one, as in certainty_weighted(regularization=0.01).",
            )
        if name == "epsilon" and value is None and self.epsilon is not None:
            raise KnowledgeRefused(
                "limits.epsilon: it says certainties with noise alone",
                mend="Give the aggregator an epsilon, as in certainty_weighted(epsilon=0.1).",
            )
        if name == "classes" and value is not None and self.classes is not None:
            what = f"the agreement is on {value:,} classes, and it takes {self.classes:,}"
            _refuse_above("classes", value, self.classes, what)
        if name == "public_bytes" and value is not None:
            self._refuse_rows(value)

    def _refuse_rows(self, size: float) -> None:
        """Raise ``KnowledgeRefused`` if public rows are more bytes than the party takes."""
        if self.public_bytes is None:
            return
        what = f"the public rows take {size:,} bytes, and it takes {self.public_bytes:,}"
        mend = "The party's engineer may raise public_bytes."
        if self.public_bytes == 0:
            what = "it takes no public rows from a coordinator"
            mend = "The party's engineer may name a file of them, or raise public_bytes."
        _refuse_above("public_bytes", size, self.public_bytes, what, mend)

    def refuse_sets(self, taken: int, refused: int) -> None:
        """Raise ``KnowledgeRefused`` if the party accepts no further set of sent public rows.

        Args:
            taken: number of accepted sets so far.
            refused: number of refused sets so far.
        """
        mend = "The party's engineer may raise public_sets, or name a file of public rows."
        what = (
            f"it has taken {taken} set{'s' * (taken > 1)} of sent public rows, and takes no other"
        )
        _refuse_above("public_sets", taken + 1, self.public_sets, what, mend)
        what = f"it has refused {refused} sets of sent public rows, and looks at no other"
        most = None if self.public_sets is None else _REFUSED_SETS
        _refuse_above("public_sets", refused + 1, most, what, mend)

    def refuse_more(self, *, rounds: int, requests: int) -> None:
        """Raise ``KnowledgeRefused``, naming the limit, if that would be too many.

        Args:
            rounds: that the party would have taken part in.
            requests: that it would have answered in the latest of them.
        """
        what = f"it has taken part in {rounds - 1} rounds, and that is all it does"
        _refuse_above("rounds", rounds, self.rounds, what)
        what = f"it has answered {requests - 1} requests in this round, and that is all it does"
        _refuse_above("requests", requests, self.requests, what)

    def refuse_joins(self, joins: int) -> None:
        """Raise ``KnowledgeRefused`` if so many joinings and restorings since a round are too many."""
        what = f"it has joined or gone back {joins - 1} times since its last round, and that is all"
        _refuse_above("requests", joins, self.requests, what)

    def refuse_metrics(self, in_run: int, in_all: int) -> None:
        """Raise ``KnowledgeRefused``, naming the limit, if so many measurements would be too many."""
        what = "it has said {} times how good its model is, and that is all it does"
        _refuse_above("metrics", in_run, self.metrics, what.format(in_run - 1))
        _refuse_above("metrics_in_all", in_all, self.metrics_in_all, what.format(in_all - 1))

    def refuse_comparisons(self, sets: int) -> None:
        """Raise ``KnowledgeRefused`` if the party sent density ratios for too many sets of public rows."""
        most = self.density_ratios.sets if isinstance(self.density_ratios, Coarseness) else None
        what = f"it has compared its rows with {sets - 1} sets of public rows, and that is all"
        mend = "The party's engineer may raise sets; own rows or settings that changed make another set."
        _refuse_above("density_ratios", sets, most, what, mend)

    def bind(self, party: Party, *, noise: NoiseSource = SystemNoise) -> None:
        """Apply the limits to the computations of a party.

        Args:
            party: the party.
            noise: constructor of the party's noise source.

        Raises:
            InvalidInput: the party cannot keep to the budget (:func:`.protect`), or a limit requires a roster
                and the party has none.
        """
        if (key := self.needing_roster) and party.rules.keys.roster is None:
            raise InvalidInput(
                "a coordinator could invent the other parties, and subtract their share of the sum",
                where=f"limits.{key}",
                mend="Give the others' public keys in [roster]; or leave this limit out.",
            )
        rules = party.rules
        ratios = self.density_ratios or "none"
        if ratios == "exact":  # no limit
            ratios = rules.density_ratios
        elif isinstance(ratios, Coarseness) and not self._allows_any(limit="density_ratios"):
            ratios = "none"
        public = replace(rules.public, overlap=self.overlap and rules.public.overlap)
        least = max(self.alpha, rules.least_alpha)
        party.keep_to(replace(rules, least_alpha=least, density_ratios=ratios, public=public))
        if self.answers is not None:
            party.bound_answers(self.answers)
        protect(party, self.budget, noise=noise)

    def most_measurements(self, measured: int) -> int | None:
        """Compute how often the party may be evaluated in a run; ``None`` for no limit.

        Args:
            measured: number of evaluations over the party's lifetime so far.
        """
        bounds = [self.metrics]
        if self.metrics_in_all is not None:
            bounds.append(max(0, self.metrics_in_all - measured))
        measuring = [task for task in self.tasks().values() if task.lifecycle == "measure"]
        if not any(self._allows(task) and self.affords(task) for task in measuring):
            bounds.append(0)
        return min((most for most in bounds if most is not None), default=None)

    def _allows(self, task: type[Task]) -> bool:
        """Return true if ``allow`` names a task or its group."""
        return task.__name__ in self.allow or task.exchanges in self.allow

    def tasks(self) -> dict[str, type[Task]]:
        """Return the loaded task types by name, including those covered by ``allow``."""
        return task_types(allow=self.allow)

    def _allows_any(self, *, lifecycle: str = "", limit: str = "") -> bool:
        """Return true if ``allow`` covers a task of this place in the life cycle, or under this limit."""
        return any(
            self._allows(task)
            for task in self.tasks().values()
            if task.lifecycle == lifecycle or limit in task.limits
        )

    def _takes_part(self, task: type[Task]) -> bool:
        """Return true if ``protocols`` contains the task's protocol, or if the task belongs to none."""
        return None in (self.protocols, task.protocol) or task.protocol in (self.protocols or ())

    def _compares(self, task: type[Task]) -> bool:
        """Return true if the limits allow the task's exposure of private rows."""
        if self.density_ratios == "exact":
            return True
        if task.exposure == "noised":
            return self.epsilon is not None
        if task.exposure == "rows" or (
            "density_ratios" in task.limits and self.density_ratios is None
        ):
            return False
        return task.exposure in ("nothing", "usual") or task.__name__ in self.allow

    def allowed_replies(self) -> dict[str, str]:
        """Map the name of each task that these limits allow to the name of its reply type."""
        silent = 0 in (self.metrics, self.metrics_in_all)
        return {
            name: task.reply_type.__name__
            for name, task in sorted(self.tasks().items())
            if self._allows(task)
            and self._takes_part(task)
            and self._compares(task)
            and self.affords(task)
            and not (silent and task.reply_type is Metrics)
        }


EVERYTHING = Limits(
    allow=GROUPS,
    requests=None,
    classes=None,
    public_bytes=None,
    public_sets=None,
    density_ratios="exact",
    quantile=(0, 1),
    regularization=0,
    alpha=0,
    overlap=True,
    metrics=None,
    metrics_in_all=None,
    digits=None,
    secret=False,
)
"""No limits, for parties that trust whoever asks them as themselves."""


def _refuse_above(
    name: str, value: float, most: int | None, what: str, mend: str | None = None
) -> None:
    """Raise ``KnowledgeRefused`` if a value is above the limit of this name; ``None`` is no limit."""
    if most is not None and value > most:
        raise KnowledgeRefused(
            f"limits.{name}: {what}", mend=mend or f"The party's engineer may raise {name}."
        )
