"""Rule ``auto``, which chooses its weights by the scores that the parties release, and by held-out rows.

m parties, n public rows, K classes; ``s_c(x, y)`` is the number of party c's rows of class y per public row
at x (:class:`consilience.core.numerics.density.PublicRatio`), ``p_c(x)`` its calibrated probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.special import softmax, xlogy

from consilience.core.aggregation.base import (
    Aggregator,
    Combined,
    Stack,
    mean_by_rows,
    plain_mean,
    weighted_mean_of,
)
from consilience.core.aggregation.claims import (
    LEAST_ROWS,
    SAME,
    alike_pairs,
    relative_size,
    same_for_all_rows,
    suffice,
)
from consilience.core.aggregation.density_ratio import DOUBT, RIDGE, by_ratio
from consilience.core.aggregation.regression import by_input_ratio
from consilience.core.messages.schema import Agreement
from consilience.core.messages.scores import (
    CalibrationSums,
    CoarseRatios,
    DensityRatios,
    InputRatios,
    RowCount,
)
from consilience.core.validation.arrays import Array

__all__ = ["auto"]
"""Rules that a configuration can name, registered by :mod:`consilience.core.aggregation`."""

RATIO_EXPONENTS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Candidate values of a, the exponent of the teacher from the ratios."""

MODEL_EXPONENTS = (0.5, 1.0, 1.5, 2.0, 3.0)
"""Candidate values of b, the exponent of the teacher from the models."""

TEMPERS = (0.5, 1.0, 2.0)
"""Candidate values of τ: for values, weights are ratios to this power."""

_LITTLE = 0.01
"""Choices with a share below this fraction of the largest share are dropped."""

_UNHEARD = 1e-9
"""Lower bound on probabilities and scales, against divisions by zero and logarithms of zero."""

_ONE_CLASS = 0.9
"""Share of a party's claims in one class from which the party counts as having one class only."""

_VARIED = 0.25
"""Variance over rows, relative to the median party's, below which answers count less in a plain mean."""

_ALIKE, _STEEP = 0.3, 4
"""Square root of the median correlation between two parties' answers from which agreement counts fully, and
exponent of a party's agreement relative to the median party's. Chosen on seeds 0 to 5 of digits and heart
disease."""

_MOST, _SEVERAL = 2 / 3, 3
"""Share of the parties that must distinguish a class, and number of parties, for agreement to be evidence."""

UNIFORM = "gives the same answer for every public row"
"""Clause on a party with a constant model."""

_NEIGHBOURS, _STEPS = 20.0, 6
"""Prior counts of neighbours' labels per class (a tenth of them spread over all classes), and number of
expectation-maximisation steps."""


def auto() -> Aggregator:
    """Choose in every round how to weight the parties, by the likelihood of held-out calibration rows.

    If the parties' data were pooled, labels would follow ``sum_c S_c(x) p_c(y | x) / sum_c S_c(x)`` with
    ``S_c(x) = sum_y s_c(x, y)`` (Mansour et al. 2008). Without any model they would follow
    ``sum_c s_c(x, y) / sum_c S_c(x)``. Both are estimates, too flat or too sharp, with different errors.
    A candidate teacher is

        t(x, y) ∝ q(x, y)^a p(x, y)^b.

    Here q is the second estimate, and p is the first one or the plain mean of the models. Further candidates
    are the teacher of :func:`~consilience.core.aggregation.density_ratio.density_ratio` to the power b. The
    result is the mean of all candidates, weighted by the square root of their likelihood on the parties'
    calibration rows. Each calibration row counts at its nearest public row. The prior of a candidate is
    ``exp(-((a - 1)² + (b - 1)²) / 2)``; without calibration rows, a and b are 1. Density ratios are computed
    from training rows. Parties calibrate their predictions
    (:class:`~consilience.core.numerics.calibration.Calibration`).

    For values, the rule selects the candidate with the least squared error on the calibration rows: mean,
    mean by rows, median, or a mean weighted by ``S_c(x)^τ``.

    **The form of the rule depends on the scores that all parties release** (:attr:`.Agreement.ratios`).
    With exact ratios, as in a simulation, it is the form above. With coarse ratios only, a and b are 1.
    Without ratios, the rule averages calibrated predictions (for values, it takes the median). It also
    averages predictions if coarse ratios cover few classes. This mean gives less weight to answers that
    hardly vary from row to row, that disagree with the others' (:func:`_agreement`), or that contradict
    labels held by the coordinator (:func:`_confirmed`). The notes of the teacher record its form, its
    choice, and the parties with a constant model.

    Returns:
        An aggregator; its teacher has shape ``(n_public, n_outputs)``.

    Source:
        This library's own; Mansour, Mohri & Rostamizadeh 2008, "Domain adaptation with multiple sources"
        (weights); Hoeting, Madigan, Raftery & Volinsky 1999, "Bayesian model averaging" (the mean).
    """
    return Aggregator(
        "auto",
        _of_classes,
        needs=(DensityRatios, CalibrationSums),
        options={DensityRatios: {"ridge": RIDGE}},
        calibrated=True,
        forms=_form_for,
    )


def _form_for(agreed: Agreement) -> Aggregator:
    """Return the form of the rule for the outcome and for the density ratios that all parties release."""
    if agreed.kind == "regression":
        if agreed.ratios != "exact":
            return Aggregator("auto", _median_of_values, outputs="values")
        return Aggregator(
            "auto",
            _of_values,
            outputs="values",
            needs=(InputRatios, CalibrationSums, RowCount),
            options={InputRatios: {"ridge": RIDGE}},
        )
    if agreed.ratios == "exact":
        return auto()
    if agreed.ratios == "coarse":
        return coarse_auto()
    return Aggregator("auto", _of_predictions, calibrated=True)


def coarse_auto() -> Aggregator:
    """Make the form of :func:`auto` for parties that all release coarse density ratios, as between sites."""
    return Aggregator("auto", _of_coarse, needs=(CoarseRatios,), calibrated=True)


# --- classes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    """Candidate for the teacher of classes.

    Attributes:
        models: source of the models' answer: ``"weighted"``, ``"mean"``, or ``"product"`` with the ratios.
        a: exponent of the ratios.
        b: exponent of the models.
    """

    models: str = "weighted"
    a: float = 1.0
    b: float = 1.0

    @property
    def doubt(self) -> float:
        """Penalty in nats on the log-likelihood of this choice, 0 for a = b = 1."""
        return ((self.a - 1) ** 2 + (self.b - 1) ** 2) / 2

    def __str__(self) -> str:
        how = {
            "weighted": "models weighted by ratios",
            "mean": "mean of models",
            "product": "ratios times models, party by party",
        }
        return f"{how[self.models]}, a = {self.a:g}, b = {self.b:g}"


CHOICES = (
    *(
        _Choice(models, a, b)
        for models, a, b in product(("weighted", "mean"), RATIO_EXPONENTS, MODEL_EXPONENTS)
    ),
    *(_Choice("product", 0.0, b) for b in MODEL_EXPONENTS),
)
"""Teachers of classes that the rule chooses from."""


class Witnesses:
    """Logarithms of the answers of ratios and models, from which the teacher of every choice is computed.

    A constant model takes no part in the answer of the models, unless its party claims one class alone. Its
    ratios count.

    Args:
        outputs: p, shape ``(m, n, K)``.
        ratios: s, of the same shape; below 0 is 0.
    """

    def __init__(self, outputs: Array, ratios: Array) -> None:
        m, n, classes = outputs.shape
        near = np.maximum(ratios, 0)
        doubt = DOUBT * near.sum() / n or 1.0
        of_class = near.sum(axis=1)
        several = of_class.max(axis=1) < _ONE_CLASS * of_class.sum(axis=1)
        told = near * ~(several & same_for_all_rows(outputs))[:, None, None]
        known = told.sum(axis=2)
        total = known.sum(axis=0) + doubt
        whole, parts, *_ = by_ratio(outputs, told)
        self.weights = {
            "weighted": (known + doubt / m) / total,
            "mean": np.repeat(_by_size(known.sum(axis=1))[:, None], n, axis=1),
            "product": parts,
        }
        models = {
            "weighted": weighted_mean_of(outputs, self.weights["weighted"]),
            "mean": weighted_mean_of(outputs, self.weights["mean"]),
            "product": whole,
        }
        claimed = near.sum(axis=0) + doubt / classes
        self._ratios = np.log(claimed / claimed.sum(axis=1, keepdims=True))
        with np.errstate(
            divide="ignore"
        ):  # a class that no model gives any probability stays without
            self._models = {name: np.log(values) for name, values in models.items()}

    def teacher(self, choice: _Choice, rows: Any = slice(None)) -> Array:
        """Compute the teacher of a choice, on some rows.

        Args:
            choice: the choice.
            rows: indices of the rows; all by default.

        Returns:
            Probabilities, shape ``(n_rows, n_classes)``.
        """
        answer = choice.b * self._models[choice.models][rows] + choice.a * self._ratios[rows]
        return np.asarray(softmax(answer, axis=1))


def _by_size(claimed: Array) -> Array:
    """Compute the parties' weights in a mean of models, which are lower for parties with few claims.

    Weights are equal for parties with at least the median size of claims. A party without claims gets no
    weight, because it could otherwise influence the mean at no risk.

    Returns:
        Shape ``(m,)``, with sum 1; all equal if no party has claims.
    """
    if not (claimed > 0).any():
        return np.full(len(claimed), 1 / len(claimed))
    counts = relative_size(claimed)
    return np.asarray(counts / counts.sum())


def _of_classes(stack: Stack) -> Combined:
    sums = np.maximum(stack.further[CalibrationSums], 0).sum(axis=0)
    seen = Witnesses(stack.outputs, stack.further[DensityRatios])
    shares, by = {_Choice(): 1.0}, "no calibration rows to choose by"
    if sums.any():
        shares, by = shares_of(seen, sums), f"chosen by {sums.sum():,.0f} calibration rows"
    first, share = next(iter(shares.items()))
    how = f"{first}" if share == 1 else f"{first} with weight {share:.2f}"
    return _taught(stack, seen, shares, f"auto: density ratios, {how}, {by}")


def shares_of(seen: Witnesses, sums: Array) -> dict[_Choice, float]:
    """Weight the choices by the square root of their likelihood.

    The single likeliest choice would overfit few rows. The square root is taken because each calibration
    row is scored at its nearest public row, and its label is weaker evidence than a label of that public
    row.

    Args:
        seen: answers of ratios and models, from which the candidate teachers are computed.
        sums: calibration rows of each class at each public row, shape ``(n, n_classes)``, some above 0.

    Returns:
        Each choice with its share, in descending order; shares sum to 1, and negligible ones are dropped.
    """
    rows = np.flatnonzero(sums.any(axis=1))
    found = softmax([_evidence(seen.teacher(one, rows), sums[rows], one) / 2 for one in CHOICES])
    order = np.argsort(-found, kind="stable")
    order = order[found[order] >= _LITTLE * found.max()]
    return {CHOICES[i]: float(found[i] / found[order].sum()) for i in order}


def _evidence(teacher: Array, sums: Array, choice: _Choice) -> float:
    """Compute the log-likelihood of the labels near a teacher's rows, less the penalty of its choice.

    A label belongs to the calibration row, and counts at the nearest public row. Near a public row of class
    k, the label is y with probability ``C(k, y)``, so its likelihood is ``sum_k t(x, k) C(k, y)``. C is
    fitted for each teacher by expectation maximisation; without it the flattest teacher would be the
    likeliest.

    Args:
        teacher: t, shape ``(n_rows, n_classes)``.
        sums: number of labels of each class at each row, of the same shape.
        choice: the choice that made the teacher.
    """
    share = sums.sum(axis=0) / sums.sum()
    granted = _NEIGHBOURS * (0.9 * np.eye(len(share)) + 0.1 * share)
    near = granted / _NEIGHBOURS
    for _ in range(_STEPS):
        counted = near * (teacher.T @ (sums / (teacher @ near).clip(_UNHEARD))) + granted
        near = counted / counted.sum(axis=1, keepdims=True)
    likelihood = (sums * np.log((teacher @ near).clip(_UNHEARD))).sum()
    return float(likelihood + xlogy(granted, near).sum()) - choice.doubt


def _of_coarse(stack: Stack) -> Combined:
    if not suffice(stack.further[CoarseRatios], stack.outputs):
        return _of_answers(
            stack, "auto: mean of predictions, since few classes have enough rows for ratios"
        )
    seen, choice = Witnesses(stack.outputs, stack.further[CoarseRatios]), _Choice()
    return _taught(stack, seen, {choice: 1.0}, f"auto: coarse density ratios, {choice}")


def _taught(stack: Stack, seen: Witnesses, shares: Mapping[_Choice, float], note: str) -> Combined:
    """Average the teachers of the choices; a single party's answer is returned unchanged."""
    if len(stack.parties) == 1:
        return plain_mean(stack)._replace(notes=("auto: one party alone, as it is",))
    same = np.flatnonzero(same_for_all_rows(stack.outputs))
    notes = note, *(f"{stack.parties[c]} {UNIFORM}" for c in same)
    values = sum(share * seen.teacher(one) for one, share in shares.items())
    weights = sum(share * seen.weights[one.models] for one, share in shares.items())
    return Combined(np.asarray(values), np.asarray(weights), notes)


_WITHOUT_RATIOS = "of predictions, since not every party gives density ratios"


def _of_predictions(stack: Stack) -> Combined:
    return _of_answers(stack, f"auto: mean {_WITHOUT_RATIOS}")


def _of_answers(stack: Stack, note: str) -> Combined:
    """Average the parties' probabilities, with less weight for unusual answers.

    A constant answer does not distinguish rows, but shifts the mean of all rows towards its class. Answers
    with more variance than the usual party's would outweigh the others. Let v be a party's variance over
    rows, summed over classes, relative to the median party's. Its weight is ``min(1, 4 v, v^-½)`` times
    :func:`_agreement`, and times :func:`_confirmed` if the coordinator has labelled rows. Parties with the
    same answers share the weight of one party.
    """
    groups = _groups(stack.outputs)
    outputs = stack.outputs[groups.argmax(axis=0)]
    variance = outputs.var(axis=1).sum(axis=1)
    usual = float(np.median(variance))
    counts = np.ones(len(variance))
    if usual > 0:
        ratio = variance / usual
        counts = np.minimum(1, ratio / _VARIED) / np.sqrt(np.maximum(1, ratio))
    weights = counts[:, None] * _agreement(outputs)
    if stack.labelled is not None:
        judged = weights * _confirmed(outputs, stack.labelled)
        weights = np.where(judged.any(axis=0), judged, weights)
    weights = groups / groups.sum(axis=0) @ (weights / weights.sum(axis=0))
    teacher = (weights[:, None, :] * stack.outputs).sum(axis=0)
    same = np.flatnonzero(same_for_all_rows(stack.outputs)) if usual > 0 else ()
    notes = note, *(f"{stack.parties[c]} {UNIFORM}, and does not count" for c in same)
    by_party = np.repeat(weights.mean(axis=1, keepdims=True), len(teacher), axis=1)
    return Combined(teacher / teacher.sum(axis=1, keepdims=True), by_party, notes)


def _groups(outputs: Array) -> Array:
    """Group the parties with the same answers.

    Similar parties form separate groups if they are more than half of all: if they shared one weight, a
    single party against them would have as much.

    Args:
        outputs: probabilities, shape ``(m, n, K)``.

    Returns:
        Membership of parties in groups, shape ``(m, groups)``, bool.
    """
    alike = alike_pairs(outputs)
    alike[2 * alike.sum(axis=1) > len(alike)] = False
    alike[np.diag_indices(len(alike))] = True
    members = np.zeros_like(alike)
    members[np.arange(len(alike)), alike.argmax(axis=1)] = True
    return members[:, members.any(axis=0)]


def _agreement(outputs: Array) -> Array:
    """Weight parties, class by class, by the agreement of their answers with those of the others.

    For a class, r is the median, over the other parties, of the correlation over rows between their
    probabilities and the party's. A minority that agrees with itself does not raise this median.
    ``b = 1 / (1 + d²)`` is lower for shifted answers; d is the distance of a party's mean probability
    from the median party's, in median standard deviations. With r' and b' the medians over parties, the
    weight is ``min(1, r / r')^4 min(1, b / b')^4``. If r' is below 0.09, answers hardly correlate, and the
    first factor moves towards 1 as r' falls. All weights are 1 if fewer than two thirds of the parties
    distinguish rows of some class, as with specialists: a party that disagrees may then be the only one
    with data of that class. They are also 1 for fewer than three parties.

    Args:
        outputs: probabilities, shape ``(m, n, K)``.

    Returns:
        Shape ``(m, K)``, from 0 to 1; a class has some above 0.
    """
    mean = outputs.mean(axis=1)
    apart = outputs - mean[:, None]
    length = np.sqrt((apart**2).sum(axis=1))
    knows = length > SAME * np.sqrt(outputs.shape[1])
    weights: Array = np.ones_like(length)
    if len(outputs) < _SEVERAL or knows.mean(axis=0).min() < _MOST:
        return weights
    off = (mean - np.median(mean, axis=0)) * np.sqrt(outputs.shape[1])
    centred = 1 / (1 + (off / np.median(length, axis=0).clip(_UNHEARD)) ** 2)
    centred = np.minimum(1, centred / np.median(centred, axis=0)) ** _STEEP
    for y in range(outputs.shape[2]):
        know = np.flatnonzero(knows[:, y])
        unit = apart[know, :, y] / length[know, y, None]
        alike = unit @ unit.T
        others = alike[~np.eye(len(know), dtype=bool)].reshape(len(know), -1)
        like = np.median(others, axis=1).clip(0)
        usual = float(np.median(like))
        told = min(1.0, np.sqrt(usual) / _ALIKE)
        weights[:, y] = 0
        weights[know, y] = 1 - told + told * np.minimum(1, like / max(usual, _UNHEARD)) ** _STEEP
    return np.asarray(weights * centred)


def _confirmed(outputs: Array, labelled: tuple[Array, Array]) -> Array:
    """Weight parties, class by class, by the accuracy of their answers on labelled rows.

    For a class, r is a party's mean probability on labelled rows of the class, less the largest such mean
    on rows of another class, at least 0. A party that assigns another class to this one has r = 0. With r'
    the largest r of a party, the weight is ``(r / r')²``, so a specialist counts for its own classes. A
    class keeps weight 1 if it has fewer than eight labelled rows, or if r is 0 for every party.

    Args:
        outputs: probabilities, shape ``(m, n, K)``.
        labelled: places of the labelled rows, and their classes.

    Returns:
        Shape ``(m, K)``, from 0 to 1; a class has some above 0.
    """
    rows, classes = labelled
    weights = np.ones((len(outputs), outputs.shape[2]))
    judged = [y for y in np.unique(classes) if (classes == y).sum() >= LEAST_ROWS]
    if len(judged) < 2:
        return weights
    mean = np.stack([outputs[:, rows[classes == y]].mean(axis=1) for y in judged], axis=1)
    for i, y in enumerate(judged):
        told = (mean[:, i, y] - np.delete(mean[:, :, y], i, axis=1).max(axis=1)).clip(0)
        if told.any():
            weights[:, y] = (told / told.max()) ** 2
    return weights


def _median_of_values(stack: Stack) -> Combined:
    """Compute the median of values, because a party at the edge of the usual range can move a mean far."""
    return Combined(np.median(stack.outputs, axis=0), None, (f"auto: median {_WITHOUT_RATIOS}",))


# --- values ---------------------------------------------------------------------------------------------


def _of_values(stack: Stack) -> Combined:
    made = {
        f"weighted by density ratios to the power {power:g}": by_input_ratio(stack, power)
        for power in sorted(TEMPERS, key=lambda power: power != 1)
    }
    made["mean"], made["mean by rows"] = plain_mean(stack), mean_by_rows(stack)
    made["median"] = Combined(np.median(stack.outputs, axis=0), None)
    sums = stack.further[CalibrationSums].sum(axis=0)
    count, total = np.maximum(sums[:, :1], 0), sums[:, 1:]
    # Targets of any unit count alike; what is left out of the squares is the same for all.
    spread = stack.outputs.var(axis=(0, 1))
    unit = np.where(spread > 0, spread, 1)
    middle = stack.outputs.mean(axis=(0, 1))

    def error(name: str) -> float:
        off = made[name][0] - middle
        return float(((count * off - 2 * (total - count * middle)) * off / unit).sum())

    chosen, by = next(iter(made)), "no calibration rows to choose by"
    if count.any():
        chosen, by = min(made, key=error), f"chosen by {count.sum():,.0f} calibration rows"
    return made[chosen]._replace(notes=(f"auto: values, {chosen}, {by}",))
