"""How different are my parties? Distances of labels and inputs, beside what chance alone would give.

A distance between finite samples is never 0. Each is therefore computed again, at least 20 times, with all
rows dealt to the parties at random, every party keeping its size. What then comes out is what chance alone
gives; ω counts as different from chance if it exceeds all of these, which happens to rows that were dealt
at random with probability at most 1/(1 + permutations).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from consilience.diagnostics.heterogeneity.distances import (
    DIRECTIONS,
    along_directions,
    checked_counts,
    owners_of,
    party_weights,
    shortening,
    standard_errors,
    total_variation_to_mixture,
    unit_directions,
    wasserstein_of_atoms,
)
from consilience.diagnostics.heterogeneity.inputs import (
    FEW_ATOMS,
    ROWS_PER_ATOM,
    Inputs,
    checked_sizes,
)
from consilience.errors import InvalidInput, nearest
from consilience.numerics.randomness import stream
from consilience.validation.arrays import Array
from consilience.validation.labels import class_order, label_names

PERMUTATIONS = 20
"""The fewest, and usual, random deals: the probability that ω exceeds all of 20 by chance is 1 in 21."""
LITTLE, FAR = 0.1, 0.3
"""Where "a little apart" ends and "far apart" begins, above chance: a share of rows, or of the pooled
spread. A convention; the figures themselves are beside the words."""


@dataclass(frozen=True)
class Distance:
    """One distance between every party and the mixture of all.

    Attributes:
        of: ``"labels"``, ``"values"`` (targets of a regression) or ``"inputs"``.
        measure: ``"TV"``, total variation, in [0, 1], or ``"W1"``, Wasserstein-1, in units of the pooled
            spread.
        method: how it was computed, in words.
        names: of the parties, sorted.
        parties: the distance of each, shape ``(N,)``.
        errors: their standard errors over directions, shape ``(N,)``; 0 where nothing was sampled.
        weights: of the parties in the mixture and in ω, shape ``(N,)``.
        standard_error: of ω, over directions.
        chance: the distances with rows dealt at random, shape ``(permutations, N)``.
        unit: the pooled spread: distance times unit is in the units of the rows. 1 for total variation.
        bound: whether the method can only hide differences, so that it is a lower bound apart from what
            chance adds.
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
        """Permutation p-value: how often random deals give such an ω or more, this one counted."""
        as_far = int((self.omega_by_chance >= self.omega - 1e-12).sum())
        return (1 + as_far) / (1 + len(self.chance))

    @property
    def differs(self) -> bool:
        """Whether ω exceeds that of every random deal."""
        return self.p_value < 1.5 / (1 + len(self.chance))

    @property
    def beyond_chance(self) -> tuple[str, ...]:
        """Parties farther off than in every random deal; with many parties some are by chance."""
        beyond = self.parties > self.chance.max(axis=0) + 1e-12
        return tuple(name for name, far in zip(self.names, beyond, strict=True) if far)

    @property
    def words(self) -> str:
        """``"as far as chance"``, ``"a little apart"``, ``"apart"`` or ``"far apart"``."""
        excess = self.omega - self.chance_mean
        if not self.differs:
            return "as far as chance"
        return "a little apart" if excess < LITTLE else "apart" if excess < FAR else "far apart"

    @property
    def meaning(self) -> str:
        """What it says, in a sentence or two."""
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
        """What it is of, in a few words: ``"inputs (W1)"``."""
        return f"{self.of} ({self.measure})"

    def as_data(self) -> dict[str, Any]:
        """All of it as plain numbers, for JSON."""
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


@dataclass(frozen=True)
class Heterogeneity:
    """How different the parties are.

    Attributes:
        parties: their names, sorted.
        rows: how many each has.
        classes: the classes in their order; ``None`` for regression.
        counts: rows of each party and class, shape ``(N, C)``; ``None`` for regression.
        labels: total variation of the labels, or Wasserstein-1 of the values of a regression.
        inputs_w1: ω_W1 of the inputs; ``None`` where they were not compared.
        inputs_tv: ω_TV of the inputs, exact or a lower bound; ``None`` where they were not compared.
        by_rows: whether larger parties weigh more, in the mixture and in the mean; the paper has all alike.
        equalized: whether every column was divided by its pooled standard deviation.
        seed: of random deals and directions.
    """

    parties: tuple[str, ...]
    rows: tuple[int, ...]
    classes: tuple[str, ...] | None
    counts: Array | None
    labels: Distance
    inputs_w1: Distance | None
    inputs_tv: Distance | None
    by_rows: bool
    equalized: bool
    seed: int

    @property
    def distances(self) -> tuple[Distance, ...]:
        """All that were computed."""
        return tuple(d for d in (self.labels, self.inputs_w1, self.inputs_tv) if d is not None)

    @property
    def sentence(self) -> str:
        """The finding in a line: ``"labels: far apart; inputs: as far as chance"``."""
        found = f"{self.labels.of}: {self.labels.words}"
        if self.inputs_w1 is None or self.inputs_tv is None:
            return found
        w1, tv = self.inputs_w1.words, self.inputs_tv.words
        return f"{found}; inputs: {w1}" if w1 == tv else f"{found}; inputs: {w1} (W1), {tv} (TV)"

    def shares(self, party: int) -> str:
        """A party's largest classes with their shares: ``"3 (60%), 7 (40%)"``; empty for regression."""
        if self.classes is None or self.counts is None:
            return ""
        mine = self.counts[party]
        largest = [i for i in np.argsort(-mine, kind="stable")[:3] if mine[i]]
        said = ", ".join(f"{self.classes[i]} ({mine[i] / mine.sum():.0%})" for i in largest)
        return said + (", …" if np.count_nonzero(mine) > len(largest) else "")

    def as_data(self) -> dict[str, Any]:
        """All of it as plain numbers and names, for JSON."""
        found: dict[str, Any] = {
            "finding": self.sentence,
            "weights": "by rows" if self.by_rows else "equal",
            "columns_equalized": self.equalized,
            "seed": self.seed,
            "parties": {
                name: {"rows": rows} for name, rows in zip(self.parties, self.rows, strict=True)
            },
            "distances": [distance.as_data() for distance in self.distances],
        }
        if self.classes is not None and self.counts is not None:
            for name, row in zip(self.parties, self.counts, strict=True):
                held = {label: int(n) for label, n in zip(self.classes, row, strict=True)}
                found["parties"][name]["classes"] = held
        return found


def label_counts(y: Iterable[Any], classes: Sequence[str], *, where: str = "labels") -> Array:
    """What a site computes of its labels, and all that has to leave it: its rows of each class.

    Args:
        y: its labels, shape ``(n,)``.
        classes: the names of the classes, in the order that all sites agreed on.
        where: whose labels they are, for errors.

    Returns:
        shape ``(C,)``, int64.

    Raises:
        InvalidInput: no rows, missing labels, a label that is not among the classes.

    >>> label_counts(["ill", "well", "ill"], ["ill", "well"])
    array([2, 1])
    """
    names = label_names(y, where=where)
    if len(names) == 0:
        raise InvalidInput("there are no rows", where=where)
    code = {name: i for i, name in enumerate(classes)}
    if len(code) != len(classes):
        raise InvalidInput("two classes have the same name", where=where)
    for name in np.unique(names):
        if name not in code:
            raise InvalidInput(
                f"a label is {str(name)!r}, which is no class",
                where=where,
                mend=nearest(name, code),
            )
    return np.bincount([code[name] for name in names], minlength=len(classes))


def compare_labels(
    counts: Mapping[str, Array],
    *,
    by_rows: bool = False,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Distance:
    """How different the parties' labels are, from counts alone: no row has to leave a site.

    Exact. Random deals are drawn from the counts too, evenly among all tables with these sums.

    Args:
        counts: party to its rows of each class (:func:`label_counts`), shape ``(C,)``, classes in one order.
        by_rows: weight parties by their rows.
        permutations: random deals, 20 or more.
        seed: of these.

    Raises:
        InvalidInput: fewer than two parties, a party without rows, other numbers of classes, no counts.

    Source:
        Shen et al. 2022, equation 12, of labels where the paper has inputs.
    """
    _check_permutations(permutations)
    names = tuple(sorted(counts))
    checked_sizes(names, "labels")
    for name in names:
        row = np.asarray(counts[name])
        if row.ndim != 1 or row.shape != np.shape(counts[names[0]]):
            raise InvalidInput(
                f"its counts have shape {row.shape}, those of party {names[0]!r} "
                f"{np.shape(counts[names[0]])}",
                where=f"party {name!r}",
                mend="Count the same classes in the same order at every site.",
            )
        if row.dtype.kind in "iuf" and row.sum() == 0:
            raise InvalidInput("it has no rows", where=f"party {name!r}", mend="Leave it out.")
    table = checked_counts(np.stack([np.asarray(counts[name]) for name in names]))
    return _tv("labels", "exact, from counts", names, table, by_rows, permutations, seed)


def how_different(
    parties: Mapping[str, tuple[Any, Any]],
    *,
    kind: Literal["classification", "regression"] = "classification",
    classes: Sequence[str] | None = None,
    inputs: bool = True,
    equalize: bool = False,
    by_rows: bool = False,
    directions: int = DIRECTIONS,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Heterogeneity:
    """Compare parties whose rows are all at hand, before anything is trained.

    Labels: total variation, exact; for regression the exact Wasserstein-1 distance of the values.

    Inputs, Wasserstein-1: exact in one dimension and for up to 64 distinct rows, else sliced. Total
    variation: exact where rows repeat (each distinct one 5 times on average, over all parties). Else it
    would be 1 − 1/N between any samples at all, and is computed on 16 cells of the leading principal
    components of the pooled rows (:meth:`Inputs.cells`): merging inputs into cells can only lower it, while
    finite samples raise it by what the random deals show.

    Args:
        parties: name to inputs, shape ``(n_i, …)`` with two axes or more, and labels, shape ``(n_i,)``.
        kind: whether the labels are classes or values.
        classes: names of all classes; by default those that occur.
        inputs: whether to compare inputs.
        equalize: first divide every column by its pooled standard deviation, for tables whose columns have
            units of their own; else distances are Euclidean in the rows as they are.
        by_rows: weight parties by their rows, in the mixture and in ω. The paper does not.
        directions: of a sliced distance.
        permutations: random deals, 20 or more.
        seed: of directions and random deals.

    Raises:
        InvalidInput: fewer than two parties, one without rows, other widths, NaN, texts as inputs, missing
            labels, fewer than 20 permutations or 2 directions.

    Source:
        Shen et al. 2022, section 4, equations 12 and 16.
    """
    _check_permutations(permutations)
    names = tuple(sorted(parties))
    checked_sizes(names, "parties")
    if kind not in ("classification", "regression"):
        raise InvalidInput(
            f"kind is {kind!r}", mend=nearest(str(kind), ["classification", "regression"])
        )
    y = {name: parties[name][1] for name in names}
    for name in names:
        if len(y[name]) == 0:
            raise InvalidInput("it has no rows", where=f"party {name!r}", mend="Leave it out.")
        if inputs and (rows := len(parties[name][0])) != len(y[name]):
            raise InvalidInput(f"{rows} rows and {len(y[name])} labels", where=f"party {name!r}")
    held = (
        Inputs.of({name: parties[name][0] for name in names}, equalize=equalize) if inputs else None
    )
    axes = None
    if held is not None and held.dimensions > 1:
        axes = unit_directions(held.dimensions, directions, seed)

    order, counts = None, None
    if kind == "classification":
        of_party = {name: label_names(y[name], where=f"party {name!r}") for name in names}
        everywhere = np.unique(np.concatenate(list(of_party.values())))
        order = class_order(everywhere.tolist()) if classes is None else tuple(classes)
        each = {n: label_counts(of_party[n], order, where=f"party {n!r}") for n in names}
        counts = np.stack([each[name] for name in names])
        labels = compare_labels(each, by_rows=by_rows, permutations=permutations, seed=seed)
    else:
        values = Inputs.of({name: _column(y[name], name) for name in names})
        labels = _w1("values", values, names, None, None, by_rows, permutations, seed)
    w1 = tv = None
    if held is not None:
        atoms = held.atoms()
        w1 = _w1("inputs", held, names, axes, atoms, by_rows, permutations, seed)
        tv = _inputs_tv(held, names, atoms, by_rows, permutations, seed)
    return Heterogeneity(
        parties=names,
        rows=tuple(len(y[name]) for name in names),
        classes=order,
        counts=counts,
        labels=labels,
        inputs_w1=w1,
        inputs_tv=tv,
        by_rows=by_rows,
        equalized=equalize,
        seed=seed,
    )


def _column(y: Any, name: str) -> Array:
    values = np.asarray(y)
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InvalidInput(
            f"its values are {values.dtype} of shape {values.shape}, not one number a row",
            where=f"party {name!r}",
            mend="For classes say kind='classification'.",
        )
    return values.reshape(-1, 1)


def _inputs_tv(
    held: Inputs,
    names: tuple[str, ...],
    atoms: tuple[Array, Array] | None,
    by_rows: bool,
    permutations: int,
    seed: int,
) -> Distance:
    if atoms is not None and sum(held.sizes) >= ROWS_PER_ATOM * len(atoms[1]):
        method = f"exact, {len(atoms[1]):,} distinct rows"
        return _tv("inputs", method, names, atoms[0], by_rows, permutations, seed)
    counts, components = held.cells(seed=seed)
    of = "the column" if components == 1 else "the two leading principal components"
    method = f"lower bound, {counts.shape[1]} cells of {of}"
    return _tv("inputs", method, names, counts, by_rows, permutations, seed, bound=True)


def _tv(
    of: Literal["labels", "inputs"],
    method: str,
    names: tuple[str, ...],
    counts: Array,
    by_rows: bool,
    permutations: int,
    seed: int,
    *,
    bound: bool = False,
) -> Distance:
    deals = _random_tables(counts, permutations, seed, of)
    return Distance(
        of=of,
        measure="TV",
        method=method,
        names=names,
        parties=total_variation_to_mixture(counts, by_rows=by_rows),
        errors=np.zeros(len(names)),
        weights=party_weights(counts.sum(axis=1), by_rows=by_rows),
        standard_error=0.0,
        chance=np.array([total_variation_to_mixture(deal, by_rows=by_rows) for deal in deals]),
        bound=bound,
    )


def _w1(
    of: Literal["values", "inputs"],
    held: Inputs,
    names: tuple[str, ...],
    axes: Array | None,
    atoms: tuple[Array, Array] | None,
    by_rows: bool,
    permutations: int,
    seed: int,
) -> Distance:
    """Exact in one dimension (no axes) and for few atoms, else the mean along the axes."""
    owners, weights = owners_of(held.sizes, by_rows=by_rows)
    if axes is not None and atoms is not None and len(atoms[1]) <= FEW_ATOMS:
        counts, places = atoms
        method = f"exact, {len(places)} distinct rows"
        deals = [counts, *_random_tables(counts, permutations, seed, of)]
        found = np.array([wasserstein_of_atoms(d, places, by_rows=by_rows) for d in deals])[:, None]
    else:
        method = "exact, in one dimension"
        projected, factor = held.projected(np.ones((1, 1)) if axes is None else axes), 1.0
        if axes is not None:
            method = f"sliced, {axes.shape[1]} directions"
            factor = shortening(held.dimensions)
        deals_of_rows = _random_owners(owners, permutations, seed, of)
        found = along_directions(projected, deals_of_rows, weights) / factor
    sliced = found.shape[1] > 1
    return Distance(
        of=of,
        measure="W1",
        method=method,
        names=names,
        parties=found[0].mean(axis=0),
        errors=standard_errors(found[0]) if sliced else np.zeros(len(names)),
        weights=weights,
        standard_error=float(standard_errors(found[0] @ weights)) if sliced else 0.0,
        chance=found[1:].mean(axis=1),
        unit=held.spread,
        bound=sliced,
    )


def _random_tables(counts: Array, permutations: int, seed: int, purpose: str) -> Iterator[Array]:
    """The counts after random deals, each of shape ``(N, n_outcomes)``: drawn without replacement."""
    rng = stream(seed, "coordinator", 0, f"deals of {purpose}")
    for _ in range(permutations):
        left, dealt = counts.sum(axis=0), []
        for size in counts.sum(axis=1)[:-1]:
            dealt.append(rng.multivariate_hypergeometric(left, size, method="marginals"))
            left = left - dealt[-1]
        yield np.array([*dealt, left])


def _random_owners(owners: Array, permutations: int, seed: int, purpose: str) -> Iterator[Array]:
    """The assignment itself, then random ones."""
    rng = stream(seed, "coordinator", 0, f"deals of {purpose}")
    yield owners
    for _ in range(permutations):
        yield rng.permutation(owners)


def _check_permutations(permutations: int) -> None:
    if permutations < PERMUTATIONS:
        raise InvalidInput(
            f"permutations is {permutations}",
            mend=f"Take {PERMUTATIONS} or more: fewer cannot tell a difference from chance at 5 %.",
        )
