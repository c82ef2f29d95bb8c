"""Inputs of all parties, made comparable: checked, on one scale, and counted in cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput
from consilience.core.numerics.feature_space import principal_directions, public_feature_space
from consilience.core.numerics.randomness import stream
from consilience.core.validation.arrays import Array, unmasked
from consilience.core.validation.printing import prints_no_rows
from consilience.lab.diagnostics.heterogeneity.result import NEIGHBOURS

CELLS = 16
"""Cells that continuous inputs are counted in: 16 of one column, 4 × 4 of two components."""
ROWS_PER_ATOM = 5
"""Inputs count as discrete if their distinct rows occur this often on average: with fewer, hardly any row of
one party is found at another, and total variation between samples says nothing about where they come from."""
MOST = 500
"""Rows a party, in the mean, whose neighbours are looked at."""
FEW_ATOMS = 64
"""Up to this many distinct rows the Wasserstein distance is solved exactly, in milliseconds a party."""


@prints_no_rows
@dataclass(frozen=True)
class Inputs:
    """The inputs of all parties.

    Attributes:
        parts: rows of each party, shape ``(n_i, d)``, real numbers as they came.
        centre: the pooled mean, shape ``(d,)``.
        scale: divisor of every column, shape ``(d,)``: 1, or its pooled standard deviation.
        spread: root mean square distance of the pooled rows, divided by ``scale``, from their mean; the
            unit of distances. 1 if all rows are equal.
    """

    parts: tuple[Array, ...]
    centre: Array
    scale: Array
    spread: float

    @classmethod
    def of(cls, X: Mapping[str, Any], *, equalize: bool = False) -> Inputs:
        """Check the inputs and take their pooled mean and spread.

        Args:
            X: inputs of each party, shape ``(n_i, …)``.
            equalize: divide every column by its pooled standard deviation, for tables with a different
                unit in each column.

        Returns:
            The checked inputs.

        Raises:
            InvalidInput: texts or other things than real numbers, values not finite or too large to square,
                no rows, other shapes.
        """
        parts = tuple(_checked(name, rows) for name, rows in X.items())
        for name, part, rows in zip(X, parts, X.values(), strict=True):
            if part.shape[1] != parts[0].shape[1]:
                first = next(iter(X))
                raise InvalidInput(
                    f"its inputs have shape {np.shape(rows)}, those of party {first!r} {np.shape(X[first])}",
                    where=f"party {name!r}",
                    mend="Give every party the same columns, or pictures of one size.",
                )
        n = sum(map(len, parts))
        centre = sum(part.sum(axis=0, dtype=np.float64) for part in parts) / n
        # Party by party, so that no copy in double precision is made of all rows at once.
        with np.errstate(over="ignore"):
            variance = sum(((part - centre) ** 2).sum(axis=0) for part in parts) / n
        if not np.isfinite(variance).all():
            raise InvalidInput("the inputs are too large to square", mend="Scale them down.")
        # The deviation of equal numbers comes out as rounding.
        constant = np.sqrt(variance) <= 1e-12 * np.maximum(np.abs(centre), 1e-300)
        variance = np.where(constant, 0.0, variance)
        scale = np.where(constant, 1.0, np.sqrt(variance)) if equalize else np.ones(len(centre))
        spread = float(np.sqrt((variance / scale**2).sum()))
        return cls(parts, np.asarray(centre), scale, spread or 1.0)

    @property
    def sizes(self) -> list[int]:
        """Rows of each party."""
        return [len(part) for part in self.parts]

    @property
    def dimensions(self) -> int:
        """d, the numbers in a row."""
        return len(self.centre)

    def scaled(self, rows: Array) -> Array:
        """Express rows in units of the pooled spread, about the pooled mean, shape ``(n, d)``."""
        return np.asarray((rows - self.centre) / (self.scale * self.spread))

    def projected(self, axes: Array) -> Array:
        """All parties' scaled rows along axes, stacked.

        Args:
            axes: shape ``(d, k)``.

        Returns:
            shape ``(n, k)``.
        """
        return np.concatenate([self.scaled(part) @ axes for part in self.parts])

    def atoms(self) -> tuple[Array, Array] | None:
        """Count each party's rows at each distinct row, if there are few.

        Returns:
            counts, shape ``(N, n_atoms)``, and the scaled rows, shape ``(n_atoms, d)``; ``None`` if there are
            more than one in :data:`ROWS_PER_ATOM` rows and more than :data:`FEW_ATOMS`.
        """
        most = max(sum(self.sizes) // ROWS_PER_ATOM, FEW_ATOMS)
        seen: dict[bytes, int] = {}
        rows: list[Array] = []
        codes: list[list[int]] = []
        for part in self.parts:
            codes.append([])
            for row in part + part.dtype.type(0):  # −0 and 0 are one number
                code = seen.setdefault(row.tobytes(), len(seen))
                if code == len(rows):
                    if code == most:
                        return None
                    rows.append(row)
                codes[-1].append(code)
        counts = np.array([np.bincount(mine, minlength=len(rows)) for mine in codes])
        return counts, self.scaled(np.array(rows))

    def cells(self, *, seed: int) -> tuple[Array, int]:
        """Count each party's rows in cells that depend on the pooled rows alone.

        One column is cut into :data:`CELLS` ranges with about equally many pooled rows. More columns are
        first projected onto the two leading principal components of the pooled, scaled rows, and each is
        cut into 4.

        Args:
            seed: of the start of the search for the components.

        Returns:
            counts, shape ``(N, n_cells)``, and the number of components.
        """
        components = min(self.dimensions, 2)
        values = self.projected(self._leading(components, seed))
        bins = round(CELLS ** (1 / components))
        codes = np.zeros(len(values), dtype=np.int64)
        # Equal rows must fall into one cell, wherever rounding puts them.
        for column in np.round(values, 9).T:
            edges = np.unique(np.quantile(column, np.arange(1, bins) / bins))
            codes = codes * bins + np.searchsorted(edges, column, side="right")
        split = np.split(codes, np.cumsum(self.sizes)[:-1])
        counts = np.array([np.bincount(part, minlength=bins**components) for part in split])
        return counts[:, counts.any(axis=0)], components

    def rows_apart(self, *, seed: int) -> Array:
        """Compute the share of each party's rows with only its own rows as nearest neighbours.

        The number of neighbours is :data:`NEIGHBOURS`. The share is corrected for chance, because a party
        with most of all rows has mostly its own rows as neighbours: (share − chance) / (1 − chance), at
        least 0. If there are more than :data:`MOST` rows a party on average, the same fraction of every
        party's rows is sampled.

        Args:
            seed: seed of the sampled rows.

        Returns:
            shape ``(N,)``; about 0 for parties with randomly dealt rows, 1 for parties far from all others.
        """
        rng = stream(seed, "coordinator", 0, "neighbours")
        # Parties keep their shares: of all the same part is looked at.
        part = min(1.0, MOST * len(self.parts) / sum(self.sizes))
        taken = [
            self.scaled(
                rows[np.sort(rng.permutation(len(rows))[: max(2, round(part * len(rows)))])]
            )
            for rows in self.parts
        ]
        owners = np.repeat(np.arange(len(taken)), [len(rows) for rows in taken])
        pooled = np.concatenate(taken)
        near = min(NEIGHBOURS, len(pooled) - 1)
        lengths, apart = (pooled**2).sum(axis=1), np.zeros(len(taken))
        for party, rows in enumerate(taken):
            for some in np.array_split(np.flatnonzero(owners == party), -(-len(rows) // 500)):
                distances = lengths - 2 * pooled[some] @ pooled.T
                distances[np.arange(len(some)), some] = np.inf
                nearest = np.argpartition(distances, near - 1, axis=1)[:, :near]
                apart[party] += (owners[nearest] == party).all(axis=1).sum() / len(rows)
            drawn = np.arange(1, near + 1)
            chance = np.prod(np.maximum(len(rows) - drawn, 0) / (len(pooled) - drawn))
            apart[party] = max(0.0, (apart[party] - chance) / (1 - chance))
        return apart

    def _leading(self, components: int, seed: int) -> Array:
        """Leading principal components, shape ``(d, k)``, by subspace iteration over the parties' rows."""
        if self.dimensions == 1:
            return np.ones((1, 1))
        width = min(self.dimensions, components + 8)
        drawn = stream(seed, "coordinator", 0, "components").standard_normal(
            (self.dimensions, width)
        )
        basis = np.linalg.qr(drawn).Q
        for _ in range(8):
            image = self._covariance_times(basis)
            basis = np.linalg.qr(image).Q
        inner = basis.T @ self._covariance_times(basis)
        return np.asarray(basis @ np.linalg.eigh(inner).eigenvectors[:, ::-1][:, :components])

    def _covariance_times(self, basis: Array) -> Array:
        blocks = (self.scaled(part) for part in self.parts)
        return np.asarray(sum(block.T @ (block @ basis) for block in blocks))


def texts_placed(X: Mapping[str, Any]) -> dict[str, Array]:
    """Place texts of all parties along the principal directions of their hashed words.

    Args:
        X: texts of each party, shape ``(n_i,)``.

    Returns:
        coordinates of each, shape ``(n_i, k)``.

    Raises:
        InvalidInput: no words, or no two texts share one.
    """
    texts = np.concatenate([np.asarray(rows, dtype=object) for rows in X.values()])
    space = public_feature_space(texts, np.random.default_rng(0))
    placed = principal_directions(space.public)(space.public)
    ends = np.cumsum([len(rows) for rows in X.values()])[:-1]
    return dict(zip(X, np.split(placed, ends), strict=True))


def are_texts(X: Any) -> bool:
    """Tell whether rows are texts, shape ``(n,)``."""
    rows = np.asarray(X)
    return rows.ndim == 1 and (
        rows.dtype.kind in "UT"
        or (rows.dtype.kind == "O" and all(isinstance(row, str) for row in rows))
    )


def _checked(name: str, X: Any) -> Array:
    """A party's inputs as real numbers, shape ``(n, d)``."""
    where, rows = f"party {name!r}", np.asarray(unmasked(X))
    if rows.dtype.kind in "OUST":
        raise InvalidInput(
            "its inputs are objects, or texts where others have numbers, between which there is no distance",
            where=where,
            mend="Compare the labels alone (inputs=False, --labels-only), or turn rows into numbers first.",
        )
    if rows.dtype.kind not in "biuf" or rows.ndim < 2:
        raise InvalidInput(
            f"its inputs are {rows.dtype} of shape {rows.shape}, not real numbers of shape (n, ...)",
            where=where,
            mend="A single column has shape (n, 1).",
        )
    if len(rows) == 0 or rows[0].size == 0:
        raise InvalidInput(f"its inputs have shape {rows.shape}: there are none", where=where)
    rows = rows.reshape(len(rows), -1)
    if rows.dtype.kind != "f":
        rows = rows.astype(np.float64)
    if bad := int((~np.isfinite(rows)).sum()):
        raise InvalidInput(
            f"{bad:,} of its inputs are NaN or infinite",
            where=where,
            mend="Fill them in, or drop these rows or columns.",
        )
    return rows


def check_two_parties(parties: Sequence[str], where: str) -> None:
    """Raise ``InvalidInput`` unless there are two parties or more.

    Args:
        parties: their names.
        where: the subject of the comparison, for the error.
    """
    if len(parties) < 2:
        raise InvalidInput(
            f"there {'is one party' if parties else 'are no parties'}; nothing to compare",
            where=where,
            mend="Give two or more.",
        )
