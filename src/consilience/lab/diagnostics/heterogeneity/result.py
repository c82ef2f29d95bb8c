"""Results of a comparison of parties: distances, distances by chance, and their interpretation in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from consilience.core.validation.arrays import Array
from consilience.core.validation.printing import prints_no_rows

LITTLE, FAR = 0.1, 0.3
"""Limits between "a little apart", "apart" and "far apart", above chance: a share of rows, or of the pooled
spread. A convention; the figures themselves are beside the words."""

OWN_ROWS_AT_RISK = 0.1
"""Share of a party's rows without any of others' nearby, from which exchange may cost it its own rows; found
by ``benchmarks/inputs_apart.py``."""

NEIGHBOURS = 10
"""Nearest rows that are looked at around a row."""


@prints_no_rows
@dataclass(frozen=True)
class Distance:
    """Distance between every party and the mixture of all.

    Attributes:
        of: ``"labels"``, ``"values"`` (targets of a regression) or ``"inputs"``.
        measure: ``"TV"``, total variation, in [0, 1], or ``"W1"``, Wasserstein-1, in units of the pooled
            spread.
        method: the computation, in words: exact, sliced, or a lower bound.
        names: names of the parties, sorted.
        parties: the distance of each, shape ``(N,)``.
        errors: their standard errors over directions, shape ``(N,)``; 0 without sampling.
        weights: weights of the parties in the mixture and in ω, shape ``(N,)``.
        standard_error: standard error of ω, over directions.
        chance: the distances with rows dealt at random, shape ``(permutations, N)``.
        unit: the pooled spread: distance times unit is in the units of the rows. 1 for total variation.
        bound: whether the method can only hide differences, which makes it a lower bound apart from the
            contribution of chance.
    """

    of: Literal["labels", "values", "inputs"]
    measure: Literal["TV", "W1"]
    method: str
    names: tuple[str, ...]
    parties: Array
    errors: Array
    weights: Array
    standard_error: float
    chance: Array
    unit: float = 1.0
    bound: bool = False

    @property
    def omega(self) -> float:
        """ω, the (weighted) mean over parties."""
        return float(self.weights @ self.parties)

    @property
    def omega_by_chance(self) -> Array:
        """ω of every random deal, shape ``(permutations,)``."""
        return np.asarray(self.chance @ self.weights)

    @property
    def chance_mean(self) -> float:
        """Mean of ω over random deals."""
        return float(self.omega_by_chance.mean())

    @property
    def chance_sd(self) -> float:
        """Standard deviation of ω over random deals."""
        return float(self.omega_by_chance.std(ddof=1))

    @property
    def p_value(self) -> float:
        """Permutation p-value: share of deals, this one included, with such an ω or more."""
        as_far = int((self.omega_by_chance >= self.omega - 1e-12).sum())
        return (1 + as_far) / (1 + len(self.chance))

    @property
    def differs(self) -> bool:
        """True if ω exceeds that of every random deal."""
        return self.p_value < 1.5 / (1 + len(self.chance))

    @property
    def words(self) -> str:
        """``"as far as chance"``, ``"a little apart"``, ``"apart"`` or ``"far apart"``."""
        excess = self.omega - self.chance_mean
        if not self.differs:
            return "as far as chance"
        return "a little apart" if excess < LITTLE else "apart" if excess < FAR else "far apart"

    @property
    def meaning(self) -> str:
        """The finding in a sentence or two, for people."""
        omega, chance = self.omega, self.chance_mean
        if self.measure == "TV":
            need = "to lie in another cell" if self.bound else f"another {self.of.rstrip('s')}"
            text = (
                f"On average {omega:.0%} of a party's rows would need {need} for it to look like the "
                f"mixture of all; if rows were dealt at random, {chance:.0%}."
            )
        else:
            what = "rows" if self.of == "inputs" else self.of
            text = (
                f"On average a party's {what} would have to move {'at least ' if self.bound else ''}"
                f"{omega:.2f} of the pooled spread for it to look like the mixture of all; if rows were "
                f"dealt at random, {chance:.2f}."
            )
        return f"{self.title[:1].upper()}{self.title[1:]}: {self.words}. {text}"

    @property
    def title(self) -> str:
        """Heading of the distance, such as ``"inputs (W1)"``."""
        return f"{self.of} ({self.measure})"

    def as_data(self) -> dict[str, Any]:
        """Return all figures as plain numbers, for JSON."""
        rows = zip(self.names, self.parties, self.errors, self.chance.T, strict=True)
        return {
            "of": self.of,
            "measure": self.measure,
            "method": self.method,
            "lower_bound": self.bound,
            "unit": self.unit,
            "omega": self.omega,
            "standard_error": self.standard_error,
            "chance": {
                "permutations": len(self.chance),
                "mean": self.chance_mean,
                "sd": self.chance_sd,
                "p_value": self.p_value,
            },
            "words": self.words,
            "parties": {
                name: {
                    "distance": float(distance),
                    "standard_error": float(error),
                    "chance_mean": float(chance.mean()),
                    "chance_sd": float(chance.std(ddof=1)),
                }
                for name, distance, error, chance in rows
            },
        }


@prints_no_rows
@dataclass(frozen=True)
class Heterogeneity:
    """Distances of several parties from their mixture.

    Attributes:
        parties: their names, sorted.
        rows: number of rows of each party.
        classes: the classes in their order; ``None`` for regression.
        counts: rows of each party and class, shape ``(N, C)``; ``None`` for regression.
        labels: total variation of the labels, or Wasserstein-1 of the values of a regression.
        inputs_w1: ω_W1 of the inputs; ``None`` if they were not compared.
        inputs_tv: ω_TV of the inputs, exact or a lower bound; ``None`` if they were not compared.
        apart: share of each party's rows without a row of another nearby, shape ``(N,)``
            (:meth:`~consilience.lab.diagnostics.heterogeneity.inputs.Inputs.rows_apart`); ``None`` as above.
        by_rows: true if larger parties weigh more, in the mixture and in the mean; the paper uses equal
            weights.
        equalized: true if every column was divided by its pooled standard deviation.
        seed: seed of random deals and directions.
    """

    parties: tuple[str, ...]
    rows: tuple[int, ...]
    classes: tuple[str, ...] | None
    counts: Array | None
    labels: Distance
    inputs_w1: Distance | None
    inputs_tv: Distance | None
    apart: Array | None
    by_rows: bool
    equalized: bool
    seed: int

    @property
    def distances(self) -> tuple[Distance, ...]:
        """All computed distances."""
        return tuple(d for d in (self.labels, self.inputs_w1, self.inputs_tv) if d is not None)

    @property
    def sentence(self) -> str:
        """The finding in a line: ``"labels: far apart; inputs: as far as chance"``."""
        found = f"{self.labels.of}: {self.labels.words}"
        if self.inputs_w1 is None or self.inputs_tv is None:
            return found
        w1, tv = self.inputs_w1.words, self.inputs_tv.words
        return f"{found}; inputs: {w1}" if w1 == tv else f"{found}; inputs: {w1} (W1), {tv} (TV)"

    @property
    def warning(self) -> str:
        """Warning that exchange may cost parties accuracy on their own rows; empty if no party is at risk."""
        shares = {} if self.apart is None else dict(zip(self.parties, self.apart, strict=True))
        risky = [party for party, share in shares.items() if share > OWN_ROWS_AT_RISK]
        if not risky:
            return ""
        far = sorted(risky, key=lambda party: -shares[party])
        named = ", ".join(f"{shares[party]:.0%} of {party}'s rows" for party in far[:5])
        return (
            f"Own rows are at risk at {len(risky)} of {len(shares)} parties: no row of another is among the "
            f"{NEIGHBOURS} nearest of {named}{', …' if len(far) > 5 else ''} (above {OWN_ROWS_AT_RISK:.0%} "
            "is a risk). Others' models know little of such rows, and what they teach can make a party worse "
            'on its own. Leave the choice to each party (purpose = "own", as by default), take the method '
            "auto, and look at own rows in the results before a taught model is used."
        )

    def shares(self, party: int) -> str:
        """A party's largest classes with their shares: ``"3 (60%), 7 (40%)"``; empty for regression."""
        if self.classes is None or self.counts is None:
            return ""
        mine = self.counts[party]
        largest = [i for i in np.argsort(-mine, kind="stable")[:3] if mine[i]]
        shares = ", ".join(f"{self.classes[i]} ({mine[i] / mine.sum():.0%})" for i in largest)
        return shares + (", …" if np.count_nonzero(mine) > len(largest) else "")

    def as_data(self) -> dict[str, Any]:
        """Return all figures as plain numbers and names, for JSON."""
        found: dict[str, Any] = {
            "finding": self.sentence,
            "warning": self.warning,
            "weights": "by rows" if self.by_rows else "equal",
            "columns_equalized": self.equalized,
            "seed": self.seed,
            "parties": {
                name: {"rows": rows} for name, rows in zip(self.parties, self.rows, strict=True)
            },
            "distances": [distance.as_data() for distance in self.distances],
        }
        for name, share in zip(
            self.parties, [] if self.apart is None else self.apart, strict=False
        ):
            found["parties"][name]["rows_apart"] = float(share)
        if self.classes is not None and self.counts is not None:
            for name, row in zip(self.parties, self.counts, strict=True):
                held = {label: int(n) for label, n in zip(self.classes, row, strict=True)}
                found["parties"][name]["classes"] = held
        return found
