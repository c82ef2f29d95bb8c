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
"""Name in a party's memory that marks a network trained with noise on private rows, and on public rows alone
since."""


@prints_no_rows
@dataclass(frozen=True)
class Teaching:
    """A teacher of a round, and how a party is taught by it.

    Attributes:
        round: the round.
        targets: the teacher, shape ``(n_public, n_outputs)``.
        alpha: weight of the private rows in (0, 1), for learners that refit on private and public rows.
        taught: mark of the public rows to train on, shape ``(n_public,)``, bool; ``None``, the default, for
            all. If it marks none, the model stays as it is.
        free_alpha: whether the party may take a larger weight, which it tries when it is first taught and
            keeps, and may leave a model that starts anew as it is while the teacher stands still.
        share: weight of own rows among everyone's, for the purpose ``"everyone"``; ``None``, the default, is
            ``alpha``.
        chooses: whether the party mixes the taught model with its model alone. A model that all parties will
            hold is taught as it is.
    """

    round: int
    targets: Array
    alpha: float
    taught: Array | None = None
    free_alpha: bool = False
    share: float | None = None
    chooses: bool = True


class Trainer:
    """Training and prediction of a party's model in the federation that it has joined.

    Args:
        learner: an untrained learner of the agreed number of outputs.
        make: makes another untrained learner of the agreed number of outputs.
        scores: scores of the public rows, with the rows of the party.
        chooser: chooses between the model trained alone and the taught one; ``None`` takes the taught one.
        private_training: training on private rows in the place of the usual one; ``None`` for the usual one.
        least_alpha: least weight of the private rows in a refit.

    Attributes:
        learner: the learner, trained or not.
        memory: arrays kept from round to round; part of the party's state.
        history: digest of all that the answers depend on and that the coordinator chose.
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
        """Give an untrained trainer of the same rows, which trains on private rows in the usual way."""
        make, least = self._make, self._least_alpha
        chooser = None if self.chooser is None else Chooser(self.chooser.purpose, self.scores)
        return Trainer(make(), make, self.scores, chooser, private_training=None, least_alpha=least)

    def use_private_training(self, training: PrivateTraining | None) -> None:
        """Train on private rows in another way from now on; ``None`` for the usual one."""
        self.private_training = training

    def untrained(self) -> Learner:
        """Make an untrained learner of the agreed number of outputs."""
        return self._make()

    def model_changed(self) -> None:
        """Note that the model has changed, so that earlier predictions on the public rows no longer hold."""
        self.changes += 1

    def changing(self) -> Learner:
        """Give the learner to be fitted or loaded, and note that it changes."""
        if self.private_training is None:
            self.memory.drop(WITH_NOISE)
        self.model_changed()
        return self.learner

    def replace(self, learner: Learner) -> None:
        """Take another learner in the place of the present one."""
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
        """The private labels that are trained on, as rows of outputs, shape ``(n, n_outputs)``."""
        return self.rows.train[1]

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
        """Probabilities, logits or values on the public rows, shape ``(n_public, n_outputs)``.

        They are computed once for each state of the model.

        Args:
            kind: ``"probabilities"``, ``"logits"`` or ``"values"``.
            calibrated: correct them by the calibration rows
                (:class:`~consilience.core.numerics.calibration.Calibration`); not for values.
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
        """Stage 2: train towards the teacher on the public rows, and choose how to mix the two models.

        An incremental learner continues from where it is, on the public rows. One that starts anew refits
        on private plus public rows, weighted ``alpha / N`` and ``(1 - alpha) / N_p`` a row, the weights
        of Park et al. 2023, scaled so that they sum to ``N + N_p``.

        Args:
            teaching: the teacher, and how to be taught by it.

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
        """Check a teacher, and select the public rows that are taught."""
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
        """Keep the model trained alone, before it is first taught."""
        if chooser.alone is None:
            if not self.learner.fitted:
                self.fit_private(round)
            chooser.alone = copy.deepcopy(self.learner)

    def _may_stand_still(self, teaching: Teaching) -> bool:
        """Return true if the model would be the same again after the same teacher."""
        refits = not self.learner.abilities.incremental
        return teaching.free_alpha and teaching.taught is None and refits

    def _stands_still(self, chooser: Chooser, teaching: Teaching, lesson: Lesson) -> bool:
        """Keep a model that would be refitted to much the same teacher, and the last choice with it."""
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
        """Fit the model to a lesson, and choose how it is mixed with the model alone; return notes."""
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
        """Weights of the public rows for a party without labels; ``None`` for others, and where all are 1."""
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
        """Fit a learner anew to private and public rows; ``alpha`` is ``None`` where it takes no weights."""
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
        X, targets = self.rows.train
        return self._changing_parameters().fit_corrected(
            X,
            targets,
            rng=self.rows.stream(round, "fit"),
            correction=GradientCorrection(strength, correction),
            validation=self.rows.validation,
        )

    def predict_private(self) -> Array:
        """Predict the private rows that are trained on with the own model, shape ``(n, n_outputs)``."""
        return self.learner.predict(self.rows.train[0])

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
        """The learner of a party that exchanges parameters; noted as changed."""
        return cast(Parametric, self.changing())  # checked where its parameters were asked for
