"""Comparison of parties before training: distances of labels and inputs, compared with chance.

A distance between finite samples is never 0. Each distance is therefore computed again, at least 20 times,
with all rows dealt to the parties at random and every party keeping its size. These random deals give the
distances by chance. ω counts as different from chance if it exceeds all of these values; for rows dealt at
random, this happens with probability at most 1/(1 + permutations).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind, class_order, label_names
from consilience.core.validation.numbers import check_choice, check_number
from consilience.lab.diagnostics.heterogeneity.distances import (
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
from consilience.lab.diagnostics.heterogeneity.inputs import (
    FEW_ATOMS,
    ROWS_PER_ATOM,
    Inputs,
    are_texts,
    check_two_parties,
    texts_placed,
)
from consilience.lab.diagnostics.heterogeneity.result import Distance, Heterogeneity

PERMUTATIONS = 20
"""The fewest, and usual, random deals: the probability that ω exceeds all of 20 by chance is 1 in 21."""


def label_counts(y: Iterable[Any], classes: Sequence[str], *, where: str = "labels") -> Array:
    """Count a party's rows of each class; to compare labels, a party need send only these counts.

    Args:
        y: its labels, shape ``(n,)``.
        classes: the names of the classes, in the order that all parties agreed on.
        where: the party, for errors.

    Returns:
        shape ``(C,)``, int64.

    Raises:
        InvalidInput: no rows, missing labels, a label not among the classes.

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
    """Compute the total variation of the parties' labels from counts alone: no row has to leave a party.

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
    names = tuple(sorted(counts))
    compared = _Comparison(names, by_rows, permutations, seed)
    check_two_parties(names, "labels")
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
    return compared.total_variation("labels", "exact, from counts", table)


def how_different(
    parties: Mapping[str, tuple[Any, Any]],
    *,
    kind: Kind = "classification",
    classes: Sequence[str] | None = None,
    inputs: bool = True,
    equalize: bool = False,
    by_rows: bool = False,
    directions: int = DIRECTIONS,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Heterogeneity:
    """Compare parties with all rows available in one place, before anything is trained.

    Labels: total variation, exact; for regression the exact Wasserstein-1 distance of the values.

    Texts are compared along the principal directions of their hashed words, 30 at most.

    Inputs, Wasserstein-1: exact in one dimension and for up to 64 distinct rows, else sliced. Total
    variation: exact if rows repeat (each distinct one 5 times on average, over all parties). Else it
    would be 1 − 1/N between any samples at all, and is computed on 16 cells of the leading principal
    components of the pooled rows (:meth:`Inputs.cells`): merging inputs into cells can only lower it, while
    finite samples raise it by the amount that the random deals show.

    Args:
        parties: name to inputs, shape ``(n_i, …)`` with two axes or more, or texts ``(n_i,)``, and labels,
            shape ``(n_i,)``.
        kind: whether the labels are classes or values.
        classes: names of all classes; by default those that occur.
        inputs: whether to compare inputs.
        equalize: first divide every column by its pooled standard deviation, for tables with a different
            unit in each column; else distances are Euclidean in the rows as they are.
        by_rows: weight parties by their rows, in the mixture and in ω. The paper does not.
        directions: number of directions of a sliced distance.
        permutations: random deals, 20 or more.
        seed: seed of directions and random deals.

    Returns:
        The distances, with those of the random deals.

    Raises:
        InvalidInput: fewer than two parties, one without rows, other widths, NaN, texts mixed with numbers,
            missing labels, fewer than 20 permutations or 2 directions.

    Source:
        Shen et al. 2022, section 4, equations 12 and 16.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> north = rng.normal(size=(200, 3)), ["ill"] * 50 + ["well"] * 150
        >>> south = rng.normal(size=(200, 3)), ["ill"] * 150 + ["well"] * 50
        >>> found = how_different({"north": north, "south": south})
        >>> found.sentence, round(found.labels.omega, 3)
        ('labels: apart; inputs: as far as chance', 0.25)
    """
    names = tuple(sorted(parties))
    compared = _Comparison(names, by_rows, permutations, seed)
    check_two_parties(names, "parties")
    check_choice("kind", kind, ["classification", "regression"])
    y = {name: parties[name][1] for name in names}
    for name in names:
        if len(y[name]) == 0:
            raise InvalidInput("it has no rows", where=f"party {name!r}", mend="Leave it out.")
        if inputs and (count := len(parties[name][0])) != len(y[name]):
            raise InvalidInput(f"{count} rows and {len(y[name])} labels", where=f"party {name!r}")
    held, axes = None, None
    if inputs:
        rows = {name: parties[name][0] for name in names}
        if all(map(are_texts, rows.values())):
            rows, equalize = texts_placed(rows), False
        held = Inputs.of(rows, equalize=equalize)
        if held.dimensions > 1:
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
        labels = compared.wasserstein("values", values)
    w1 = tv = None
    if held is not None:
        atoms = held.atoms()
        w1 = compared.wasserstein("inputs", held, axes, atoms)
        if atoms is not None and sum(held.sizes) >= ROWS_PER_ATOM * len(atoms[1]):
            method = f"exact, {len(atoms[1]):,} distinct rows"
            tv = compared.total_variation("inputs", method, atoms[0])
        else:
            cells, components = held.cells(seed=seed)
            of = "the column" if components == 1 else "the two leading principal components"
            method = f"lower bound, {cells.shape[1]} cells of {of}"
            tv = compared.total_variation("inputs", method, cells, bound=True)
    return Heterogeneity(
        parties=names,
        rows=tuple(len(y[name]) for name in names),
        classes=order,
        counts=counts,
        labels=labels,
        inputs_w1=w1,
        inputs_tv=tv,
        apart=None if held is None else held.rows_apart(seed=seed),
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


@dataclass(frozen=True)
class _Comparison:
    """Settings that all distances of one comparison share.

    Attributes:
        names: of the parties, sorted.
        by_rows: weight parties by their rows.
        permutations: random deals.
        seed: of these.
    """

    names: tuple[str, ...]
    by_rows: bool
    permutations: int
    seed: int

    def __post_init__(self) -> None:
        check_number(
            "permutations",
            self.permutations,
            at_least=PERMUTATIONS,
            whole=True,
            mend=f"Take {PERMUTATIONS} or more: fewer cannot tell a difference from chance at 5 %.",
        )

    def total_variation(
        self, of: Literal["labels", "inputs"], method: str, counts: Array, *, bound: bool = False
    ) -> Distance:
        """Compute total variations.

        Args:
            of: the thing compared.
            method: the computation, in words.
            counts: rows of each party and outcome, shape ``(N, n_outcomes)``.
            bound: true for a lower bound.
        """
        deals = self._random_tables(counts, of)
        return Distance(
            of=of,
            measure="TV",
            method=method,
            names=self.names,
            parties=total_variation_to_mixture(counts, by_rows=self.by_rows),
            errors=np.zeros(len(self.names)),
            weights=party_weights(counts.sum(axis=1), by_rows=self.by_rows),
            standard_error=0.0,
            chance=np.array([total_variation_to_mixture(d, by_rows=self.by_rows) for d in deals]),
            bound=bound,
        )

    def wasserstein(
        self,
        of: Literal["values", "inputs"],
        held: Inputs,
        axes: Array | None = None,
        atoms: tuple[Array, Array] | None = None,
    ) -> Distance:
        """Compute Wasserstein-1: exact without axes and for few atoms, else the mean along the axes.

        Args:
            of: the thing compared.
            held: the parties' rows.
            axes: directions of a sliced distance, shape ``(d, L)``; ``None`` in one dimension.
            atoms: counts and places of distinct rows, if there are few.
        """
        owners, weights = owners_of(held.sizes, by_rows=self.by_rows)
        if axes is not None and atoms is not None and len(atoms[1]) <= FEW_ATOMS:
            counts, places = atoms
            method = f"exact, {len(places)} distinct rows"
            tables = [counts, *self._random_tables(counts, of)]
            found = np.array(
                [wasserstein_of_atoms(table, places, by_rows=self.by_rows) for table in tables]
            )[:, None]
        else:
            method = "exact, in one dimension"
            projected, factor = held.projected(np.ones((1, 1)) if axes is None else axes), 1.0
            if axes is not None:
                method = f"sliced, {axes.shape[1]} directions"
                factor = shortening(held.dimensions)
            found = along_directions(projected, self._random_owners(owners, of), weights) / factor
        sliced = found.shape[1] > 1
        return Distance(
            of=of,
            measure="W1",
            method=method,
            names=self.names,
            parties=found[0].mean(axis=0),
            errors=standard_errors(found[0]) if sliced else np.zeros(len(self.names)),
            weights=weights,
            standard_error=float(standard_errors(found[0] @ weights)) if sliced else 0.0,
            chance=found[1:].mean(axis=1),
            unit=held.spread,
            bound=sliced,
        )

    def _random_tables(self, counts: Array, purpose: str) -> Iterator[Array]:
        """Counts after random deals, each of shape ``(N, n_outcomes)``: drawn without replacement."""
        rng = stream(self.seed, "coordinator", 0, f"deals of {purpose}")
        for _ in range(self.permutations):
            left, dealt = counts.sum(axis=0), []
            for size in counts.sum(axis=1)[:-1]:
                dealt.append(rng.multivariate_hypergeometric(left, size, method="marginals"))
                left = left - dealt[-1]
            yield np.array([*dealt, left])

    def _random_owners(self, owners: Array, purpose: str) -> Iterator[Array]:
        """The assignment of rows to parties itself, then random ones."""
        rng = stream(self.seed, "coordinator", 0, f"deals of {purpose}")
        yield owners
        for _ in range(self.permutations):
            yield rng.permutation(owners)
