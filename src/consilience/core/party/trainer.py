"""Training at a party: on its private rows, towards a teacher, and with others' parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
from consilience.core.numerics.calibration import Calibration
from consilience.core.numerics.outcomes import outcome_of
from consilience.core.numerics.target_units import far_larger, other_unit, same_size
from consilience.core.party.history import TaskHistory
from consilience.core.party.importance import weights_that_serve
from consilience.core.party.memory import Memory
from consilience.core.party.mixed_model import MixedModel
from consilience.core.party.outbox import PrivateTraining
from consilience.core.party.personalizer import ALPHAS, Chooser, Lesson, stands_still, surely_lower
from consilience.core.party.row_scores import Scores
from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

WITH_NOISE = "trained with noise"
"""Name in a party's memory that marks a network trained with noise on private rows.

The mark also requires that the network was trained on public rows alone since.
"""


@prints_no_rows
@dataclass(frozen=True)
class Teaching:
    """A teacher of a round, and the settings of the distillation.

    Attributes:
        round: the round.
        targets: the teacher, shape ``(n_public, n_outputs)``.
        alpha: weight of the private rows in (0, 1), for learners that refit on private and public rows.
        taught: mark of the public rows to train on, shape ``(n_public,)``, bool; ``None``, the default, for
            all. If it marks none, the model stays unchanged.
        free_alpha: whether the party may raise ``alpha``, which it tries at the first teacher and then keeps,
            and may skip a refit if the teacher has hardly changed. The default is false.
        share: weight of own rows among all parties' rows, for the purpose ``"everyone"``; ``None``, the
            default, uses ``alpha``.
        chooses: whether the party mixes the distilled model with its local model; the default is true. False
            is for a model that all parties share.
    """

    round: int
    targets: Array
    alpha: float
    taught: Array | None = None
    free_alpha: bool = False
    share: float | None = None
    chooses: bool = True


class Trainer:
    """Training and prediction of a party's model in its federation.

    Args:
        learner: an untrained learner of the agreed number of outputs.
        make: makes another untrained learner of the agreed number of outputs.
        scores: scores of the public rows, with the rows of the party.
        chooser: chooses the mixture of local and distilled model; ``None`` uses the distilled model alone.
        private_training: replacement of the usual training on private rows; ``None`` for the usual one.
        least_alpha: least weight of the private rows in a refit.

    Attributes:
        learner: the learner, trained or not.
        memory: arrays kept from round to round; part of the party's state.
        history: digest of the coordinator's inputs that determine the answers.
    """

    def __init__(
        self,
        learner: Learner,
        make: Callable[[], Learner],
        scores: Scores,
        chooser: Chooser | None,
        *,
        private_training: PrivateTraining | None,
        least_alpha: float,
    ) -> None:
        self._make, self.scores, self.chooser = make, scores, chooser
        self.rows, self.private_training = scores.rows, private_training
        self.agreement, self.public = scores.rows.agreement, scores.rows.public
        self._where = f"party {scores.rows.party!r}"
        self._least_alpha = least_alpha
        self._outcome = outcome_of(self.agreement.outcome)
        self.learner = learner
        self.memory = Memory()
        self.history = TaskHistory(self.agreement, self.public)
        self.changes = 0
        """Number of changes of the model."""
        self._public_outputs: dict[tuple[str, bool, int], Array] = {}

    def renewed(self) -> Trainer:
        """Return an untrained trainer of the same rows, with the usual training on private rows."""
        make, least = self._make, self._least_alpha
        chooser = None if self.chooser is None else Chooser(self.chooser.purpose, self.scores)
        return Trainer(make(), make, self.scores, chooser, private_training=None, least_alpha=least)

    def use_private_training(self, training: PrivateTraining | None) -> None:
        """Replace the usual training on private rows from now on; ``None`` restores it."""
        self.private_training = training

    def untrained(self) -> Learner:
        """Make an untrained learner of the agreed number of outputs."""
        return self._make()

    def model_changed(self) -> None:
        """Record that the model has changed, which invalidates its cached predictions on the public rows."""
        self.changes += 1

    def changing(self) -> Learner:
        """Return the learner for fitting or loading, and record that the model changes."""
        if self.private_training is None:
            self.memory.drop(WITH_NOISE)
        self.model_changed()
        return self.learner

    def replace(self, learner: Learner) -> None:
        """Replace the present learner."""
        self.learner = learner
        self.model_changed()

    @property
    def rare(self) -> tuple[str, ...]:
        """Remarks on classes with fewer training rows than a leaf of the model's trees needs."""
        if not self.agreement.classes or self._outcome is not None:
            return ()
        least = self.learner.least_leaf
        both = zip(self.agreement.classes, self.rows.train[1].sum(axis=0).astype(int), strict=True)
        return tuple(
            f"it trains on {rows:,} row{'s' if rows > 1 else ''} of class {name!r}, and a leaf of its "
            f"model's trees holds {least} or more, so that it may never answer with that class: lower its "
            "option min_samples_leaf or min_child_samples, or take another model"
            for name, rows in both
            if 0 < rows < least
        )

    @property
    def labels(self) -> Array:
        """Targets of the private training rows, shape ``(n, n_outputs)``."""
        return self.rows.train[1]

    def model(self) -> Model:
        """Return a copy of the trained model, or of the mixture of local and distilled model."""
        return self._model(copy.deepcopy)

    def predict(self, X: Array) -> Array:
        """Predict rows with the party's own model or mixture; :meth:`outputs` gives the predictions to send.

        Args:
            X: inputs, shape ``(n, ...)``.

        Returns:
            Shape ``(n, n_outputs)``.
        """
        return self._model(lambda learner: learner).outputs(X)

    def _model(self, of: Callable[[Learner], Learner]) -> Model:
        """Make the current model or mixture; a function returns or copies each learner."""
        chooser, classes = self.chooser, self.agreement.classes
        if chooser is None or chooser.alone is None or not chooser.choices:
            return Model(of(self.learner), classes, self._outcome)
        return MixedModel(
            of(self.learner),
            classes,
            alone=of(chooser.alone),
            choices=chooser.choices,
            region=chooser.region if chooser.choices[-1].asks_region else None,
            outcome=self._outcome,
        )

    def outputs(self, kind: str, *, calibrated: bool = False) -> Array:
        """Compute the model's outputs on the public rows, once for each state of the model.

        Args:
            kind: ``"probabilities"``, ``"logits"`` or ``"values"``.
            calibrated: whether to calibrate them with the calibration rows
                (:class:`~consilience.core.numerics.calibration.Calibration`); not for values. The default is
                false.

        Returns:
            Shape ``(n_public, n_outputs)``.
        """
        if self.private_training is not None:
            self.private_training.check_trained()
        key = kind, calibrated, self.changes
        if key not in self._public_outputs:
            if calibrated:
                raw, (X, targets) = self.outputs("logits"), self.rows.held_out
                known = self.learner.logits(X) if len(X) else targets
                found = Calibration.fit(known, targets).of(raw)
                found = found if kind == "logits" else softmax(found, axis=1)
            else:
                ask = self.learner.logits if kind == "logits" else self.learner.predict
                found = ask(self.public.X)
            kept = self._public_outputs.items()
            current = {one: values for one, values in kept if one[2] == self.changes}
            self._public_outputs = current | {key: found}
        return self._public_outputs[key]

    # --- where predictions are exchanged ----------------------------------------------------------

    def fit_private(self, round: int) -> None:
        """Stage 1: train on private rows; with a private training, as set by the privacy budget, train once.

        A learner that does not train incrementally was last fitted to the private rows *and* the last teacher
        (:meth:`distill`). Training on the private rows alone would discard the teacher, so the method leaves
        a fitted one unchanged.

        Args:
            round: the round, for the random stream.

        Raises:
            InvalidInput: the party has no labels.
        """
        if self.private_training is not None:
            self.private_training.fit()
            return
        if self.learner.fitted and not self.learner.abilities.incremental:
            return
        X, targets = self.rows.train
        if not len(X):
            raise InvalidInput("it learns only: it has no labels to train on", where=self._where)
        self.changing().fit(
            X,
            targets,
            rng=self.rows.stream(round, "fit"),
            validation=self.rows.validation,
            phase="private" if self.learner.fitted else "first",
        )

    def distill(self, teaching: Teaching) -> tuple[str, ...]:
        """Stage 2: train towards the teacher on the public rows, and choose the mixture of the two models.

        An incremental learner continues training on the public rows. Other learners are refitted on private
        plus public rows, weighted ``alpha / N`` and ``(1 - alpha) / N_p`` a row, the weights of Park et al.
        2023, scaled to sum to ``N + N_p``.

        Args:
            teaching: the teacher, and the settings of the distillation.

        Returns:
            Notes for the ledger.

        Raises:
            InvalidInput: the teacher has another shape, or its values are in another unit than its own.
        """
        if isinstance(self.learner, FixedLearner):
            return ("it is frozen, and is not taught",)
        lesson = self._lesson(teaching)
        if not len(lesson.public):
            return ("no public row is taught: the model stays as it is",)
        chooser = self.chooser if teaching.chooses else None
        if chooser is not None:
            self._keep_alone(chooser, teaching.round)
            if self._stands_still(chooser, teaching, lesson):
                return ()
        notes = self._taught(chooser, teaching, lesson)
        # Only now: a fit that failed is tried again by the same teacher.
        if chooser is not None and self._may_stand_still(teaching):
            self.memory.keep(teacher=lesson.targets.astype(np.float32))
        return notes

    def _lesson(self, teaching: Teaching) -> Lesson:
        """Check a teacher, and select the public rows to train on."""
        targets, taught, public = teaching.targets, teaching.taught, self.public.X
        expected = (len(public), self.learner.n_outputs)
        if targets.shape != expected:  # what else may be wrong with them the learner checks
            raise InvalidInput(
                f"the teacher has shape {targets.shape}, expected {expected}", where=self._where
            )
        targets = np.array(targets, dtype=np.float64)  # a copy: others are taught by them too
        if teaching.chooses:
            self._check_unit(targets)
        if taught is None:
            return Lesson(teaching.round, public, targets)
        if taught.dtype != bool or taught.shape != expected[:1]:
            raise InvalidInput(
                f"rows that are taught have shape {taught.shape} and type {taught.dtype}, expected "
                f"{expected[:1]} and bool",
                where=self._where,
            )
        return Lesson(teaching.round, public[taught], targets[taught])

    def _keep_alone(self, chooser: Chooser, round: int) -> None:
        """Keep a copy of the local model before its first distillation."""
        if chooser.alone is None:
            if not self.learner.fitted:
                self.fit_private(round)
            chooser.alone = copy.deepcopy(self.learner)

    def _may_stand_still(self, teaching: Teaching) -> bool:
        """Return true if a refit to the same teacher would give the same model."""
        refits = not self.learner.abilities.incremental
        return teaching.free_alpha and teaching.taught is None and refits

    def _stands_still(self, chooser: Chooser, teaching: Teaching, lesson: Lesson) -> bool:
        """Return true, and repeat the last choice, if the teacher has hardly changed."""
        if not self._may_stand_still(teaching):
            return False
        before, last = self.memory.get("teacher"), chooser.choices[-1:]
        kind = self.agreement.kind
        if last and before is not None and stands_still(before, lesson.targets, kind):
            chooser.choices.append(replace(last[0], round=lesson.round))
            return True
        return False

    def _taught(
        self, chooser: Chooser | None, teaching: Teaching, lesson: Lesson
    ) -> tuple[str, ...]:
        """Fit the model to a lesson, and choose its mixture with the local model; return notes."""
        alpha, abilities = teaching.alpha, self.learner.abilities
        share = alpha if teaching.share is None else teaching.share
        notes = tuple[str, ...]()
        if abilities.incremental or not len(self.rows.train[0]):
            self.changing().fit(
                lesson.public,
                lesson.targets,
                rng=self.rows.stream(lesson.round, "distill"),
                weights=self._importance(lesson, teaching.taught),
                phase="distill" if self.learner.fitted else "first",
            )
        elif abilities.sample_weight:
            if alpha < self._least_alpha:
                notes = (f"private rows weigh {self._least_alpha:g}, its least, and not {alpha:g}",)
                alpha = self._least_alpha
            if chooser is not None and teaching.free_alpha:
                self._refit_with_best_alpha(chooser, lesson, alpha, share)
                return notes
            self._refit(self.changing(), lesson, alpha)
        else:
            notes = ("the model takes no row weights: private and public rows count alike",)
            self._refit(self.changing(), lesson, None)
        if chooser is not None:
            weighted = abilities.sample_weight and not abilities.incremental
            choice, _ = chooser.choose(
                self.learner, lesson, alpha=alpha if weighted else None, share=share
            )
            chooser.choices.append(choice)
        return notes

    def _check_unit(self, targets: Array) -> None:
        """Raise ``InvalidInput`` if a teacher's values are in another unit than those of the own model."""
        own = self.rows.train[1]
        if self.agreement.kind != "regression" or not self.learner.fitted or not len(own):
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
        """Return importance weights of the public rows for a party without labels.

        Returns:
            Shape ``(n_lesson,)``; ``None`` for other parties, and if equal weights are as good.
        """
        abilities = self.learner.abilities
        if len(self.rows.train[0]) or abilities.incremental or not abilities.sample_weight:
            return None
        weights = self.scores.importance()
        if weights is None:
            return None
        weights = weights if taught is None else weights[taught]
        rng = partial(self.rows.stream, lesson.round)
        return weights_that_serve(self.untrained, lesson, weights, rng)

    def _refit(self, learner: Learner, lesson: Lesson, alpha: float | None) -> None:
        """Refit a learner on private and public rows; ``alpha`` is ``None`` if it takes no weights."""
        X, private = self.rows.train
        n, n_public = len(X), len(lesson.public)
        weights: Array | None = None
        if alpha is not None:
            share = np.repeat([alpha / n, (1 - alpha) / n_public], [n, n_public])
            weights = share * (n + n_public)
        learner.fit(
            np.concatenate([X, lesson.public]),
            np.concatenate([private, lesson.targets]),
            rng=self.rows.stream(lesson.round, "distill"),
            weights=weights,
            validation=self.rows.validation,
            phase="distill",
        )

    def _refit_with_best_alpha(
        self, chooser: Chooser, lesson: Lesson, alpha: float, share: float
    ) -> None:
        """Refit with the kept weight of private rows, or try larger ones at the first teacher.

        The weight is at least ``alpha``. For the purpose ``"everyone"``, ``share`` is the weight of own rows
        in the choice.
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
        """Train on private rows with gradients ``g(w) + correction + strength (w − w_0)``.

        ``w_0`` are the parameters before the training.

        Args:
            round: the round, for the random stream.
            strength: weight of the proximal term, 0 or more; the default is 0.
            correction: map from parameter name to an array of its shape; ``None``, the default, for no
                correction.

        Returns:
            Number and size of the steps.
        """
        X, targets = self.rows.train
        return self._changing_parameters().fit_corrected(
            X,
            targets,
            rng=self.rows.stream(round, "fit"),
            correction=GradientCorrection(strength, correction),
            validation=self.rows.validation,
        )

    def predict_private(self) -> Array:
        """Predict the private training rows with the party's own model, shape ``(n, n_outputs)``."""
        return self.learner.predict(self.rows.train[0])

    def fit_on_mixed_targets(
        self, round: int, predictions: Array, label_weight: float, *, warm_start: bool = False
    ) -> None:
        """Train a model on private inputs, towards ``label_weight`` times the labels plus predictions.

        If the training fails, the party keeps its previous model.

        Args:
            round: the round, for the random stream.
            predictions: addend to the weighted labels, shape ``(n, n_outputs)``.
            label_weight: weight of the private labels in [0, 1].
            warm_start: continue from the party's model, if it trains incrementally; the default false trains
                a new one.
        """
        X, y = self.rows.train
        goes_on = warm_start and self.learner.fitted and self.learner.abilities.incremental
        new = copy.deepcopy(self.learner) if goes_on else self.untrained()
        new.fit(
            X,
            label_weight * y + predictions,
            rng=self.rows.stream(round, "fit"),
            validation=self.rows.validation,
            phase="first",
        )
        self.replace(new)

    def _changing_parameters(self) -> Parametric:
        """Return the learner of a party that exchanges parameters, and record the change."""
        return cast(Parametric, self.changing())  # checked where its parameters were asked for
