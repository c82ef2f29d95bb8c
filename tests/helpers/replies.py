"""Replies as they come from a network, made from arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.core.messages.replies import Predictions, Replies
from consilience.core.messages.schema import PRECISION
from consilience.core.messages.scores import (
    CalibrationSums,
    CoarseRatios,
    DensityRatios,
    InputRatios,
    LogDensities,
    RowCount,
)
from consilience.methods.comparison_rules.scores import (
    Certainties,
    LogOdds,
    Selection,
    SubspaceLikeness,
)


def replies(
    *outputs: Any,
    kind: Any = "probabilities",
    log_density: Any = None,
    rows: Any = None,
    certainties: Any = None,
    selected: Any = None,
    ratios: Any = None,
    sums: Any = None,
    odds: Any = None,
    likeness: Any = None,
) -> Replies:
    """What parties "a", "b", … answered: outputs per party, and what else was asked of them."""
    answers: dict[str, tuple[Any, ...]] = {}
    for i, (name, values) in enumerate(zip("abcdefghij", outputs, strict=False)):
        values = np.array(values, dtype=PRECISION[kind])
        classes = tuple(f"class {k}" for k in range(values.shape[1]))
        given: list[Any] = [
            Predictions(party=name, round=1, kind=kind, classes=classes, public="", values=values)
        ]
        if log_density is not None:
            density = np.array(log_density[i], dtype=np.float32)
            given.append(LogDensities(party=name, round=1, public="", values=density))
        if rows is not None:
            given.append(RowCount(party=name, round=1, rows=rows[i]))
        if certainties is not None:
            scores = np.array(certainties[i], dtype=np.float32)
            given.append(Certainties(party=name, round=1, public="", values=scores))
        if selected is not None:
            speaks = np.array(selected[i], dtype=bool)
            given.append(Selection(party=name, round=1, public="", values=speaks))
        for told, scores in ((LogOdds, odds), (SubspaceLikeness, likeness)):
            if scores is not None:
                each = np.array(scores[i], dtype=np.float32)
                given.append(told(party=name, round=1, public="", values=each))
        if ratios is not None:
            near = np.array(ratios[i], dtype=np.float32)
            given += [
                told(party=name, round=1, classes=classes, public="", values=near)
                for told in (DensityRatios, CoarseRatios)
            ]
            inputs = near.sum(axis=1)
            given.append(InputRatios(party=name, round=1, public="", values=inputs))
            columns = len(classes) + (kind == "values")
            held_out = np.zeros((len(near), columns)) if sums is None else np.array(sums[i], float)
            given.append(CalibrationSums(party=name, round=1, public="", values=held_out))
        answers[name] = tuple(given)
    return Replies(answers, {})
