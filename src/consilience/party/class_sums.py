"""Class sums of a party, and the noise that they leave with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import InvalidInput, KnowledgeRefused
from consilience.messages.schema import Agreement
from consilience.messages.scores import ClassSums
from consilience.numerics.class_sums import SCALE, PublicBasis, class_sums
from consilience.numerics.outcomes import Outcome
from consilience.numerics.randomness import NoiseSource, SystemNoise
from consilience.party.shared_space import shared_space
from consilience.transforms.privacy import Budget, Mechanism, Privacy
from consilience.transforms.privacy_ledger import Release
from consilience.validation.arrays import Array
from consilience.validation.labels import Kind

if TYPE_CHECKING:
    from consilience.party.party import Party


def sums_of(party: Party, basis: PublicBasis) -> Array:
    """Sum up all private rows of a party by class, those too that training leaves out.

    Which rows are held out, or found among the public ones, may change for all rows when one is added; so
    nothing of that is asked here.

    Args:
        party: the party, which has joined.
        basis: features of public rows, of whatever origin.

    Returns:
        Steps of the grid, shape ``(n_classes, d + 1)``, int64.

    Raises:
        InvalidInput: the party does regression.
        KnowledgeRefused: the basis names public rows that there are not.
    """
    agreement, public = party.agreement, party.public
    assert agreement is not None and public is not None
    if agreement.kind == "regression" or party.outcome is not None:
        raise InvalidInput("class sums are of classes, it has none", where=f"party {party.name!r}")
    if basis.landmarks.min() < 0 or basis.landmarks.max() >= len(public):
        raise KnowledgeRefused("the basis names public rows that there are not")
    space = shared_space(public, 0).space
    place = {name: code for code, name in enumerate(agreement.classes)}
    codes = np.array([place[name] for name in party.y.tolist()], dtype=np.int64)
    rows = basis(space(party.X[: len(codes)]), space.public)
    return class_sums(rows, codes, len(place), party.privacy_units)


class SumsNoise(Mechanism):
    """Gaussian noise on class sums, rounded to the grid: exactly the loss that the budget has for a release.

    They are released once for a basis, public rows and classes, whatever the seed, the round and the
    federation. Private rows are no part of the question: sums do not follow rows that change later.

    Args:
        budget: the party's budget.
        source: makes the source of the noise.
    """

    reply_type = ClassSums

    def __init__(self, budget: Budget, source: NoiseSource) -> None:
        self.loss = budget.release
        self._budget, self._source = budget, source

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise in each sum, in steps."""
        return SCALE * self._budget.sigma

    def planned(self, task: Any, agreement: Agreement | None) -> Release:
        """Name the release by the basis, the public rows and the classes."""
        assert agreement is not None
        asked = (task.digest, agreement.public, agreement.encoder, *agreement.classes)
        return Release.of("class sums", asked, self.loss)

    def release(self, reply: ClassSums) -> ClassSums:
        """Add the noise, and say how much there is."""
        noise = self._source().normal(scale=self.sigma, size=reply.values.shape)
        values = np.rint(reply.values + noise).astype(np.int64)
        return replace(reply, values=values, sigma=self.sigma)

    def stated(self, released: ClassSums) -> ClassSums:
        """Say what the party guarantees by its budget of today, which may be larger than it was."""
        said = {k: v for k, v in asdict(self._budget).items() if k in _STATED}
        return replace(released, **said)


_STATED = ("epsilon", "delta", "adjacency", "unit")


class Protected:
    """Half of a :class:`~.party.Party` that keeps to a budget of privacy."""

    X: Array
    kind: Kind
    outcome: Outcome | None
    labelled: bool
    privacy: Privacy
    _where: str

    def _declare(self, classes: Sequence[str], held: Sequence[str], units: Any) -> None:
        """Take on the declared classes and the units of the rows.

        Args:
            classes: declared classes.
            held: classes that the rows have.
            units: unit of each row, or ``None``.

        Raises:
            InvalidInput: the rows have a class that is not declared, or there is not a unit for each of them.
        """
        self.declared = tuple(map(str, classes))
        """Classes that it says it has; empty where its rows say them."""
        if undeclared := set(held) - set(self.declared or held):
            raise InvalidInput(
                f"its rows have a class that is not declared, {min(undeclared)!r}",
                where=self._where,
            )
        self.privacy_units = (
            None if units is None else _unit_codes(units, len(self.X), where=self._where)
        )
        """Unit of privacy of each private row, from 0 on; ``None`` where each is one."""
        self.trouble = ""
        """What went wrong last in a training that it keeps to itself."""

    def protect(self, budget: Budget | None, *, noise: NoiseSource = SystemNoise) -> None:
        """Keep to a budget of privacy in all that leaves, from now on; ``None`` takes it off.

        Class sums then leave with noise, and what has no stated cost leaves no more.

        Args:
            budget: the budget.
            noise: makes the source of the noise.

        Raises:
            InvalidInput: the party does not declare its classes, has no units where the budget is for these,
                or δ would permit publishing a unit.
        """
        self.privacy.accountant.budget = budget
        self.privacy.use([] if budget is None else [SumsNoise(budget, noise)])
        if budget is None:
            return
        coded = self.kind == "regression" or self.outcome is not None
        if self.labelled and not coded and not self.declared:
            raise InvalidInput(
                "it has a budget of privacy, and does not declare its classes, which its rows would tell",
                where=self._where,
                mend='In its file: [data] classes = ["ill", "healthy"]; in Python Party(classes=…).',
            )
        if (budget.unit == "row") != (self.privacy_units is None):
            raise InvalidInput(
                f"its budget is for one {budget.unit}, and its rows have "
                f"{'no units' if self.privacy_units is None else 'units of another kind'}",
                where=self._where,
                mend="Budget(unit=…) needs Party(privacy_units=…); in its file limits.unit is a column.",
            )
        count = (
            len(self.X)
            if self.privacy_units is None
            else int(self.privacy_units.max(initial=-1)) + 1
        )
        if budget.delta * count * 10 > 1:
            raise InvalidInput(
                f"delta is {budget.delta:g} and there are {count:,} units: a δ of one in so many permits "
                "publishing one of them",
                where=f"{self._where}, limits.delta",
                mend=f"Give {0.1 / count:.0e} or less.",
            )

    @contextmanager
    def keeping_to_itself(self) -> Iterator[None]:
        """Tell nobody, where there is a budget, that training fails in this block: rows may be the reason."""
        try:
            yield
        except Exception as error:
            if self.privacy.accountant.budget is None:
                raise
            self.trouble = f"{type(error).__name__}: {error}"


def _unit_codes(units: Any, rows: int, *, where: str) -> Array:
    """Number the unit of each row, from 0 on.

    Raises:
        InvalidInput: there is not one for each row, or one for all.
    """
    names = [str(one) for one in np.asarray(units).ravel().tolist()]
    if len(names) != rows:
        raise InvalidInput(f"{rows} rows and {len(names)} units", where=where)
    distinct, codes = np.unique(names, return_inverse=True)
    if len(distinct) < 2:
        raise InvalidInput(
            "all its rows are of one unit of privacy",
            where=where,
            mend="Is this the right column? To hide a whole party takes many parties, and is not done here.",
        )
    return np.asarray(codes, dtype=np.int64)
