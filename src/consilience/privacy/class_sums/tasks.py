"""Task for class sums: a party sums its rows by class, in the features that come with the task."""

from __future__ import annotations

from typing import get_args

import numpy as np

from consilience.core.errors import InvalidInput, KnowledgeRefused
from consilience.core.messages.base import check_reach
from consilience.core.messages.message import message
from consilience.core.messages.schema import Agreement, Public
from consilience.core.party.shared_space import shared_space
from consilience.core.party.view import PartyView
from consilience.core.tasks.base import Task
from consilience.core.validation.arrays import Array
from consilience.core.validation.numbers import check_choice, check_number
from consilience.privacy.class_sums.messages import ClassSums
from consilience.privacy.class_sums.party import sums_of
from consilience.privacy.class_sums.sums import (
    MOST_LANDMARKS,
    NO_BOUNDS,
    SCALE,
    TREES,
    Features,
    PublicBasis,
)


@message
class SumClasses(
    Task,
    reply_type=ClassSums,
    exchanges="predictions",
    protocol="private_sums",
    static=True,
    keeps_model=True,
    exposure="noised",
    limits=("epsilon",),
    summed="class sums",
):
    """Sum your rows by class in these features; in regression, by the two ends of the bounds.

    The task does not set the noise, because each party sets its noise locally.

    Attributes:
        kind: kind of the features, as in :class:`.PublicBasis`.
        landmarks: positions of landmarks among the public rows, shape ``(l,)``, int64.
        matrix: maps their kernels to features, shape ``(d, l)``, float32.
        width: width of the Gaussian kernel, above 0.
        trees: column and threshold at each node, shape ``(trees, nodes, 2)``, float32.
        digest: digest of all of these (:attr:`.PublicBasis.digest`).
        bounds: low and high bound of each target, shape ``(t, 2)``, float64; empty for classes.
    """

    round: int
    kind: Features
    landmarks: Array
    matrix: Array
    width: float
    trees: Array
    digest: str
    bounds: Array

    def __post_init__(self) -> None:
        where = type(self).__name__
        check_choice("kind", self.kind, get_args(Features), where=where)
        check_number("width", self.width, above=0, where=where)
        fits = self.landmarks.ndim == 1 and self.matrix.ndim == 2
        if not fits or self.matrix.shape[1:] != self.landmarks.shape:
            raise InvalidInput("the matrix of the basis does not fit its landmarks", where=where)
        floats = self.matrix.dtype == self.trees.dtype == np.float32
        if not floats or self.landmarks.dtype != np.int64:
            raise InvalidInput("this is no basis", where=where)
        grown = self.trees.shape == TREES if self.kind == "leaves" else not self.trees.size
        if not grown or not 1 <= len(self.matrix) <= len(self.landmarks) <= MOST_LANDMARKS:
            raise InvalidInput("this is no basis", where=where)
        for numbers in (self.matrix, self.trees):
            if not np.isfinite(numbers).all():
                raise InvalidInput("a number of the basis is not finite", where=where)
            check_reach("numbers of the basis", numbers, where=where)
        if self.basis.digest != self.digest:
            raise KnowledgeRefused("the basis is not the one that its digest names", where=where)
        check_bounds(self.bounds, where=where)

    @classmethod
    def of(cls, basis: PublicBasis, *, round: int, bounds: Array = NO_BOUNDS) -> SumClasses:
        """Create the task that sends a basis.

        Args:
            basis: the basis.
            round: the round.
            bounds: bounds of the values, shape ``(t, 2)``; empty for classes.
        """
        return cls(
            round=round,
            kind=basis.kind,
            landmarks=basis.landmarks,
            matrix=basis.matrix,
            width=basis.width,
            trees=basis.trees,
            digest=basis.digest,
            bounds=bounds,
        )

    @property
    def basis(self) -> PublicBasis:
        """The basis."""
        return PublicBasis(self.kind, self.landmarks, self.matrix, self.width, self.trees)

    @property
    def dimensions(self) -> int:
        """Number of features, the constant aside."""
        return len(self.matrix)

    def entries(self, agreement: Agreement) -> int:
        """Return the number of values in a party's sums."""
        ends = 2 if agreement.kind == "regression" else 1  # as ClassSums has them
        return ends * agreement.outputs * (self.dimensions + 1)

    @property
    def steps(self) -> int:
        """Steps of the grid in the length of one row."""
        return SCALE

    def run(self, party: PartyView) -> ClassSums:
        """Compute the exact sums; the party's privacy stage adds noise before the party sends the reply."""
        values = sums_of(party, self.basis, self.bounds)
        return ClassSums(party=party.name, round=self.round, values=values)


def check_bounds(bounds: Array, *, where: str) -> None:
    """Raise ``InvalidInput`` unless bounds are pairs of finite numbers, the low one first."""
    fits = bounds.ndim == 2 and bounds.shape[1] == 2 and bounds.dtype == np.float64
    if not fits or not np.isfinite(bounds).all() or not (bounds[:, 0] < bounds[:, 1]).all():
        raise InvalidInput(
            "bounds are not a low and a high number of each target",
            where=where,
            mend="Give bounds = [low, high] of the values, by what they are and not by rows.",
        )
    check_reach("bounds", bounds, where=where)


def usual_features(public: Public) -> Features:
    """Choose the kind of features by the public rows.

    Texts get ``"directions"``. Numeric columns with far outliers get ``"leaves"``, if most columns have them.
    All other rows get ``"kernel"``. A column has far outliers if its standard deviation is at least three
    times that of a normal distribution with the same quartiles.

    Args:
        public: the public rows.
    """
    X = public.X
    if X.dtype.kind in "UO" and public.encoder is None:
        return "directions"
    if X.ndim != 2 or X.dtype.kind not in "fiu":
        return "kernel"
    low, high = np.nanpercentile(X, [25, 75], axis=0)
    varied = high > low
    spread = np.nanstd(X[:, varied], axis=0, dtype=np.float64) / (high - low)[varied]
    return "leaves" if len(spread) and np.median(spread) * 1.349 > 3 else "kernel"


def public_basis(
    public: Public, kind: Features | None = None, dimensions: int | None = None
) -> PublicBasis:
    """Create the basis of features that the coordinator sends to all parties.

    Args:
        public: the public rows.
        kind: kind of features, as in :class:`.PublicBasis`; ``None`` uses :func:`usual_features`.
        dimensions: number of features without the constant; ``None`` uses the number of columns, limited to
            10 to 24.

    Raises:
        InvalidInput: the public rows have fewer directions.
    """
    space = shared_space(public, 0).of_sums
    rng = np.random.default_rng(0)  # the same for whatever seed: it is no new question then
    kind = usual_features(public) if kind is None else kind
    return PublicBasis.of(space.public, rng, kind=kind, dimensions=dimensions)


def features_by(basis: PublicBasis, public: Public, X: Array | None = None) -> Array:
    """Compute the features of rows in a basis, shape ``(n, d + 1)``.

    Args:
        basis: the basis.
        public: the public rows.
        X: the rows; by default the public ones.
    """
    space = shared_space(public, 0).of_sums
    return basis(space.public if X is None else space(X), space.public)
