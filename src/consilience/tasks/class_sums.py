"""Task that asks for sums of rows by class, in features of public rows that come with it."""

from __future__ import annotations

import numpy as np

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.base import check_reach
from consilience.messages.message import message
from consilience.messages.schema import Public
from consilience.messages.scores import ClassSums
from consilience.numerics.class_sums import SCALE, Kernel, PublicBasis
from consilience.numerics.density import MOST_LANDMARKS
from consilience.party.class_sums import sums_of
from consilience.party.party import Party
from consilience.party.shared_space import shared_space
from consilience.tasks.base import Task
from consilience.validation.arrays import Array
from consilience.validation.numbers import check_choice, check_number


@message
class SumClasses(
    Task,
    reply_type=ClassSums,
    exchanges="predictions",
    protocol="private_sums",
    static=True,
    keeps_model=True,
    exposure="noised",
):
    """Sum up your rows by class, in these features.

    Nothing in it says how much noise there is to be: that is the party's own affair.

    Attributes:
        kernel: ``"gaussian"`` or ``"linear"``.
        landmarks: places of public rows, shape ``(l,)``, int64.
        matrix: from their kernels to features, shape ``(d, l)``, float32.
        width: of the Gaussian kernel, above 0.
        digest: of all of these (:attr:`.PublicBasis.digest`).
    """

    round: int
    kernel: Kernel
    landmarks: Array
    matrix: Array
    width: float
    digest: str

    def __post_init__(self) -> None:
        where = type(self).__name__
        check_choice("kernel", self.kernel, ("gaussian", "linear"), where=where)
        check_number("width", self.width, above=0, where=where)
        fits = self.landmarks.ndim == 1 and self.matrix.ndim == 2
        if not fits or self.matrix.shape[1:] != self.landmarks.shape:
            raise InvalidInput("the matrix of the basis does not fit its landmarks", where=where)
        kinds = self.landmarks.dtype == np.int64 and self.matrix.dtype == np.float32
        if not kinds or not 1 <= len(self.matrix) <= len(self.landmarks) <= MOST_LANDMARKS:
            raise InvalidInput("this is no basis", where=where)
        if not np.isfinite(self.matrix).all():
            raise InvalidInput("a number of the basis is not finite", where=where)
        check_reach("numbers of the basis", self.matrix, where=where)
        if self.basis.digest != self.digest:
            raise KnowledgeRefused("the basis is not the one that its digest names", where=where)

    @classmethod
    def of(cls, basis: PublicBasis, *, round: int) -> SumClasses:
        """Make the task that sends a basis.

        Args:
            basis: the basis.
            round: the round.
        """
        return cls(
            round=round,
            kernel=basis.kernel,
            landmarks=basis.landmarks,
            matrix=basis.matrix,
            width=basis.width,
            digest=basis.digest,
        )

    @property
    def basis(self) -> PublicBasis:
        """The basis."""
        return PublicBasis(self.kernel, self.landmarks, self.matrix, self.width)

    @property
    def dimensions(self) -> int:
        """Number of features, the constant aside."""
        return len(self.matrix)

    @property
    def steps(self) -> int:
        """Steps of the grid in the length of one row."""
        return SCALE

    def run(self, party: Party) -> ClassSums:
        """Sum them up exactly; the party's privacy adds its noise where the reply leaves."""
        return ClassSums(party=party.name, round=self.round, values=sums_of(party, self.basis))


def public_basis(public: Public, kernel: Kernel, dimensions: int | None = None) -> PublicBasis:
    """Make the basis of public rows that all parties are sent.

    Args:
        public: the public rows.
        kernel: as in :class:`.PublicBasis`.
        dimensions: features, the constant aside; by default 24, or as many as there are.

    Raises:
        InvalidInput: the public rows have fewer directions.
    """
    space = shared_space(public, 0).space
    rng = np.random.default_rng(0)  # the same for whatever seed: it is no new question then
    return PublicBasis.of(space.public, rng, kernel=kernel, dimensions=dimensions)


def features_by(basis: PublicBasis, public: Public) -> Array:
    """Compute the features of the public rows in a basis, shape ``(n_public, d + 1)``."""
    space = shared_space(public, 0).space
    return basis(space.public, space.public)
