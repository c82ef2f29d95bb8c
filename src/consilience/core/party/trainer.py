"""Training at a party: on its private rows, towards a teacher, and with others' parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
from scipy.special import softmax

from consilience.core.errors import InvalidInput
from consilience.core.learners import (
    FixedLearner,
    GradientCorrection,
    Learner,
    Model,
    Parametric,
    Steps,
)
from consilience.core.messages.columns import Schema
from consilience.core.messages.schema import Agreement, Public
from consilience.core.numerics.calibration import Calibration
from consilience.core.numerics.outcomes import Outcome
from consilience.core.numerics.randomness import stream
from consilience.core.numerics.target_units import far_larger, other_unit, same_size
from consilience.core.party.history import beginning, continued, unknown
from consilience.core.party.importance import weights_that_serve
from consilience.core.party.mixed_model import MixedModel
from consilience.core.party.outbox import PrivateTraining
from consilience.core.party.personalizer import ALPHAS, Chooser, Lesson, stands_still, surely_lower
from consilience.core.party.row_scores import Scores
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind

WITH_NOISE = "trained with noise"
"""What a party's memory holds while its network comes of a release with noise and of public rows alone."""


class Training:
    """Training of a party's model, and its predictions: the half of :class:`~.party.Party` for protocols.

    Args:
        name: the party's name.
        prototype: the untrained learner.
        trusts: packages whose models it accepts from others; ``None`` for the default.
        sends_rows: whether a model that holds rows it was trained on may be sent to others.
        secret: what its random streams are mixed with.
    """

    def __init__(
        self,
        name: str,
        prototype: Learner,
        *,
        trusts: Sequence[str] | None = None,
        sends_rows: bool = False,
        secret: bytes = b"",
    ) -> None:
        self.name, self._where = name, f"party {name!r}"
        self._prototype = prototype
        self.kind: Kind = prototype.abilities.kind
        self.trusts = None if trusts is None else tuple(trusts)
        self.sends_rows = sends_rows
        self.secret = secret
        """Mixed into its random streams; it leaves with nothing."""
        self.chooser: Chooser | None = None
        """Chooses between its model trained alone and the taught one; ``None`` for the taught one."""
        self.least_alpha = 0.0
        """The least weight of its private rows in a refit, whatever is asked for."""
        self.private_training: PrivateTraining | None = None
        """Training that takes the place of its own on private rows; ``None`` for its own."""
        self.schema: Schema | None = None
        """What the columns of its rows are, where they are a table's."""
        self.outcome: Outcome | None = None
        """What its classes are bins of; ``None`` where they are classes."""
        self.public: Public | None = None
        self.agreement: Agreement | None = None
        self.history = ""
        """Digest of all that its answers depend on and that the coordinator chose; once it has joined."""
        self.memory: dict[str, Array] = {}
        """Arrays that it remembers from round to round, for itself or a protocol; part of its state."""
        self._changes = 0
        self._public_outputs: dict[tuple[str, bool, int], Array] = {}
        self._train: tuple[Array, Array]
        self._held_out: tuple[Array, Array]
        self.scores: Scores

    def begin(self, agreement: Agreement) -> None:
        """Begin anew with an untrained model of the agreed number of outputs."""
        self.agreement, self.history = agreement, beginning(agreement, self.public)
        self.learner: Learner = self.untrained()
        self.model_changed()

    @property
    def prototype(self) -> Learner:
        """Its untrained learner."""
        return self._prototype

    def set_private_training(self, training: PrivateTraining | None) -> None:
        """Have its model trained on private rows in another way; ``None`` for its own."""
        self.private_training = training

    def remember(self, task: object) -> None:
        """Add a task to its history, before it runs.

        Without an agreement, or in a federation too large for secure sums, it has none.
        """
        if self.agreement is not None and self.agreement.summed:
            self.history = continued(self.history, task)

    def forget(self) -> None:
        """Take on a history that no other party has, because it is not known what its answers depend on."""
        self.history = unknown()

    def stream(self, round: int, purpose: str) -> np.random.Generator:
        """Random numbers for one purpose in one round
        (:func:`consilience.core.numerics.randomness.stream`)."""
        assert self.agreement is not None
        return stream(self.agreement.seed, self.name, round, purpose, secret=self.secret)

    def model_changed(self) -> None:
        """Note that the model is another one: earlier predictions on the public rows no longer hold."""
        self._changes += 1

    def changing(self) -> Learner:
        """The learner, to be fitted or loaded; noted as changed."""
        if self.private_training is None:
            self.memory.pop(WITH_NOISE, None)
        self.model_changed()
        return self.learner

    @property
    def rare(self) -> tuple[str, ...]:
        """Remarks on classes of fewer training rows than a leaf of its model's trees; once it has joined."""
        if self.agreement is None or not self.agreement.classes or self.outcome is not None:
            return ()
        least = self._prototype.least_leaf
        both = zip(self.agreement.classes, self._train[1].sum(axis=0).astype(int), strict=True)
        return tuple(
            f"it trains on {rows:,} row{'s' if rows > 1 else ''} of class {name!r}, and a leaf of its "
            f"model's trees holds {least} or more, so that it may never answer with that class: lower its "
            "option min_samples_leaf or min_child_samples, or take another model"
            for name, rows in both
            if 0 < rows < least
        )

    @property
    def trained(self) -> bool:
        """True if it has a trained model."""
        return self.learner.fitted

    @property
    def training(self) -> tuple[Array, Array]:
        """The private rows that are trained on: inputs ``(n, ...)`` and targets ``(n, n_outputs)``."""
        return self._train

    @property
    def labels(self) -> Array:
        """The private labels that are trained on, as rows of outputs, shape ``(n, n_outputs)``."""
        return self._train[1]

    def model(self) -> Model:
        """A copy of the trained model, or of the two that it mixes, to keep and predict with."""
        return self._model(copy.deepcopy)

    def predict(self, X: Array) -> Array:
        """Predict rows as the party has chosen to, shape ``(n, n_outputs)``; its own, not what it sends.

        Args:
            X: inputs, shape ``(n, ...)``.
        """
        return self._model(lambda learner: learner).outputs(X)

    def _model(self, of: Callable[[Learner], Learner]) -> Model:
        """The model as it stands, made of learners that a function gives."""
        assert self.agreement is not None
        chooser, classes = self.chooser, self.agreement.classes
        if chooser is None or chooser.alone is None or not chooser.choices:
            return Model(of(self.learner), classes, self.outcome)
        return MixedModel(
            of(self.learner),
            classes,
            alone=of(chooser.alone),
            choices=chooser.choices,
            region=chooser.region if chooser.choices[-1].asks_region else None,
            outcome=self.outcome,
        )

    def outputs(self, kind: str, *, calibrated: bool = False) -> Array:
        """Probabilities, logits or values on the public rows, shape ``(n_public, n_outputs)``.

        They are computed once for each state of the model.

        Args:
            kind: ``"probabilities"``, ``"logits"`` or ``"values"``.
            calibrated: correct them by the calibration rows
                (:class:`~consilience.core.numerics.calibration.Calibration`); not for values.
        """
        assert self.public is not None
        if self.private_training is not None:
            self.private_training.check_trained()
        key = kind, calibrated, self._changes
        if key not in self._public_outputs:
            if calibrated:
                raw, (X, targets) = self.outputs("logits"), self._held_out
                known = self.learner.logits(X) if len(X) else targets
                found = Calibration.fit(known, targets).of(raw)
                found = found if kind == "logits" else softmax(found, axis=1)
            else:
                ask = self.learner.logits if kind == "logits" else self.learner.predict
                found = ask(self.public.X)
            kept = self._public_outputs.items()
            current = {one: values for one, values in kept if one[2] == self._changes}
            self._public_outputs = current | {key: found}
        return self._public_outputs[key]

    # --- where predictions are exchanged ----------------------------------------------------------

    def fit_private(self, round: int) -> None:
        """Stage 1: train on private rows; with noise, where the party's budget says so, and once.

        A learner that starts anew on every fit was last trained on the private rows *and* the last
        teacher (:meth:`distill`); training it on the private rows alone would forget the teacher, so it
        is left as it is.
        """
        if self.private_training is not None:
            self.private_training.fit()
            return
        if self.learner.fitted and not self.learner.abilities.incremental:
            return
        X, targets = self._train
        if not len(X):
            raise InvalidInput("it learns only: it has no labels to train on", where=self._where)
        self.changing().fit(
            X,
            targets,
            rng=self.stream(round, "fit"),
            validation=self._validation,
            phase="private" if self.learner.fitted else "first",
        )

    def distill(
        self,
        round: int,
        targets: Array,
        alpha: float,
        taught: Array | None = None,
        *,
        free_alpha: bool = False,
        share: float | None = None,
        chooses: bool = True,
    ) -> tuple[str, ...]:
        """Stage 2: train towards the teacher on the public rows, and choose how to mix what comes of it.

        An incremental learner goes on from where it is, on the public rows. One that starts anew refits
        on private plus public rows, weighted ``alpha / N`` and ``(1 - alpha) / N_p`` a row, the weights
        of Park et al. 2023, scaled so that they sum to ``N + N_p``.

        Args:
            round: the round, for the random stream.
            targets: the teacher, shape ``(n_public, n_outputs)``.
            alpha: the weight of the private rows in (0, 1); it is :attr:`least_alpha` at least.
            taught: which public rows to train on, shape ``(n_public,)``, bool; all by default, and where
                it is none the model stays as it is.
            free_alpha: whether the party may take a larger weight, which it tries when it is first taught
                and keeps, and may leave a model that starts anew as it is while the teacher stands still.
            share: weight of own rows among everyone's, for the purpose ``"everyone"``; ``alpha`` by default.
            chooses: whether it chooses how to mix what it has learned with its model alone; a model that
                all will hold is taught as it is.

        Returns:
            Notes for the ledger.

        Raises:
            InvalidInput: the teacher has another shape, or its values are in another unit than its own.
        """
        assert self.public is not None
        if isinstance(self.learner, FixedLearner):
            return ("it is frozen, and is not taught",)
        expected = (len(self.public), self.learner.n_outputs)
        if targets.shape != expected:  # what else may be wrong with them the learner checks
            raise InvalidInput(
                f"the teacher has shape {targets.shape}, expected {expected}", where=self._where
            )
        targets = np.array(targets, dtype=np.float64)  # a copy: others are taught by them too
        if chooses:
            self._check_unit(targets)
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
        chooser, abilities = self.chooser if chooses else None, self.learner.abilities
        if chooser is not None and chooser.alone is None:
            if not self.learner.fitted:
                self.fit_private(round)
            chooser.alone = copy.deepcopy(self.learner)
        if chooser is not None and free_alpha and taught is None and not abilities.incremental:
            before, last = self.memory.get("teacher"), chooser.choices[-1:]
            if last and before is not None and stands_still(before, targets, self.kind):
                chooser.choices.append(replace(last[0], round=round))
                return ()
            self.memory["teacher"] = targets.astype(np.float32)
        lesson, share = Lesson(round, public, targets), alpha if share is None else share
        notes: tuple[str, ...] = ()
        if abilities.incremental or not len(self._train[0]):
            self.changing().fit(
                lesson.public,
                lesson.targets,
                rng=self.stream(round, "distill"),
                weights=self._importance(lesson, taught),
                phase="distill" if self.learner.fitted else "first",
            )
        elif abilities.sample_weight:
            if alpha < self.least_alpha:
                notes = (f"private rows weigh {self.least_alpha:g}, its least, and not {alpha:g}",)
                alpha = self.least_alpha
            if chooser is not None and free_alpha:
                self._refit_with_best_alpha(chooser, lesson, alpha, share)
                return notes
            self._refit(self.changing(), lesson, alpha)
        else:
            notes = ("the model takes no row weights: private and public rows count alike",)
            self._refit(self.changing(), lesson, None)
        if chooser is not None:
            used = alpha if abilities.sample_weight and not abilities.incremental else None
            choice, _ = chooser.choose(self.learner, lesson, alpha=used, share=share)
            chooser.choices.append(choice)
        return notes

    def _check_unit(self, targets: Array) -> None:
        """Raise ``InvalidInput`` if a teacher's values are in another unit than those of the own model."""
        own = self._train[1]
        if self.kind != "regression" or not self.learner.fitted or not len(own):
            return
        answers = self.outputs("values")
        if not same_size(answers, own):  # a model that says little of the unit
            return
        if other_unit(targets, answers) or far_larger(targets, answers):
            raise InvalidInput(
                "the teacher's values seem to be in another unit than its own",
                where=self._where,
                mend="Bring the targets of all parties to one unit.",
            )

    def _importance(self, lesson: Lesson, taught: Array | None) -> Array | None:
        """Weights of the public rows for a party without labels; ``None`` for others, and where all are 1."""
        abilities = self.learner.abilities
        if len(self._train[0]) or abilities.incremental or not abilities.sample_weight:
            return None
        weights = self.scores.importance()
        if weights is None:
            return None
        weights = weights if taught is None else weights[taught]
        rng = partial(self.stream, lesson.round)
        return weights_that_serve(self.untrained, lesson, weights, rng)

    def _refit(self, learner: Learner, lesson: Lesson, alpha: float | None) -> None:
        """Fit a learner anew to private and public rows; ``alpha`` is ``None`` where it takes no weights."""
        X, private = self._train
        n, n_public = len(X), len(lesson.public)
        weights: Array | None = None
        if alpha is not None:
            share = np.repeat([alpha / n, (1 - alpha) / n_public], [n, n_public])
            weights = share * (n + n_public)
        learner.fit(
            np.concatenate([X, lesson.public]),
            np.concatenate([private, lesson.targets]),
            rng=self.stream(lesson.round, "distill"),
            weights=weights,
            validation=self._validation,
            phase="distill",
        )

    def _refit_with_best_alpha(
        self, chooser: Chooser, lesson: Lesson, alpha: float, share: float
    ) -> None:
        """Refit with the weight of private rows that the party keeps, or tries now; at least ``alpha``.

        For the purpose ``"everyone"`` own rows count with ``share`` in the choice.
        """
        if chooser.choices and (kept := chooser.choices[-1].alpha) is not None:
            alpha = max(alpha, kept)
        self._refit(self.changing(), lesson, alpha)
        choice, losses = chooser.choose(self.learner, lesson, alpha=alpha, share=share)
        if not chooser.choices and chooser.purpose == "own" and choice.taught_is_worse:
            for larger in (one for one in ALPHAS if one > alpha):
                learner = self.untrained()
                self._refit(learner, lesson, larger)
                other, now = chooser.choose(learner, lesson, alpha=larger, share=share)
                if not surely_lower(now, losses):
                    break
                self.learner, choice, losses = learner, other, now
        chooser.choices.append(choice)

    # --- where parameters are exchanged -----------------------------------------------------------

    def adopt(self, values: Mapping[str, Array]) -> None:
        """Set the model's parameters, by name."""
        self._changing_parameters().set_parameters(values)

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
            Number and size of the steps that were made.
        """
        X, targets = self._train
        return self._changing_parameters().fit_corrected(
            X,
            targets,
            rng=self.stream(round, "fit"),
            correction=GradientCorrection(strength, correction),
            validation=self._validation,
        )

    def predict_private(self) -> Array:
        """Predict the private rows that are trained on with the own model, shape ``(n, n_outputs)``."""
        return self.learner.predict(self._train[0])

    def fit_on_mixed_targets(
        self, round: int, predictions: Array, label_weight: float, *, warm_start: bool = False
    ) -> None:
        """Train a model on private inputs, towards ``label_weight`` times the labels plus predictions.

        Where that fails, the party keeps the model that it had.

        Args:
            round: the round, for the random stream.
            predictions: what is added to the labels, shape ``(n, n_outputs)``.
            label_weight: the weight of the private labels in [0, 1].
            warm_start: go on from the own model, if its kind trains incrementally; else train a new one.
        """
        X, y = self._train
        goes_on = warm_start and self.trained and self.learner.abilities.incremental
        new = copy.deepcopy(self.learner) if goes_on else self.untrained()
        new.fit(
            X,
            label_weight * y + predictions,
            rng=self.stream(round, "fit"),
            validation=self._validation,
            phase="first",
        )
        self.learner = new
        self.model_changed()

    def _changing_parameters(self) -> Parametric:
        """The learner of a party that exchanges parameters; noted as changed."""
        return cast(Parametric, self.changing())  # checked where its parameters were asked for

    def untrained(self) -> Learner:
        """A new model of the agreed number of outputs."""
        assert self.agreement is not None
        learner = copy.deepcopy(self._prototype)
        learner.bind(self.agreement.outputs, self.schema)
        learner.ordered = self.outcome is not None
        return learner

    @property
    def _validation(self) -> tuple[Array, Array] | None:
        """The calibration rows, if there are any."""
        return self._held_out if len(self._held_out[0]) else None
