"""A party: its private data, its model and the rules of its owner; this module sends no data."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed, odd_name
from consilience.core.files import inside, write_folder
from consilience.core.learners import FixedLearner, Learner, as_learner, kind_told_by, suited_to
from consilience.core.messages.replies import Description
from consilience.core.messages.schema import VERSION, Agreement, Public
from consilience.core.metrics.metrics import metrics_of
from consilience.core.numerics.outcomes import Classes, Outcome
from consilience.core.numerics.randomness import stream
from consilience.core.party import state
from consilience.core.party.joined_rows import JoinedRows
from consilience.core.party.joining import Joining
from consilience.core.party.outbox import Outbox, PartyFeature, PrivateTraining
from consilience.core.party.own_rows import OwnRows
from consilience.core.party.personalizer import Chooser, Purpose
from consilience.core.party.row_scores import Scores
from consilience.core.party.rules import PartyRules
from consilience.core.party.trainer import Trainer
from consilience.core.registry import registered_object
from consilience.core.validation.arrays import read_only, same_rows
from consilience.core.validation.numbers import check_choice, check_number

_LOOKED_AT = 200
"""Largest number of test rows that are compared with the public rows."""


class Party:
    """One participant: private rows, a model of any kind, and optionally local test rows.

    A party without ``y`` *learns only*: it sends no predictions, keeps no local model, and is taught on the
    public rows. Public rows near its own unlabelled rows get a larger weight, if this lowers its estimated
    loss (:mod:`.importance`). A party with a :class:`~.FixedLearner` answers and is never taught; it needs no
    private rows.

    Args:
        name: name, unique within the federation; results are ordered by it.
        model: any model accepted by :func:`consilience.core.learners.as_learner`. The party trains a copy and
            never changes the original.
        X: private inputs, shape ``(n, ...)``, or ``(n,)`` strings for text; or a table (pandas, or any object
            with ``__arrow_c_stream__``), read by the names, kinds and categories of the public rows' columns
            (:class:`consilience.tables.PrivateTable` sets the details); ``None`` for no rows.
        y: private labels, shape ``(n,)``, or values ``(n,)`` or ``(n, n_targets)``; ``None`` for no labels.
        test: ``(X_test, y_test)``, used only for evaluation: a local or a global test set. A third item holds
            weights of the test rows as own rows, shape ``(n_test,)``, 0 or more; the default is 1 for rows of
            the classes in ``y`` and 0 for others, and 1 for all in regression.
        calibration: share of the private rows held out from training, in [0, 1); density estimates and early
            stopping use them (Kovalchuk et al. 2026 use 0.2).
        purpose: target population of the predictions after distillation. ``"own"`` mixes the local model with
            the distilled model so that the party's own rows do not lose accuracy; ``"everyone"`` mixes them
            for the rows of all parties; ``"taught"`` uses the distilled model and keeps no local model.
        outcome: coding of the targets. :class:`.Classes` declares classes or gives aliases for labels. Other
            outcomes, such as survival, must be the same at all parties; they use a classifier, and ``y``
            holds the input of the outcome.
        rules: rules on the data that the party accepts and releases; ``None`` uses the defaults of
            :class:`.PartyRules`.

    Attributes:
        rows: private rows and test rows.
        rules: rules of the party.
        outbox: stages that process every reply; joining and restoring do not change them.
        public: public rows at the party; ``None`` before there are any.

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
        test: tuple[Any, ...] | None = None,
        calibration: float = 0.2,
        purpose: Purpose = "own",
        outcome: Outcome | Classes | None = None,
        rules: PartyRules | None = None,
    ) -> None:
        where = f"party {name!r}"
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"a name is a text, and this is {name!r}", where="party")
        if why := odd_name(name):
            raise InvalidInput(f"this is no name of a party: {why}", where=where[:100])
        check_number("calibration", calibration, at_least=0, below=1, where=where)
        check_choice("purpose", purpose, get_args(Purpose), where=where)
        for argument, given, kinds, wanted in (
            ("outcome", outcome, Outcome | Classes, "an Outcome or Classes"),
            ("rules", rules, PartyRules, "PartyRules"),
        ):
            if given is not None and not isinstance(given, kinds):
                raise InvalidInput(
                    f"{argument} is {type(given).__name__}", where=where, mend=f"Give {wanted}."
                )
        coded = outcome if isinstance(outcome, Outcome) else None
        kind = kind_told_by(model, () if y is None else y) if coded is None else "classification"
        self.name, self._purpose = str(name), purpose  # numpy's strings are texts too
        self.prototype: Learner = suited_to(as_learner(model, kind=kind), coded)
        self.rules = PartyRules() if rules is None else rules
        self.rows = OwnRows(
            self.name,
            X,
            y,
            test=test,
            calibration=calibration,
            learner=self.prototype,
            outcome=outcome,
        )
        self.outbox = Outbox()
        self.features: dict[str, PartyFeature] = {}
        self.public: Public | None = None
        self.home: Path | None = None
        self._private_training: PrivateTraining | None = None
        self._trainer: Trainer | None = None
        self._measured: tuple[Any, dict[str, float]] | None = None

    def __repr__(self) -> str:
        return f"Party({self.name!r}, {self.prototype!r}, {len(self.rows.X):,} rows)"

    # --- what its owner sets ----------------------------------------------------------------------

    def keep_to(self, rules: PartyRules) -> None:
        """Replace the rules of the party from the next join on."""
        self.rules = rules

    def hold_public(self, public: Public | None) -> None:
        """Set the public rows, which are used once the parties agree on them; ``None`` removes them."""
        self.public = public

    def keep_states_in(self, home: Path) -> None:
        """Set the folder for saved states, which need not exist yet."""
        self.home = home

    def train_privately(self, training: PrivateTraining | None) -> None:
        """Replace the usual training on private rows; ``None`` restores it."""
        self._private_training = training
        if self._trainer is not None:
            self._trainer.use_private_training(training)

    def keep_answers(self, file: Path) -> None:
        """Cache the answers of a fixed model in a file, and load the answers already stored there.

        Args:
            file: the file. The call has no effect for a trained model.
        """
        if isinstance(self.prototype, FixedLearner):
            self.prototype.keep_answers(file)

    def bound_answers(self, most: int) -> None:
        """Limit the total number of rows that a fixed model answers; trained models have no such limit."""
        if isinstance(self.prototype, FixedLearner):
            self.prototype.bound_answers(most)

    def feature(self, name: str) -> Any:
        """Return the state of a feature at this party, made on the first call.

        Args:
            name: name of the entry point in ``consilience.party_features``.

        Returns:
            The state of the feature.
        """
        if name not in self.features:
            self.features[name] = registered_object(state.FEATURES, name)(self)
        return self.features[name]

    # --- before the first round -------------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        """Whether the model is fixed: it answers, and is never trained."""
        return isinstance(self.prototype, FixedLearner)

    def describe(self) -> Description:
        """Describe the party: its classes and its kind of learner, without data."""
        rows, abilities = self.rows, self.prototype.abilities
        return Description(
            party=self.name,
            kind=rows.kind,
            classes=rows.classes,
            outputs=rows.targets,
            soft_targets=abilities.how,
            fewest_classes=1 if abilities.soft_targets == "native" else 2,
            tested=rows.test is not None,
            # With a budget, what the columns of a table hold is an answer about rows.
            row="any" if self.outbox.discreet else rows.form(self.rules.keys.secret),
            version=VERSION,
            public=() if self.public is None else (self.public.key,),
            takes_public=self.rules.public.most_bytes,
            ratios=self.rules.ratios,
            labelled=rows.labelled,
            frozen=self.frozen,
            outcome="" if rows.outcome is None else rows.outcome.key,
            target_key=rows.target_key,
        )

    def check_public(self, public: Public) -> None:
        """Raise ``InvalidInput`` unless the party takes public rows, and these look like its own rows."""
        self.rules.public.check_sent(self.name)
        self._apart(self._read_by_checked(public))

    def take_public(self, public: Public) -> None:
        """Take public rows that the coordinator sends, once they look like its own rows."""
        self.check_public(public)
        self.hold_public(public)

    def read_public(self, public: Public) -> None:
        """Set public rows chosen by the owner, and read the private rows by their columns.

        Raises:
            InvalidInput: they have other columns, or their values differ too much from the private rows.
        """
        self.hold_public(self._read_by(public))

    def _read_by(self, public: Public) -> Public:
        """Read the private rows by the columns of public rows, and return these rows."""
        discreet, redact = self.outbox.discreet, self.rules.redact_errors
        return self.rows.read_by(public, discreet=discreet, redact=redact)

    def _read_by_checked(self, public: Public) -> Public:
        """Read the private rows like :meth:`_read_by`; refuse copied or crowded rows of the coordinator."""
        public = self._read_by(public)
        if len(public) and self.rules.public.sent and self.rows.comparison.crowded(public):
            raise InvalidInput(
                "most public rows are copies of one another, or lie around one point",
                where=f"party {self.name!r}",
            )
        return public

    def _apart(self, public: Public) -> Any:
        """Mark the private rows to train on, given these public rows; shape ``(n,)``, bool."""
        if self.rules.public.overlap:
            return np.ones(len(self.rows.X), dtype=bool)
        return self.rows.private_apart(public, discreet=self.outbox.discreet)

    # --- in a federation --------------------------------------------------------------------------

    @property
    def agreement(self) -> Agreement | None:
        """Agreement of the federation; ``None`` before the party has joined."""
        return None if self._trainer is None else self._trainer.agreement

    @property
    def trainer(self) -> Trainer:
        """Training and prediction of the model."""
        if self._trainer is None:
            raise RunFailed("it has not joined", where=f"party {self.name!r}", code="not-joined")
        return self._trainer

    def join(self, agreement: Agreement) -> tuple[str, ...]:
        """Join a federation with an untrained model.

        Args:
            agreement: agreement of the federation.

        Returns:
            Notes; empty if the party excludes private rows among the public ones, because a note could reveal
            their number.

        Raises:
            InvalidInput: the public data are not the agreed ones or do not look like the private ones,
                or the model cannot take them.
        """
        discreet, overlap = self.outbox.discreet, self.rules.public.overlap
        if self.public is not None and self.rules.public.encoder is not None:
            self.hold_public(self.public.with_encoder(self.rules.public.encoder))
        sent = self.rules.public.sent
        joining = Joining(self.name, agreement, self.rows, self.frozen, sent, discreet)
        self.hold_public(public := joining.check(self.public))
        if discreet and (lacking := sorted(set(self.rows.declared) - set(agreement.classes))):
            raise InvalidInput(
                f"class {lacking[0]!r} was not agreed on", where=f"party {self.name!r}"
            )
        self.hold_public(public := self._read_by_checked(public))
        # A function of parts, and no method: the trainer would keep the party in memory.
        make = partial(_untrained, self.prototype, self.rows, agreement)
        learner = make()
        joining.check_model(learner, public)
        rows = self._joined_rows(joining, public)
        scores = Scores(rows, self.rules)
        self._trainer = Trainer(
            learner,
            make,
            scores,
            self._chooser(scores),
            private_training=self._private_training,
            least_alpha=self.rules.least_alpha,
        )
        for feature in self.features.values():
            feature.joined()
        if self._private_training is not None:
            self._private_training.costs()  # raises for a network that cannot be trained so
        return (*self.rows.notes, *self._trainer.rare, *self._tested_on_public()) if overlap else ()

    def renewed(self) -> Party:
        """Return the same party in the same federation, untrained, without stages and features."""
        other, trainer = copy.copy(self), self.trainer
        other.outbox, other.features, other._private_training = Outbox(), {}, None
        other._trainer = trainer.renewed()
        return other

    def leave(self) -> None:
        """Leave the federation, and discard the model trained in it."""
        self._trainer = None

    def _joined_rows(self, joining: Joining, public: Public) -> JoinedRows:
        """Exclude rows, code the targets of the others, and split them."""
        agreement, own, discreet = joining.agreement, self.rows, joining.discreet
        secret = self.rules.keys.secret
        rng = partial(stream, agreement.seed, self.name, 0, "calibration", secret=secret)
        apart = self._apart(public)
        X, y, held_out, train_rows = own.split(apart, agreement, rng)
        targets = np.zeros((0, agreement.outputs))
        if self._private_training is None:  # which alone looks at private rows
            with self.outbox.suppressing_errors():
                joining.check_outputs(public, own.outputs_held)
                targets = own.coded(y, y[~held_out], agreement)
        known, held_out = X[: len(targets)], held_out[: len(targets)]  # none without labels
        calibrated = own.calibrated and self._private_training is None
        if self.prototype.abilities.validation and not (calibrated if discreet else held_out.any()):
            raise InvalidInput(
                "its model chooses by calibration rows, and there are none",
                where=f"party {self.name!r}",
                mend="Give a calibration share above 0, such as 0.2; training with noise has none.",
            )
        if own.test is not None and not discreet:
            own.coded(own.test[1], own.y, agreement)  # raises for a class that was not agreed on
        return JoinedRows(
            party=self.name,
            agreement=agreement,
            public=public,
            used=(read_only(X), targets),
            train=(read_only(known[~held_out]), targets[~held_out]),
            held_out=(read_only(known[held_out]), targets[held_out]),
            whole=read_only(own.X),
            left_out=len(own.X) - int(apart.sum()),
            train_rows=train_rows,
            held_out_y=None if own.outcome is None else read_only(y[: len(targets)][held_out]),
            secret=secret,
        )

    def _chooser(self, scores: Scores) -> Chooser | None:
        """Make the chooser of the mixture of local and distilled model, if the party keeps both."""
        keeps = self.rows.labelled and not self.frozen and self._private_training is None
        if self._purpose == "taught" or not keeps or not len(scores.rows.public):
            return None
        return Chooser(self._purpose, scores)

    def _tested_on_public(self) -> tuple[str, ...]:
        """Return a note if most test rows are also public rows."""
        test, public = self.rows.test, self.public
        if test is None or public is None or not len(public):
            return ()
        some = test[0][:: -(-len(test[0]) // _LOOKED_AT)]
        if same_rows(some, public.X).mean() <= 0.5:
            return ()
        return ("most of its test rows are public rows too, on which it is taught",)

    def evaluate(self) -> tuple[int, dict[str, float]]:
        """Evaluate the model on the test rows.

        Returns:
            Number of test rows, and the metrics of :mod:`consilience.core.metrics.metrics`, over all test
            rows and, with the suffix ``_own``, over own rows. The metrics are empty for a party that learns
            only and was not taught yet. Without ``overlap``, the metrics exclude test rows among the public
            rows. The number includes them, because the difference would reveal their number.

        Raises:
            InvalidInput: there are no test rows, or all are public rows.
        """
        rows, trainer = self.rows, self.trainer
        if rows.test is None:
            raise InvalidInput("it holds no test data", where=f"party {self.name!r}")
        if not (rows.labelled or trainer.learner.fitted):
            return len(rows.test[0]), {}
        (X, y), own = rows.test, rows.own
        if not self.rules.public.overlap and len(trainer.public):
            X, y, own = rows.tests_apart(trainer.public)
        chooser = trainer.chooser
        last = [] if chooser is None else [replace(one, round=0) for one in chooser.choices[-1:]]
        model = trainer, trainer.changes, last
        if self._measured is None or self._measured[0] != model:  # else it is as it was
            truth = y if rows.outcome is not None else rows.coded(y, y, trainer.agreement)
            outputs = trainer.predict(X)
            self._measured = (
                model,
                metrics_of(outputs, truth, own, kind=rows.kind, outcome=rows.outcome),
            )
        return len(rows.test[0]), self._measured[1]

    # --- its state --------------------------------------------------------------------------------

    def save(self, label: str, *, keep: str) -> None:
        """Save the state (:mod:`.party.state`) completely or not at all, and delete other states.

        Args:
            label: name of the state's folder in ``home``.
            keep: name of another state to keep.

        Raises:
            InvalidInput: the party has no folder for its states.
            RunFailed: the state cannot be written.
        """
        folder = self._state_folder(label)
        try:
            write_folder(folder, partial(self.write_state, checkpoint=True), replace=True)
        except OSError as error:
            raise RunFailed(
                f"its state cannot be written ({error.strerror})",
                where=f"party {self.name!r}",
                mend=f"Free some space below {folder.parent}, then resume the run.",
            ) from error
        if (chooser := self.trainer.chooser) is not None:
            chooser.moved_to(folder)  # the folder was written under another name
        state.delete_states(folder.parent, but={label, keep})

    def restore(self, label: str) -> None:
        """Load the state that :meth:`save` wrote."""
        folder = self._state_folder(label)
        if not folder.is_dir():
            raise RunFailed(
                f"it has no state of {label}", where=f"party {self.name!r}", code="not-joined"
            )
        self.read_state(folder)

    def write_state(
        self,
        folder: Path,
        *,
        before: Path | None = None,
        keeps_model: bool = False,
        checkpoint: bool = False,
    ) -> None:
        """Write the state as files of an empty folder.

        Args:
            folder: the folder.
            before: folder of the previous state; files with equal content are shared with it.
            keeps_model: whether the model equals that of the previous state, which is then shared too.
            checkpoint: whether the state is a checkpoint of a run, which excludes some features.
        """
        files = state.feature_files(self.features, checkpoint=checkpoint)
        found = self.rows.comparison.found
        state.write_state(
            self.trainer, folder, files, found, before=before, keeps_model=keeps_model
        )

    def read_state(self, folder: Path) -> None:
        """Load the state of a folder; the party must have joined.

        Later releases of the features, such as privacy releases, stay recorded.

        Args:
            folder: the folder of the state.

        Raises:
            RunFailed: the state has another format, or is damaged.
        """
        state.read_state(self.trainer, folder)
        self.read_features(folder)

    def read_features(self, folder: Path, *, only: bool = False) -> None:
        """Load the features of a state, such as releases of privacy.

        Args:
            folder: folder of the state.
            only: whether to discard the releases that the features made after the state was written.

        Raises:
            RunFailed: a file is damaged.
        """
        state.read_features(self.feature, self.features, folder, only=only)

    def join_again(self, folder: Path) -> None:
        """Join the federation of a saved state, with the cached comparison of rows.

        Args:
            folder: folder of the state.

        Raises:
            RunFailed: the state has another format, or is damaged.
            InvalidInput: the data of the party have changed, and do not fit any more.
        """
        agreement, found = state.read_joined(folder)
        self.rows.comparison.recall(found)
        self.join(agreement)

    def _state_folder(self, label: str) -> Path:
        """Return the folder of a saved state.

        Raises:
            InvalidInput: the party has no folder for its states.
            RunFailed: a link leads out of it.
        """
        if self.home is None:
            raise InvalidInput(
                "it has no folder to keep its state in", where=f"party {self.name!r}"
            )
        return inside(self.home / label, self.home)


def _untrained(prototype: Learner, rows: OwnRows, agreement: Agreement) -> Learner:
    """Make an untrained learner of the agreed number of outputs."""
    learner = copy.deepcopy(prototype)
    learner.bind(agreement.outputs, rows.schema)
    learner.ordered = rows.outcome is not None
    if isinstance(learner, FixedLearner) and learner.classes:
        learner.align(agreement.classes, rows.names_of_fixed)
    learner.labels = rows.label_columns(agreement)
    return learner
