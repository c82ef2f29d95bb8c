"""A party: its private data, and how it joins a federation. Nothing here leaves by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InvalidInput, odd_name
from consilience.core.learners import (
    FixedLearner,
    Learner,
    as_learner,
    kind_told_by,
    suited_to,
)
from consilience.core.messages.schema import Agreement, Ratios
from consilience.core.metrics.metrics import metrics_of, own_weights
from consilience.core.numerics.coarse_ratios import Coarseness
from consilience.core.numerics.encoder import Encoder, find_encoder
from consilience.core.numerics.outcomes import Outcome
from consilience.core.party.agreement import check_agreement, check_model, check_outputs, own_rows
from consilience.core.party.outbox import Outbox, PartyFeature
from consilience.core.party.personalizer import Chooser, Purpose
from consilience.core.party.public_rows import ReadByPublic
from consilience.core.party.row_scores import Scores
from consilience.core.party.rows import (
    arrivals_of,
    as_pair,
    calibration_rows,
    check_like_own,
    checked_inputs,
    checked_rows,
    in_order,
    privacy_units_of,
    target_names,
    target_rows,
)
from consilience.core.party.state import FEATURES, SavedState
from consilience.core.party.trainer import Training
from consilience.core.registry import registered_object
from consilience.core.validation.arrays import Array, read_only
from consilience.core.validation.labels import (
    Kind,
    check_aliases,
    check_same_order,
    class_order,
    label_names,
)
from consilience.core.validation.numbers import check_choice, check_flag, check_number
from consilience.core.validation.tables import Lenient, is_table, table_reader


class Party(ReadByPublic, Training, SavedState):
    """One participant: private rows, a model of any kind, and optionally its own test rows.

    A party without ``y`` *learns only*: it sends nothing, keeps no model alone, and is taught on the public
    rows, those more that lie where its own unlabelled ones do, if that serves these (:mod:`.importance`). A
    party whose model is :class:`~.FixedLearner` answers and is never taught; it needs no
    rows.

    Args:
        name: unique within the federation; results are ordered by it.
        model: anything :func:`consilience.core.learners.as_learner` takes. It is copied, never changed.
        X: private inputs, shape ``(n, ...)``, or ``(n,)`` strings for text; or a table (pandas, or any
            with ``__arrow_c_stream__``), which is read by the names, kinds and categories of the public rows'
            columns; ``None`` for none.
        y: private labels, shape ``(n,)``, or values ``(n,)`` or ``(n, n_targets)``; ``None`` for none.
        test: ``(X_test, y_test)`` that only evaluation sees; its own rows, or everyone's.
        own: weights of the test rows as own rows, shape ``(n_test,)``, 0 or more; by default 1 for rows of
            the classes in ``y`` and 0 for others, in regression 1 for all.
        calibration: share of the private rows in [0, 1) that is never trained on; densities and early
            stopping use it (Kovalchuk et al. 2026 take 0.2).
        aliases: this party's label to the name the federation uses, where they differ.
        kind: ``"classification"`` or ``"regression"``; needed only where neither the model nor the labels
            say so.
        classes: names of the classes, those too that it has no rows of, where they are not to be read off the
            rows; a party with a budget of privacy declares them.
        privacy_units: unit of privacy that each private row belongs to, such as a patient, shape ``(n,)``;
            each row is one by default.
        arrived: arrival that each private row came with, from 0 on, shape ``(n,)``: a budget of privacy that
            counts one arrival more (:attr:`.Budget.arrivals`) charges those rows alone. Never renumbered.
        trusts: packages whose models it accepts from others, where models are exchanged; by default those of
            the libraries that consilience has learners for.
        sends_rows: whether a model that holds rows it was trained on, such as nearest neighbours or a kernel
            machine, may be sent to others.
        coarseness: how little it says of where its rows lie, for the aggregator ``coarse_density_ratio``;
            the usual settings by default.
        encoder: makes the features that rows are compared by, for a party elsewhere, which the federation
            cannot hand its own: a name (``consilience list encoders``) or a callable with a ``key``.
        secret: mixed into its random streams, so that a coordinator, who knows the seed, cannot compute
            again what its model does; ``b""`` for none, and then the seed alone says what it draws.
        purpose: rows that its predictions are for, where a teacher teaches it: ``"own"`` mixes the model
            trained alone with the taught one so that its own rows are not worse off, ``"everyone"`` for all
            parties' rows; ``"taught"`` takes the taught model as it is, and keeps no other.
        rename: of a table, own name of a column to the name that the public rows have for it.
        units: of a table, the public rows' name of a column to the factor that its own numbers are multiplied
            by to be of their unit, or ``"F to C"`` or ``"C to F"``; 1 says that they are already.
        missing: whether its table may lack columns of the public rows: the party is then trained on those it
            has, and answers public rows through them.
        unknown: what becomes of categories that the public rows do not have: refused, or read as missing.
        outcome: what is predicted, where that is neither a class nor a number: the same at all parties. Its
            model is of classes, and ``y`` as the outcome has it: times and events, or values.

    Raises:
        InvalidInput: no rows, lengths that differ, NaN, labels of mixed type.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        X: Any = None,
        y: Any = None,
        *,
        test: tuple[Any, Any] | None = None,
        own: Any = None,
        calibration: float = 0.2,
        aliases: Mapping[Any, str] | None = None,
        kind: Kind | None = None,
        classes: Sequence[str] = (),
        privacy_units: Any = None,
        arrived: Any = None,
        trusts: Sequence[str] | None = None,
        sends_rows: bool = False,
        coarseness: Coarseness | None = None,
        encoder: Encoder | str | None = None,
        secret: bytes = b"",
        purpose: Purpose = "own",
        rename: Mapping[str, str] | None = None,
        units: Mapping[str, float | str] | None = None,
        missing: Literal["refused", "allowed"] = "refused",
        unknown: Lenient = "refused",
        outcome: Outcome | None = None,
    ) -> None:
        where = f"party {name!r}"
        if why := odd_name(str(name)):
            raise InvalidInput(f"this is no name of a party: {why}", where=where[:100])
        check_flag("sends_rows", sends_rows, where=where)
        if isinstance(trusts, str):
            mend = f"Give a list: [{trusts!r}]."
            raise InvalidInput(f"trusts is {trusts!r}", where=where, mend=mend)
        check_number("calibration", calibration, at_least=0, below=1, where=where)
        if not isinstance(coarseness, Coarseness | None):
            raise InvalidInput(
                f"coarseness is {coarseness!r}",
                where=where,
                mend="Give a consilience.core.numerics.coarse_ratios.Coarseness, or leave it out.",
            )
        check_choice("purpose", purpose, get_args(Purpose), where=where)
        if outcome is not None:
            kind = "classification"
        learner = as_learner(model, kind=kind or kind_told_by(model, () if y is None else y))
        super().__init__(
            str(name),
            suited_to(learner, outcome),
            trusts=trusts,
            sends_rows=sends_rows,
            secret=secret,
        )
        self._calibration, self._aliases = calibration, aliases or {}
        self.outcome = outcome
        if outcome is not None and self._aliases:
            raise InvalidInput("aliases are of classes, and it has none", where=where)
        self.purpose = purpose
        self.coarseness = coarseness or Coarseness()
        self.encoder = None if encoder is None else find_encoder(encoder)
        for inputs, labels in ((X, y), *([] if test is None else [as_pair(test, where=where)])):
            check_same_order(inputs, labels, where=where)
        reading: dict[str, Any] = {"missing": missing, "unknown": unknown}
        reading |= {"rename": rename or {}, "units": units or {}}
        tested = test[0] if isinstance(test, tuple | list) and test else None
        self.table = None
        if is_table(X if X is not None else tested):
            self.table = table_reader().row_source(X, test, where=self._where, **reading)
        """Its rows as they came, where their columns have names."""
        X, test = self._numbers_of(X, test)
        self.frozen = isinstance(self._prototype, FixedLearner)
        """Whether its model answers, and is never trained."""
        self.labelled = y is not None
        """Whether it has labelled rows of its own; one without, and not frozen, learns only."""
        several = outcome is None and self.kind == "regression"
        self.target_names = target_names(y, where=where) if several else ()
        """Names of the targets of a regression, if they are a table of several columns."""
        self.X, self.y = self._own_rows(X, y)
        names = y if self._named is None else self._named
        if outcome is not None and self.labelled:
            outcome.check_own(self.y, where=f"{self._where}, private data")
        elif self.kind == "classification" and names is not None and outcome is None:
            check_aliases(self._aliases, names, where=f"{self._where}, private data")
        self.test = None
        if test is not None:
            tests, wanted = as_pair(test, where=self._where)
            wanted = in_order(wanted, self.target_names, where=f"{self._where}, test data")
            self.test = self._checked(tests, wanted, "test data")
            self.X = self.test[0][:0] if X is None else self.X
            check_like_own(self.test, self.X, self.targets, where=self._where)
        tested = self.y[:0] if self.test is None else self.test[1]
        known = () if outcome is not None else self._classes_held
        self.own = own_weights(own, tested, known, where=self._where)
        """Weights of the test rows as own rows, shape ``(n_test,)``; of no test rows none."""
        self.comparison = self._compared()
        """Its rows held against public ones; what was found is part of its state."""
        self.declared = tuple(map(str, classes))
        """Classes that it says it has; empty where its rows say them."""
        if undeclared := set(self._classes_held) - set(self.declared or self._classes_held):
            raise InvalidInput(
                f"its rows have a class that is not declared, {min(undeclared)!r}",
                where=self._where,
            )
        self.privacy_units: Array | None = None
        """Unit of privacy of each private row, from 0 on; ``None`` where each is one."""
        self.unit_names: tuple[str, ...] = ()
        """Names of these units."""
        if privacy_units is not None:
            found = privacy_units_of(privacy_units, len(self.X), where=self._where)
            self.unit_names, self.privacy_units = found
        self.arrived = None
        """Arrival that each private row came with, from 0 on; ``None`` where all came with the first."""
        if arrived is not None:
            self.arrived = arrivals_of(arrived, len(self.X), self._where)
        self.trouble = ""
        """What went wrong last in a training that it keeps to itself."""
        self.outbox = Outbox()
        """What its owner has every reply pass; neither joining nor restoring undoes it."""
        self.features: dict[str, PartyFeature] = {}
        """What features keep at it, by name (:meth:`feature`)."""
        self.max_public_bytes = 0
        """How many bytes of public rows the coordinator may send it; 0 where it has rows of its own."""
        self.discreet = False
        """Whether errors leave out what its rows hold, as others read them."""
        self.kept_public: tuple[str, ...] = ()
        """Digests of those that were sent to it and are at hand."""
        self.most_measurements: int | None = None
        """How often in a run it says how good its model is; ``None`` for as often as it is asked."""
        self.ratios: Ratios = "exact"
        """Density ratios that it gives to whoever asks."""
        self.digits: int | None = None
        """Digits that its metrics have; ``None`` for all."""
        self.overlap = True
        """Whether it trains and is measured on own rows that are public rows too."""
        self.shared_rows = 0
        """How many of its private rows are public rows too, and are left out for that since it joined."""
        self.home = None
        self._measured: tuple[Any, dict[str, float]] | None = None

    def _checked(self, X: Any, y: Any, what: str) -> tuple[Array, Array]:
        """Inputs and targets, read-only, once they are found to fit; ``what`` names them in errors."""
        where = f"{self._where}, {what}"
        return checked_rows(X, y, self.kind, self._aliases, where=where, outcome=self.outcome)

    def _own_rows(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Own inputs and targets; of those that are not there none."""
        if y is not None:
            return self._checked(X, y, "private data")
        inputs = (
            np.zeros(0) if X is None else checked_inputs(X, where=f"{self._where}, private data")
        )
        return inputs, np.zeros(0, dtype=np.str_ if self.kind == "classification" else np.float64)

    # --- before the first round -----------------------------------------------------------------

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes: declared, in the private data, or known to a frozen model."""
        return class_order(self.declared) or self._classes_held

    @property
    def _classes_held(self) -> tuple[str, ...]:
        """Names of the classes in the private data, or that a frozen model knows; empty for regression."""
        if self.outcome is not None:
            return self.outcome.classes
        known = () if self._named is None else self._named_by_all()
        return class_order([*self.y.tolist(), *known]) if self.kind == "classification" else ()

    @property
    def _named(self) -> tuple[str, ...] | None:
        """Classes that a frozen model knows, by its own names; ``None`` for other models."""
        model = self._prototype
        return model.classes if isinstance(model, FixedLearner) and model.classes else None

    def _named_by_all(self) -> list[str]:
        """The same classes by the names that the federation has for them."""
        names = label_names(self._named or (), where=self._where, aliases=self._aliases)
        return [str(name) for name in names]

    @property
    def targets(self) -> int:
        """Number of values that its model predicts; 0 for classes, and where the others' say it."""
        if self.kind == "classification":
            return 0
        if isinstance(self._prototype, FixedLearner):
            return self._prototype.targets
        return self.y.shape[1] if self.labelled else 0

    @property
    def target_key(self) -> str:
        """Digest of :attr:`target_names`, in order; empty if there are none."""
        if not self.target_names:
            return ""
        return hashlib.sha256(json.dumps(self.target_names).encode()).hexdigest()[:8]

    @property
    def how_soft_targets(self) -> str:
        """One sentence on how the learner takes soft targets."""
        return self._prototype.abilities.how

    @property
    def fewest_classes(self) -> int:
        """Number of classes that the learner must see to be trained at all."""
        return 1 if self._prototype.abilities.soft_targets == "native" else 2

    def check_saving(self) -> None:
        """Raise ``InvalidInput`` if the trained model could not be saved and read in another process."""
        self._prototype.check_saving()

    def join(self, agreement: Agreement) -> None:
        """Join a federation: take on what it agreed on and start from an untrained model.

        Raises:
            InvalidInput: the public data are not the agreed ones or do not look like the private ones,
                or the model cannot take them.
        """
        if self.encoder is not None and self.public is not None:
            self.public = self.public.with_encoder(self.encoder)
        check_agreement(self, agreement)
        assert self.public is not None
        budgeted = self.outbox.discreet  # then its rows refuse nothing
        if budgeted and (lacking := sorted(set(self.declared) - set(agreement.classes))):
            raise InvalidInput(f"class {lacking[0]!r} was not agreed on", where=self._where)
        self.public = (
            self._check_alike(self.public) if len(self.public) else self.read_by(self.public)
        )
        self.begin(agreement)
        self.memory = {}
        for feature in self.features.values():
            feature.joined()
        check_model(self)
        if not self.labelled and self.kind == "regression":
            self.y = np.zeros((0, agreement.outputs))
        self.train_rows = int((~self._calibration_rows(self.y)).sum())
        """How many private rows it trains on, those left out among them: else it would tell who they are."""
        own = self._private_apart(self.public)
        self.shared_rows = len(self.X) - int(own.sum())
        X, y = (self.X if own.all() else self.X[own]), self.y
        if self.labelled and not own.all():
            y = self.y[own]
        held_out, targets = self._calibration_rows(y), np.zeros((0, agreement.outputs))
        if (
            self.private_training is None
        ):  # else trained on once, with noise, and looked at by nothing else
            with self.keeping_to_itself():
                check_outputs(self, own_rows(self), agreement.outputs)
                targets = self._targets(y, y[~held_out])
        known, held_out = X[: len(targets)], held_out[: len(targets)]  # none without labels
        self._train = (read_only(known[~held_out]), targets[~held_out])
        self._held_out = (read_only(known[held_out]), targets[held_out])
        self.scores = Scores(
            self.name,
            agreement,
            self.public,
            (read_only(X), targets),
            self._train,
            self._held_out,
            read_only(self.X),
            self.secret,
            None if self.outcome is None else read_only(y[: len(targets)][held_out]),
        )
        """Its scores of the public rows beside predictions."""
        self.chooser = None
        keeps = self.labelled and not self.frozen and self.private_training is None
        if self.purpose != "taught" and len(self.public) and keeps:
            self.chooser = Chooser(self.purpose, self.scores)
        chooses = (
            self._calibration > 0 and self.private_training is None if budgeted else held_out.any()
        )
        if self.learner.abilities.validation and not chooses:
            raise InvalidInput(
                "its model chooses by calibration rows, and there are none",
                where=self._where,
                mend="Give a calibration share above 0, such as 0.2; training with noise has none.",
            )
        if self.test is not None and not budgeted:
            self._targets(self.test[1], self.y)

    def _targets(self, y: Array, known: Array) -> Array:
        """Rows of outputs: one-hot in the agreed class order, or the values themselves.

        Of an outcome, what is not known of them is estimated from ``known``.
        """
        assert self.agreement is not None
        if self.outcome is not None:
            empty = np.zeros((0, self.agreement.outputs))
            return self.outcome.targets(y, own=known) if len(y) else empty
        return target_rows(y, self.agreement, where=self._where)

    def _calibration_rows(self, y: Array) -> NDArray[np.bool_]:
        """Mark the rows to hold out: the same share of each class, so that no class is lost."""
        if self.outcome is not None and len(y):
            y = self.outcome.strata(y)
        return calibration_rows(y, self._calibration, self.kind, self.stream(0, "calibration"))

    def keep_answers(self, file: Path) -> None:
        """Keep a frozen model's answers in a file, and read those that are there."""
        if isinstance(self._prototype, FixedLearner):
            self._prototype.keep_answers(file)

    def most_answers(self, most: int) -> None:
        """Bound the rows that a frozen model is asked about in all."""
        if isinstance(self._prototype, FixedLearner):
            self._prototype.bound_answers(most)

    def untrained(self) -> Learner:
        """A new model of the agreed number of outputs; a frozen one as it is, in the agreed class order."""
        learner = super().untrained()
        if (
            isinstance(learner, FixedLearner)
            and self.agreement is not None
            and self._named is not None
        ):
            learner.align(self.agreement.classes, self._named_by_all())
        learner.labels = self._label_columns()
        return learner

    def _label_columns(self) -> dict[str, int] | None:
        """Output column of each class, by the federation's name and the party's own; ``None`` for values."""
        if self.agreement is None or not self.agreement.classes:
            return None
        columns = {name: place for place, name in enumerate(self.agreement.classes)}
        own = label_names(list(self._aliases), where=self._where).tolist()
        named = label_names(list(self._aliases.values()), where=self._where).tolist()
        both = zip(own, named, strict=True)
        return columns | {label: columns[name] for label, name in both if name in columns}

    # --- features -------------------------------------------------------------------------------

    def feature(self, name: str) -> Any:
        """Give what a feature keeps at this party, made when it is first asked for.

        Args:
            name: of the entry point of ``consilience.party_features`` that makes it.
        """
        if name not in self.features:
            self.features[name] = registered_object(FEATURES, name)(self)
        return self.features[name]

    @contextmanager
    def keeping_to_itself(self) -> Iterator[None]:
        """Tell nobody that training fails in this block, if the outbox is discreet: rows may be why."""
        try:
            yield
        except Exception as error:
            if not self.outbox.discreet:
                raise
            self.trouble = f"{type(error).__name__}: {error}"

    # --- evaluation -----------------------------------------------------------------------------

    def evaluate(self) -> tuple[int, dict[str, float]]:
        """Evaluate the model on the test rows: their number, and metrics.

        Those of :mod:`consilience.core.metrics.metrics`, over all test rows and, with the suffix ``_own``,
        over own rows. To :attr:`digits` digits.
        """
        if self.test is None:
            raise InvalidInput("it holds no test data", where=self._where)
        if not (self.labelled or self.learner.fitted):
            return len(self.test[0]), {}  # it learns only, and has not been taught yet
        (X, y), own = self.test, self.own
        if not self.overlap and self.public is not None and len(self.public):
            apart = ~self.comparison.tests_among(self.public)
            X, y, own = X[apart], y[apart], own[apart]
        if not len(X):
            raise InvalidInput("all its test rows are among the public rows", where=self._where)
        last = self.chooser.choices[-1:] if self.chooser is not None else []
        model = self._changes, [replace(one, round=0) for one in last]
        if self._measured is None or self._measured[0] != model:
            truth = y if self.outcome is not None else self._targets(y, y)
            values = metrics_of(self.predict(X), truth, own, kind=self.kind, outcome=self.outcome)
            self._measured = model, values
        values = self._measured[1]  # a model that stayed as it was is not measured again
        if self.digits is not None:
            values = {name: float(f"{value:.{self.digits}g}") for name, value in values.items()}
        return len(self.test[0]), values
