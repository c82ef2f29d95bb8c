"""scikit-survival's models as models of bins of time: forests, Cox's model, and others of its kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.learners import refuse_recipe
from consilience.core.learners.sklearn.estimators import fit_steps, parts
from consilience.core.learners.sklearn.learner import SklearnLearner
from consilience.core.learners.targets import SMALLEST_OF_BINS, expand
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind

COPIES = 20
"""Copies of a row of weight 1, for models that take no row weights: shares are rounded to a twentieth."""


class SurvivalLearner(SklearnLearner):
    """Adapt a model of scikit-survival to learn and predict probabilities of time bins.

    Each soft row becomes one row a bin: with an event in it, and, for the last bin, censored after all
    events. The models use only the order of times, so that the bins' numbers stand for them. If a model
    takes row weights, the probabilities are its weights (a forest draws as many rows for a tree as there
    were before). Otherwise a row of weight 1 becomes :data:`COPIES` copies, which are divided among the bins
    by their probabilities and spread over each bin; the model's penalty ``alpha`` grows with the copies.

    Args:
        model: an estimator of scikit-survival, or a pipeline that ends in one, that predicts survival
            functions.

    Raises:
        InvalidInput: the model does not predict survival functions.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model, kind="classification")
        if not hasattr(parts(self.model)[1], "predict_survival_function"):
            raise InvalidInput(
                "it predicts risks alone, and not who survives how long",
                where=self.name,
                mend="Take survival-forest, cox, or another one with predict_survival_function.",
            )
        self._weighable = self.abilities.sample_weight
        self.abilities = replace(
            self.abilities,
            soft_targets="weighted",
            probabilities="native",
            sample_weight=True,
            how="Each soft row becomes a row per bin of time, "
            + ("weighted by" if self._weighable else "as many copies as")
            + " the bin's probability"
            + ("." if self._weighable else " says."),
        )

    def _fit_classes(
        self, model: Any, X: Array, targets: Array, weights: Array | None, rng: np.random.Generator
    ) -> tuple[Array, list[Any]]:
        from sksurv.util import Surv

        rows, bins, copies = expand(targets, weights, smallest=SMALLEST_OF_BINS)
        last, time = parts(model)[1], bins + 1.0
        if self._weighable:
            if getattr(last, "max_samples", 0) is None and last.bootstrap:
                last.set_params(max_samples=len(targets))
        else:
            whole = np.ones(len(rows)) if copies is None else copies
            counts = np.diff(np.rint(COPIES * whole.cumsum()).astype(int), prepend=0)
            rows, bins, copies = rows.repeat(counts), bins.repeat(counts), None
            # Evenly over the bin: with few bins, and so many ties, too few would be said to die.
            nth = np.arange(counts.sum()) - (counts.cumsum() - counts).repeat(counts)
            time = bins + (nth + 0.5) / counts.repeat(counts)
            if hasattr(last, "alpha"):
                last.set_params(alpha=last.alpha * COPIES)
        end = targets.shape[1] - 1
        seen = Surv.from_arrays(event=bins < end, time=time)
        known = targets.argmax(axis=1)
        return np.arange(end + 1), [fit_steps(model, X, seen, copies, hard=known, rows=rows)]

    def _shares(self, model: Any, X: Array) -> Array:
        before, last = parts(model)
        for _, step in before:
            X = step.transform(X)
        found = np.asarray(last.predict_survival_function(X, return_array=True))
        place = np.searchsorted(last.unique_times_, np.arange(1, len(self._present)), side="right")
        ends = np.hstack([np.ones((len(found), 1)), found])[:, place]
        survival = np.minimum.accumulate(np.clip(ends, 0, 1), axis=1)
        whole = np.hstack([np.ones((len(found), 1)), survival, np.zeros((len(found), 1))])
        return np.asarray(whole[:, :-1] - whole[:, 1:])


def of_survival(model: Any, *, kind: Kind | None, recipe: object) -> SurvivalLearner:
    """Make the learner of a scikit-survival estimator."""
    refuse_recipe(model, recipe)
    return SurvivalLearner(model)
