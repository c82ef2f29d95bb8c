"""The private side: a party's data, its learner and its random streams. Nothing here leaves by itself."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from consilience.errors import ConsilienceError, InvalidInput, KnowledgeRefused, RunFailed, odd_name
from consilience.files import inside
from consilience.learners import (
    GradientCorrection,
    Kind,
    Learner,
    Model,
    Steps,
    as_learner,
    kind_told_by,
)
from consilience.learners.files.transfer import TRUSTED, check_packing, check_rows, pack, unpack
from consilience.messages.replies import MOST_CLASSES, Agreement, Public
from consilience.numerics.density import Coarseness
from consilience.numerics.randomness import stream
from consilience.party.nearness import Nearness
from consilience.party.row_scores import Scores
from consilience.validation.arrays import Array, check_alike, check_inputs, read_only
from consilience.validation.labels import check_aliases, class_order, label_names, one_hot
from consilience.validation.memory import check_memory

MOST_SHARED = 0.25
"""Of a party's own rows, how many may be left out since they are public rows too: whoever could have all
others left out would ask about those that remain."""

_EXAMPLES = 100
"""Public rows that a learner may look at to say whether it can use their like."""


class Party:
    """One participant: private rows, a model of any kind, and optionally its own test rows.

    Args:
        name: unique within the federation; results are ordered by it.
        model: anything :func:`consilience.learners.as_learner` takes. It is copied, never changed.
        X: private inputs, shape ``(n, ...)``, or ``(n,)`` strings for text.
        y: private labels, shape ``(n,)``, or values ``(n,)`` or ``(n, n_targets)``.
        test: ``(X_test, y_test)`` that only evaluation sees.
        calibration: share of the private rows in [0, 1) that is never trained on; densities and early
            stopping use it (Kovalchuk et al. 2026 take 0.2).
        aliases: this party's label to the name the federation uses, where they differ.
        kind: ``"classification"`` or ``"regression"``; needed only where neither the model nor the labels
            say so.
        trusts: packages whose models it accepts from others, where models are exchanged.
        sends_rows: whether a model that holds rows it was trained on, such as nearest neighbours or a kernel
            machine, may be sent to others.
        coarseness: how little it says of where its rows lie, for the aggregator ``coarse_density_ratio``;
            the usual settings by default.
        secret: mixed into its random streams, so that a coordinator, who knows the seed, cannot compute
            again what its model does; ``b""`` for none, and then the seed alone says what it draws.

    Raises:
        InvalidInput: no rows, lengths that differ, NaN, labels of mixed type.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        X: Any,
        y: Any,
        *,
        test: tuple[Any, Any] | None = None,
        calibration: float = 0.2,
        aliases: Mapping[Any, str] | None = None,
        kind: Kind | None = None,
        trusts: Sequence[str] = TRUSTED,
        sends_rows: bool = False,
        coarseness: Coarseness | None = None,
        secret: bytes = b"",
    ) -> None:
        self.name = str(name)
        self._where = f"party {name!r}"
        if why := odd_name(self.name):
            raise InvalidInput(f"this is no name of a party: {why}", where=self._where[:100])
        if not isinstance(sends_rows, bool):
            raise InvalidInput(
                f"sends_rows is {sends_rows!r}", where=self._where, mend="Give True or False."
            )
        if isinstance(trusts, str):
            raise InvalidInput(
                f"trusts is {trusts!r}", where=self._where, mend=f"Give a list: [{trusts!r}]."
            )
        if not 0 <= calibration < 1:
            raise InvalidInput(
                f"calibration is {calibration}", where=self._where, mend="It is a share in [0, 1)."
            )
        self._prototype = as_learner(model, kind=kind or kind_told_by(model, y))
        self.kind = self._prototype.abilities.kind
        self._calibration = calibration
        self._aliases = aliases or {}
        self._trusts, self._sends_rows = tuple(trusts), sends_rows
        if not isinstance(coarseness, Coarseness | None):
            raise InvalidInput(
                f"coarseness is {coarseness!r}",
                where=self._where,
                mend="Give a consilience.numerics.density.Coarseness, or leave it out.",
            )
        self.coarseness = coarseness or Coarseness()
        self.secret = secret
        """What its random streams are mixed with; it leaves with nothing."""
        self.X, self.y = self._checked(X, y, "private data")
        if self.kind == "classification":
            check_aliases(self._aliases, y, where=f"{self._where}, private data")
        if test is not None and not (isinstance(test, tuple | list) and len(test) == 2):
            raise InvalidInput(
                "test is not a pair",
                where=self._where,
                mend="Give (X_test, y_test): rows and labels.",
            )
        self.test = None if test is None else self._checked(*test, "test data")
        if self.test is not None and self.test[0].shape[1:] != self.X.shape[1:]:
            raise InvalidInput(
                f"a private row has shape {self.X.shape[1:]}, a test row {self.test[0].shape[1:]}",
                where=self._where,
            )
        if self.test is not None and self.y.shape[1:] != self.test[1].shape[1:]:
            raise InvalidInput(
                f"private rows have {self.y.shape[1]} targets, test rows {self.test[1].shape[1]}",
                where=self._where,
            )
        self.memory: dict[str, Array] = {}
        """What a protocol has the party remember from round to round; part of its state."""
        self.drawn: dict[str, Array] = {}
        """Scores with noise, each drawn once, and for which public rows coarse ratios were said: neither
        joining nor restoring undoes it."""
        self.public: Public | None = None
        self.columns: tuple[str, ...] = ()
        """Names of the input columns, where they are known."""
        self.takes_public = 0
        """How many bytes of public rows the coordinator may send it; 0 where it has rows of its own."""
        self.kept_public: tuple[str, ...] = ()
        """Digests of those that were sent to it and are at hand."""
        self.least_alpha = 0.0
        """The least weight of its private rows in a refit, whatever is asked for."""
        self.metrics: int | None = None
        """How often in a run it says how good its model is; ``None`` for as often as it is asked."""
        self.digits: int | None = None
        """Digits that its metrics have; ``None`` for all."""
        self.overlap = True
        """Whether it trains and is measured on own rows that are public rows too."""
        self.shared_rows = 0
        """How many of its private rows are public rows too, and are left out for that since it joined."""
        self.home: Path | None = None
        self.agreement: Agreement | None = None

    def _checked(self, X: Any, y: Any, what: str) -> tuple[Array, Array]:
        X = np.asarray(X)
        where = f"{self._where}, {what}"
        if X.ndim == 0 or len(X) == 0:
            raise InvalidInput("there are no rows", where=where)
        if len(X) != len(y):
            raise InvalidInput(f"{len(X)} rows of inputs and {len(y)} of targets", where=where)
        check_inputs(X, where=where)
        if self.kind == "classification":
            return read_only(X), label_names(y, where=where, aliases=self._aliases)
        try:
            values = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput("targets are not numbers", where=where) from error
        check_inputs(values, where=f"{where}, targets")
        return read_only(X), read_only(values.reshape(len(values), -1))

    # --- before the first round -----------------------------------------------------------------

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the private data, in order; empty for regression."""
        return class_order(self.y.tolist()) if self.kind == "classification" else ()

    @property
    def how_soft_targets(self) -> str:
        """One sentence on how the learner takes soft targets."""
        return self._prototype.abilities.how

    @property
    def fewest_classes(self) -> int:
        """How many classes the learner must see to be trained at all."""
        return 1 if self._prototype.abilities.soft_targets == "native" else 2

    def check_saving(self) -> None:
        """Raise ``InvalidInput`` if the trained model could not be saved and read in another process."""
        self._prototype.check_saving()

    @property
    def public_digests(self) -> tuple[str, ...]:
        """Digests of the public rows that it holds."""
        if self.takes_public:
            return self.kept_public
        return () if self.public is None else (self.public.key,)

    def take_public(self, public: Public) -> None:
        """Take public rows that the coordinator sends; they count once they are agreed on.

        Raises:
            InvalidInput: it has rows of its own, or these do not look like the private ones.
        """
        self.check_public(public)
        self.public = public

    def check_public(self, public: Public) -> None:
        """Raise ``InvalidInput`` unless it takes public rows, and these look like its own."""
        self.check_takes_public()
        self._check_alike(public)
        self._apart(public, self.X)

    def check_takes_public(self) -> None:
        """Raise ``InvalidInput`` if it has public rows of its own, and takes none from a coordinator."""
        if not self.takes_public:
            raise InvalidInput(
                "it has public rows of its own, and takes no others",
                where=self._where,
                mend="Name no public file at the party, and the coordinator sends the rows.",
            )

    def _check_alike(self, public: Public) -> None:
        """Raise ``InvalidInput`` unless public rows look like the private ones, column by column."""
        if self.columns and public.columns and self.columns != public.columns:
            raise InvalidInput(
                f"its columns are not, in this order, those of the public rows: {', '.join(public.columns)}",
                where=self._where,
                mend="Name the columns at the party in the order of the public rows: "
                f"data.columns = [{', '.join(map(repr, public.columns))}].",
            )
        check_alike(self.X, public.X, where=self._where, discreet=self.takes_public > 0)
        if self.takes_public and Nearness(self.X).crowded(public.X):
            raise InvalidInput(
                "most public rows are copies of one another, or lie around one point",
                where=self._where,
            )

    def _apart(self, public: Public, *rows: Array) -> list[slice | NDArray[np.bool_]]:
        """Which rows it keeps: all, or those that are not public rows too.

        Raises:
            InvalidInput: too few of the first.
        """
        if self.overlap or not len(public):
            return [slice(None) for _ in rows]
        nearness = Nearness(self.X)
        apart = [~nearness.among(some, public.X) for some in rows]
        if apart[0].mean() < 1 - MOST_SHARED:
            raise InvalidInput(
                f"more than {MOST_SHARED:.0%} of its rows are among the public rows",
                where=self._where,
                mend="Take public rows of others; or let the party's engineer set limits.overlap = true.",
            )
        return [slice(None) if kept.all() else kept for kept in apart]

    def join(self, agreement: Agreement) -> None:
        """Take on what the federation agreed on and start from an untrained model.

        Raises:
            InvalidInput: the public data are not the agreed ones or do not look like the private ones,
                or the model cannot take them.
        """
        if self.takes_public and (self.public is None or self.public.key != agreement.public):
            raise InvalidInput(
                "it does not hold the public rows agreed on",
                where=self._where,
                mend="The coordinator sends them before it has it join; else name the file at the party.",
                code="lacks-public",
            )
        if agreement.rows and (self.public is None or not len(self.public)):
            raise InvalidInput(
                "it holds no public rows, and none may be sent to it",
                where=self._where,
                mend="Name a file of them at the party, or let its limits have them sent.",
            )
        if self.public is None or self.public.key != agreement.public:
            raise InvalidInput(
                "its public data are not the ones agreed on",
                where=self._where,
                mend="Every party must hold the same public rows in the same order.",
            )
        self._check_agreement(agreement)
        if len(self.public):
            self._check_alike(self.public)
        self.agreement = agreement
        self.learner: Learner = self._untrained()
        self.memory = {}
        self.learner.check((self.public.X if len(self.public) else self.X)[:_EXAMPLES])
        self._public_outputs: dict[str, Array] = {}

        self.train_rows = int((~self._calibration_rows(self.y)).sum())
        """How many private rows it trains on, those left out among them: else it would tell who they are."""
        tests = self.test or (self.X[:0], self.y[:0])
        own, measured = self._apart(self.public, self.X, tests[0])
        self._tests = tests[0][measured], tests[1][measured]
        X, y = self.X[own], self.y[own]
        self.shared_rows = len(self.X) - len(X)
        held_out, targets = self._calibration_rows(y), self._targets(y)
        self._train = (read_only(X[~held_out]), targets[~held_out])
        self._held_out = (read_only(X[held_out]), targets[held_out])
        self.scores = Scores(
            self.name,
            agreement,
            self.public,
            (read_only(X), targets),
            self._train,
            self._held_out,
            self.secret,
        )
        """What it says of the public rows beside predictions."""
        if self.learner.abilities.validation and not held_out.any():
            raise InvalidInput(
                "its model chooses by calibration rows, and there are none",
                where=self._where,
                mend="Give a calibration share above 0, such as 0.2.",
            )
        if self.test is not None:
            self._targets(self.test[1])

    def _check_agreement(self, agreement: Agreement) -> None:
        """Raise ``InvalidInput`` where it contradicts itself, or what the party holds."""
        assert self.public is not None
        outputs = len(agreement.classes) or self.y.shape[-1]
        distinct = len(set(agreement.classes)) == len(agreement.classes) <= MOST_CLASSES
        if why := next(filter(None, map(odd_name, agreement.classes)), None):
            raise InvalidInput(f"a class agreed on has no name: {why}", where=self._where)
        if (
            agreement.kind != self.kind
            or bool(agreement.classes) != (self.kind == "classification")
            or (agreement.outputs, agreement.rows) != (outputs, len(self.public))
            or not distinct
        ):
            raise InvalidInput(
                f"the agreement is of {agreement.kind} with {len(agreement.classes)} classes, "
                f"{agreement.outputs} outputs and {agreement.rows} public rows",
                where=self._where,
                mend=f"Its own is {self.kind}, with {len(self.public)} public rows.",
            )
        tested = 0 if self.test is None else len(self.test[0])
        rows = 2 * len(self.X) + 2 * tested + 3 * len(self.public)  # targets, answers, teacher
        check_memory(
            8 * rows * outputs,
            f"{outputs:,} outputs for each of its rows and of {len(self.public):,} public ones",
            where=self._where,
            mend="It needs a federation with fewer classes or fewer public rows.",
        )

    def _untrained(self) -> Learner:
        assert self.agreement is not None
        learner = copy.deepcopy(self._prototype)
        learner.bind(self.agreement.outputs)
        return learner

    def _targets(self, y: Array) -> Array:
        """Rows of outputs: one-hot in the agreed class order, or the values themselves."""
        assert self.agreement is not None
        if self.kind == "regression":
            return y
        position = {name: code for code, name in enumerate(self.agreement.classes)}
        unknown = sorted(set(y.tolist()) - set(position))
        if unknown:
            raise InvalidInput(
                f"labels that no party's private data hold: {unknown[:5]}", where=self._where
            )
        return one_hot([position[name] for name in y.tolist()], len(position))

    def _calibration_rows(self, y: Array) -> NDArray[np.bool_]:
        """Which rows with these targets are held out: the share of each class, so that no class is lost."""
        rng, held_out = self.stream(0, "calibration"), np.zeros(len(y), dtype=bool)
        labels = y.tolist() if self.kind == "classification" else [""] * len(y)
        groups: dict[str, list[int]] = {name: [] for name in self.classes or ("",)}
        for row, label in enumerate(labels):
            groups[label].append(row)
        for rows in filter(None, groups.values()):
            count = min(round(self._calibration * len(rows)), len(rows) - 1)
            held_out[rng.permutation(rows)[:count]] = True
        return held_out

    def stream(self, round: int, purpose: str) -> np.random.Generator:
        """Random numbers for one purpose in one round (:func:`consilience.numerics.randomness.stream`)."""
        assert self.agreement is not None
        return stream(self.agreement.seed, self.name, round, purpose, secret=self.secret)

    # --- what tasks ask for ---------------------------------------------------------------------

    def fit_private(self, round: int) -> None:
        """Stage 1: train on private rows.

        A learner that starts anew on every fit was last trained on the private rows *and* the last
        teacher (:meth:`distill`); training it on the private rows alone would forget the teacher, so it
        is left as it is.
        """
        if self.learner.fitted and not self.learner.abilities.incremental:
            return
        X, targets = self._train
        self.learner.fit(
            X,
            targets,
            rng=self.stream(round, "fit"),
            validation=self._validation,
            phase="private" if self.learner.fitted else "first",
        )
        self._public_outputs.clear()

    def distill(
        self, round: int, targets: Array, alpha: float, taught: Array | None = None
    ) -> tuple[str, ...]:
        """Stage 2: train towards the teacher on the public rows.

        An incremental learner goes on from where it is, on the public rows. One that starts anew refits
        on private plus public rows, weighted ``alpha / N`` and ``(1 - alpha) / N_p`` a row, the weights
        of Park et al. 2023, scaled so that they sum to ``N + N_p``.

        Args:
            round: the round, for the random stream.
            targets: the teacher, shape ``(n_public, n_outputs)``.
            alpha: the weight of the private rows in (0, 1); it is :attr:`least_alpha` at least.
            taught: which public rows to train on, shape ``(n_public,)``, bool; all by default, and where
                it is none the model stays as it is.

        Returns:
            Notes for the ledger.
        """
        assert self.public is not None
        rng = self.stream(round, "distill")
        expected = (len(self.public), self.learner.n_outputs)
        if targets.shape != expected:  # what else may be wrong with them the learner checks
            raise InvalidInput(
                f"the teacher has shape {targets.shape}, expected {expected}", where=self._where
            )
        targets = np.array(targets, dtype=np.float64)  # a copy: others are taught by them too
        public = self.public.X
        if taught is not None:
            if taught.dtype != bool or taught.shape != expected[:1]:
                raise InvalidInput(
                    f"rows that are taught have shape {taught.shape} and type {taught.dtype}, expected "
                    f"{expected[:1]} and bool",
                    where=self._where,
                )
            if not taught.any():
                return ("no public row is taught: the model stays as it is",)
            public, targets = public[taught], targets[taught]
        self._public_outputs.clear()
        if self.learner.abilities.incremental:
            self.learner.fit(public, targets, rng=rng, phase="distill")
            return ()
        X, private = self._train
        n, n_public = len(X), len(targets)
        weights: Array | None = None
        notes: tuple[str, ...] = ()
        if self.learner.abilities.sample_weight:
            if alpha < self.least_alpha:
                notes = (f"private rows weigh {self.least_alpha:g}, its least, and not {alpha:g}",)
                alpha = self.least_alpha
            share = np.repeat([alpha / n, (1 - alpha) / n_public], [n, n_public])
            weights = share * (n + n_public)
        else:
            notes = ("the model takes no row weights: private and public rows count alike",)
        self.learner.fit(
            np.concatenate([X, public]),
            np.concatenate([private, targets]),
            rng=rng,
            weights=weights,
            validation=self._validation,
            phase="distill",
        )
        return notes

    @property
    def _validation(self) -> tuple[Array, Array] | None:
        """The calibration rows, if there are any."""
        return self._held_out if len(self._held_out[0]) else None

    # --- where parameters are exchanged -----------------------------------------------------------

    def adopt(self, values: Mapping[str, Array]) -> None:
        """Take these parameters, by name, for the model's own."""
        learner: Any = self.learner
        learner.set_parameters(values)
        self._public_outputs.clear()

    def fit_corrected(
        self,
        round: int,
        *,
        strength: float = 0.0,
        correction: Mapping[str, Array] | None = None,
    ) -> Steps:
        """Train on private rows with gradients ``g(w) + correction + strength (w − where it starts)``.

        Args:
            round: the round, for the random stream.
            strength: 0 or more.
            correction: parameter name to an array of its shape.

        Returns:
            How many steps were made, and of which size.
        """
        X, targets = self._train
        learner: Any = self.learner
        self._public_outputs.clear()
        steps: Steps = learner.fit_corrected(
            X,
            targets,
            rng=self.stream(round, "fit"),
            correction=GradientCorrection(strength, correction),
            validation=self._validation,
        )
        return steps

    # --- where models are exchanged ---------------------------------------------------------------

    def check_sharing(self, learner: Learner | None = None) -> None:
        """Raise ``InvalidInput`` if a model would hold private rows and may not, or cannot be sent.

        Args:
            learner: the model that would be sent, such as a weak learner; by default the party's own.
        """
        learner = self.learner if learner is None else learner
        self._check_rows(learner)
        check_packing(learner)

    def share(self, learner: Learner | None = None) -> tuple[str, Array]:
        """A trained model as others can use it: its description and its bytes.

        Args:
            learner: such as a weak learner; by default the party's own, whose description has its classes.

        Raises:
            InvalidInput: it holds private rows and may not, or cannot be sent.
        """
        assert self.agreement is not None
        classes = self.agreement.classes if learner is None else ()
        learner = self.learner if learner is None else learner
        self._check_rows(learner)
        return pack(learner, classes=classes)

    def _check_rows(self, learner: Learner) -> None:
        if not self._sends_rows:
            check_rows(learner, self._train[0], where=self._where)

    def opinion(self, about: str, data: Array) -> Array:
        """What another's model says of the rows trained on here, shape ``(n, n_outputs)``.

        Raises:
            KnowledgeRefused: the model is not trusted, damaged, or answers something else.
        """
        X, targets = self._train
        model = unpack(about, data, trusted=self._trusts)
        if model.abilities.kind != self.kind:
            raise KnowledgeRefused(f"a model for {model.abilities.kind}, not {self.kind}")
        if model.n_outputs != targets.shape[1]:
            raise KnowledgeRefused(
                f"a model of {model.n_outputs:,} outputs, not {targets.shape[1]}"
            )
        try:
            values = model.predict(X)
        except KnowledgeRefused:
            raise
        except ConsilienceError as error:
            raise KnowledgeRefused(f"a model that cannot answer: {error.what}") from error
        if values.shape != targets.shape or not np.isfinite(values).all():
            raise KnowledgeRefused(
                f"a model that answers {values.shape}, expected finite {targets.shape}"
            )
        if self.kind == "classification" and (
            (values < 0).any() or np.abs(values.sum(axis=1) - 1).max() > 1e-3
        ):
            raise KnowledgeRefused("a model whose answers are no probabilities")
        return values

    @property
    def trusts(self) -> tuple[str, ...]:
        """Packages whose models it accepts from others."""
        return self._trusts

    @property
    def training(self) -> tuple[Array, Array]:
        """The private rows that are trained on: inputs ``(n, ...)`` and targets ``(n, n_outputs)``."""
        return self._train

    def model_changed(self) -> None:
        """Say that a task has changed the model: what it said of the public rows no longer holds."""
        self._public_outputs.clear()

    @property
    def trained(self) -> bool:
        """Whether it has a trained model."""
        return self.learner.fitted

    def own_opinion(self) -> Array:
        """What the model says of the rows it was trained on, shape ``(n, n_outputs)``."""
        return self.learner.predict(self._train[0])

    @property
    def labels(self) -> Array:
        """The private labels that are trained on, as rows of outputs, shape ``(n, n_outputs)``."""
        return self._train[1]

    def train_towards(self, round: int, opinions: Array, labels: float) -> None:
        """Train a new model on private inputs, towards others' opinions of them and the labels.

        Args:
            round: the round, for the random stream.
            opinions: what the labels are mixed with, shape ``(n, n_outputs)``.
            labels: the weight of the private labels in [0, 1]; targets are ``labels y + opinions``.
        """
        X, y = self._train
        new = self._untrained()
        new.fit(
            X,
            labels * y + opinions,
            rng=self.stream(round, "fit"),
            validation=self._validation,
            phase="first",
        )
        self.learner = new  # where that failed, the party keeps the model that it had
        self._public_outputs.clear()

    def outputs(self, kind: str) -> Array:
        """Probabilities, logits or values on the public rows, shape ``(n_public, n_outputs)``."""
        assert self.public is not None
        if kind not in self._public_outputs:
            ask = self.learner.logits if kind == "logits" else self.learner.predict
            self._public_outputs[kind] = ask(self.public.X)
        return self._public_outputs[kind]

    def evaluate(self) -> tuple[int, dict[str, float]]:
        """Number of test rows, and metrics on them.

        Classification: ``accuracy``; ``accuracy_local`` on rows of the party's own classes; ``log_loss``
        in nats; ``auc`` for two classes. Regression: ``mse``, ``r2``. To :attr:`digits` digits.
        """
        if self.test is None:
            raise InvalidInput("it holds no test data", where=self._where)
        if not len(self._tests[0]):
            raise InvalidInput("all its test rows are among the public rows", where=self._where)
        values = self._measured(*self._tests)
        if self.digits is not None:
            values = {name: float(f"{value:.{self.digits}g}") for name, value in values.items()}
        return len(self.test[0]), values

    def _measured(self, X: Array, y: Array) -> dict[str, float]:
        """Metrics on test rows."""
        targets = self._targets(y)
        outputs = self.learner.predict(X)
        if self.kind == "regression":
            error = ((outputs - targets) ** 2).mean()
            spread = targets.var(axis=0).mean()
            return {"mse": float(error), "r2": float(1 - error / spread) if spread else 0.0}
        right = outputs.argmax(axis=1) == targets.argmax(axis=1)
        local = np.isin(y, self.classes)
        likelihood = np.clip(outputs[targets.astype(bool)], 1e-12, None)
        values = {"accuracy": float(right.mean()), "log_loss": float(-np.log(likelihood).mean())}
        if local.any():
            values["accuracy_local"] = float(right[local].mean())
        if targets.shape[1] == 2 and 0 < targets[:, 1].sum() < len(targets):
            from sklearn.metrics import roc_auc_score

            values["auc"] = float(roc_auc_score(targets[:, 1], outputs[:, 1]))
        return values

    def model(self) -> Model:
        """The trained model as it stands, to keep and predict with."""
        assert self.agreement is not None
        return Model(copy.deepcopy(self.learner), self.agreement.classes)

    # --- state ----------------------------------------------------------------------------------

    def save(self, label: str) -> None:
        """Write the state as ``home/label``, whole or not at all.

        A party's state is its model and its memory: random streams are keyed, optimisers start afresh.
        """
        folder, partial = self._state_folder(label), self._state_folder(f".{label}.writing")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            self.write_state(partial)
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(partial, folder)
        except OSError as error:
            raise RunFailed(
                f"its state cannot be written ({error.strerror})",
                where=self._where,
                mend=f"Free some space below {folder.parent}, then resume the run.",
            ) from error

    def restore(self, label: str) -> None:
        """Take up the state that :meth:`save` wrote; call after :meth:`join`."""
        folder = self._state_folder(label)
        if not folder.is_dir():
            raise RunFailed(f"it has no state of {label}", where=self._where)
        self.read_state(folder)

    def write_state(self, folder: Path) -> None:
        """Write the model and the memory as files of ``folder``, which is there and empty."""
        if self.learner.fitted:
            self.learner.save(folder / f"model{self.learner.suffix}")
        else:  # its training failed; said in a file, so that a lost model is not taken for it
            (folder / "model.none").touch()
        if self.memory:
            save_file(self.memory, folder / "memory.safetensors")
        if self.drawn:
            save_file(self.drawn, folder / "drawn.safetensors")

    def read_state(self, folder: Path) -> None:
        """Take up what :meth:`write_state` wrote; call after :meth:`join`."""
        if not (folder / "model.none").exists():
            self.learner.load(folder / f"model{self.learner.suffix}")
        remembered, drawn = folder / "memory.safetensors", folder / "drawn.safetensors"
        self.memory = load_file(remembered) if remembered.exists() else {}
        if drawn.exists():
            self.drawn = load_file(drawn) | self.drawn
        self._public_outputs.clear()

    def keep(self, labels: Container[str]) -> None:
        """Delete the saved states that ``labels`` does not name."""
        for folder in self._state_folder("").glob("*/model.*"):
            if folder.parent.name not in labels:
                shutil.rmtree(self._state_folder(folder.parent.name))

    def _state_folder(self, label: str) -> Path:
        if self.home is None:
            raise InvalidInput("it has no folder to keep its state in", where=self._where)
        return inside(self.home / label, self.home)
