"""A fixed model that predicts and is never trained: a vendor's model, a rule set, a hosted language model.

Each row is queried once. Answers are cached by the digest of the row, in memory and, if a file is given, on
disk. Further rounds, methods and seeds use the cache, and so does a resumed run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners.base import Abilities, FixedLearner, Phase
from consilience.core.messages.columns import Schema
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import label_names
from consilience.core.validation.numbers import check_number
from consilience.models.files.trust import ForeignCode, find, trusted

AT_ONCE = 256
"""Largest number of rows in a call of the function; its answers are cached before the next call."""

_OFF = 1e-3
"""How far a row of probabilities may be from a sum of 1; it is divided by its sum."""


class Answers:
    """Cache of a function's answers, keyed by the digest of the row.

    Args:
        most: largest number of rows that may be queried in all; ``None`` for no limit.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._known: dict[str, list[float]] = {}
        self._file: Path | None = None

    def keep_in(self, file: Path) -> None:
        """Load the cached answers of a file, and append to it all further ones and those already in memory.

        Raises:
            RunFailed: the file has other content, or cannot be written.
        """
        if file == self._file:
            return
        before, self._file = self._known, file
        lines = file.read_text("utf-8").splitlines(keepends=True) if file.exists() else []
        if lines and not lines[-1].endswith("\n"):  # a crash left half of a line
            lines.pop()
            file.write_text("".join(lines), "utf-8")
        try:
            found = dict(json.loads(line) for line in lines)
            self._known = {str(row): [float(v) for v in values] for row, values in found.items()}
        except (ValueError, TypeError) as error:
            raise RunFailed(
                f"these are no answers that were kept ({error})",
                where=str(file),
                mend="Move it away, and the model is asked anew.",
            ) from error
        self._add({row: answer for row, answer in before.items() if row not in self._known})

    def lacking(self, rows: Iterable[str]) -> list[str]:
        """List the rows without an answer yet, each once."""
        return [row for row in dict.fromkeys(rows) if row not in self._known]

    def check_budget(self, rows: Iterable[str], *, where: str) -> None:
        """Raise ``InvalidInput`` where fewer answers are left than rows lack one.

        Args:
            rows: digests of the rows.
            where: the model, for the error.
        """
        lacking = len(self.lacking(rows))
        if self.most is not None and len(self._known) + lacking > self.most:
            left = max(0, self.most - len(self._known))
            raise InvalidInput(
                f"{lacking:,} rows have no answer yet, and {left:,} of its {self.most:,} answers are left",
                where=where,
                mend="Allow it more answers (most, or limits.answers at the party), or give fewer public "
                "rows, or fewer test rows.",
            )

    def _add(self, answers: dict[str, list[float]]) -> None:
        """Keep answers, on the disk too where there is a file."""
        self._known |= answers
        if self._file is None or not answers:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps([row, answer]) + "\n" for row, answer in answers.items())
        except OSError as error:
            raise RunFailed(
                f"answers cannot be written ({error.strerror})", where=str(self._file)
            ) from error

    def of(self, rows: list[str], ask: Callable[[list[int]], Array]) -> Array:
        """Return the answers to rows, shape ``(n, n_answers)``, and query the function for the missing ones.

        Args:
            rows: digests of the rows.
            ask: function that answers rows, given their positions.
        """
        place = dict(zip(reversed(rows), reversed(range(len(rows))), strict=True))
        lacking = self.lacking(rows)
        for start in range(0, len(lacking), AT_ONCE):
            part = lacking[start : start + AT_ONCE]
            found = ask([place[row] for row in part])
            self._add(dict(zip(part, found.tolist(), strict=True)))
        return np.array([self._known[row] for row in rows], dtype=np.float64)


class Frozen(FixedLearner):
    """A fixed prediction function that takes the place of a party's model and is never trained.

    A party with such a function needs no local rows. If it has labelled rows, it estimates their density and
    calibrates its answers with them, as other parties do. The function may wrap anything: a vendor's model,
    rules, a language model.

    Args:
        answer: function from inputs, shape ``(n, ...)``, or a pandas table if there are categories, to
            probabilities ``(n, n_classes)`` in the order of ``classes``, or to values ``(n,)`` or
            ``(n, n_targets)``. The answer to a row must not depend on the other rows of the call. Each call
            has at most :data:`AT_ONCE` rows.
        classes: the classes of the answers, by the party's names; ``None`` for values.
        targets: number of values a row, if there are no classes.
        most: largest number of rows that may be queried in all; ``None`` for no limit. Cached answers do not
            count.

    Raises:
        InvalidInput: ``answer`` cannot be called, or ``classes`` are not two or more different names.

    Example:
        >>> rule = Frozen(lambda X: np.where(X > 0.5, [[0.1, 0.9]], [[0.8, 0.2]]), classes=["no", "yes"])
        >>> rule.bind(2)
        >>> rule.predict(np.array([[0.4], [0.7]])).tolist()
        [[0.8, 0.2], [0.1, 0.9]]
    """

    suffix = ".frozen"

    def __init__(
        self,
        answer: Callable[[Any], Any],
        *,
        classes: Iterable[Any] | None = None,
        targets: int = 1,
        most: int | None = None,
    ) -> None:
        self.name = f"Frozen({getattr(answer, '__qualname__', type(answer).__name__)})"
        if not callable(answer):
            raise InvalidInput(
                f"answer is {answer!r}, no function",
                where="Frozen",
                mend="Give a function from rows to answers, such as model.predict_proba.",
            )
        check_number("most", most, at_least=1, optional=True, where=self.name)
        names = None if classes is None else label_names(list(classes), where=self.name).tolist()
        if names is not None and not 1 < len(set(names)) == len(names):
            raise InvalidInput(
                f"classes are {names}", where=self.name, mend="Name two or more different ones."
            )
        self.abilities = Abilities(
            "regression" if names is None else "classification",
            "native",
            sample_weight=False,
            takes="categories",
            how="answers as it is, and is never trained",
        )
        self.answer, self.answers = answer, Answers(most)
        self.classes: tuple[str, ...] = () if names is None else tuple(names)
        self.targets = targets
        self._columns: list[int] = []

    def bind(self, n_outputs: int, schema: Schema | None = None) -> None:
        super().bind(n_outputs, schema)
        self._columns = list(range(n_outputs))

    def align(self, agreed: Iterable[str], names: Iterable[str]) -> None:
        """Map answers to an agreed class order; classes missing from :attr:`classes` have probability 0.

        Args:
            agreed: the classes of all parties, in order.
            names: the federation's names of this model's :attr:`classes`.
        """
        position = {name: column for column, name in enumerate(agreed)}
        self._columns = [position[name] for name in names]

    def check_budget(self, *rows: Array) -> None:
        """Raise ``InvalidInput`` where fewer answers are left than these tables of rows take."""
        digests = [digest for X in rows for digest in row_digests(X, self.schema)]
        self.answers.check_budget(digests, where=self.name)

    def keep_answers(self, file: Path) -> None:
        self.answers.keep_in(file)

    def bound_answers(self, most: int) -> None:
        own = self.answers.most
        self.answers.most = most if own is None else min(most, own)

    def fit(
        self,
        X: Array,
        targets: Array,
        *,
        rng: np.random.Generator,
        weights: Array | None = None,
        validation: tuple[Array, Array] | None = None,
        phase: Phase = "private",
    ) -> None:
        raise InvalidInput("it answers as it is, and is never trained", where=self.name)

    def predict(self, X: Array) -> Array:
        X = np.asarray(X)
        if not len(X):
            return np.zeros((0, self.n_outputs))
        digests = row_digests(X, self.schema)
        self.answers.check_budget(digests, where=self.name)
        told = self.answers.of(digests, lambda places: self._asked(X[places]))
        if not self.classes:
            return told
        values = np.zeros((len(X), self.n_outputs))
        values[:, self._columns] = told
        return values

    def _asked(self, X: Array) -> Array:
        """Call the function, and check its answers; shape ``(n, n_classes)`` or ``(n, n_targets)``.

        Raises:
            RunFailed: the function failed, or its answers have a wrong shape, are not finite or are no
                probabilities.
        """
        try:
            values = np.asarray(self.answer(self.rows(X)), dtype=np.float64)
        except Exception as error:
            raise RunFailed(
                f"it failed: {type(error).__name__}: {error}", where=self.name
            ) from error
        width = len(self.classes) or self.targets
        if not self.classes and values.shape == (len(X),):
            values = values[:, None]
        if values.shape != (len(X), width) or not np.isfinite(values).all():
            raise RunFailed(
                f"its answers have shape {values.shape}, or are not finite",
                where=self.name,
                mend=f"To these {len(X)} rows it has to answer ({len(X)}, {width}) finite numbers.",
            )
        if not self.classes:
            return values
        total = values.sum(axis=1, keepdims=True)
        if (values < 0).any() or np.abs(total - 1).max() > _OFF:
            raise RunFailed(
                "its answers are no probabilities: some are negative, or a row does not sum to 1",
                where=self.name,
                mend="Give a probability for each of its classes, in their order.",
            )
        return np.asarray(values / total)

    @property
    def fitted(self) -> bool:
        return True

    def save(self, path: Path) -> None:
        path.write_text('"frozen"')  # there is nothing to keep: answers have a file of their own

    def load(self, path: Path) -> None:
        if path.read_text(encoding="utf-8") != '"frozen"':
            raise RunFailed("this is not of a frozen model", where=str(path))

    def __deepcopy__(self, memo: dict[int, Any]) -> Frozen:
        """Copy the model but share its function and its cached answers, so that no row is queried twice."""
        twin = Frozen.__new__(Frozen)
        twin.__dict__.update(self.__dict__)
        return twin


def frozen(
    answer: str,
    classes: Iterable[Any] | None = None,
    targets: int = 1,
    most: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Frozen:
    """Make the frozen model that a configuration names.

    Args:
        answer: import path of the function, ``"package.module:name"``.
        classes: as of :class:`Frozen`.
        targets: as there.
        most: as there.
        options: further arguments of the function, by name.

    Returns:
        The model.

    Raises:
        ForeignCode: the path is used outside of :func:`~consilience.models.files.trust.trusting`, and was not
            imported.
        InvalidInput: the function does not exist or cannot be imported.
    """
    if not trusted(answer):
        raise ForeignCode(answer, "answer")
    try:
        function = find(answer)
    except ImportError as error:
        raise InvalidInput(f"cannot import it: {error}", where=answer) from error
    asked = partial(function, **options) if options else function
    model = Frozen(asked, classes=classes, targets=targets, most=most)
    model.name = f"Frozen({answer})"
    return model


def row_digests(X: Array, schema: Schema | None = None) -> list[str]:
    """Compute the digest of each row, which does not depend on the other rows.

    Args:
        X: rows, shape ``(n, ...)``.
        schema: columns of a table; the digest includes them, because a category's code has no meaning without
            them.

    Returns:
        One digest of 32 hexadecimal digits a row.
    """
    about = b""
    if schema is not None:
        columns = [[one.name, one.kind, one.categories] for one in schema.columns]
        about = json.dumps(columns).encode()
    if X.dtype.kind in "UO":
        told = [json.dumps(np.asarray(row).tolist(), default=str).encode() for row in X]
    else:
        rows = np.ascontiguousarray(X, dtype="<f8").reshape(len(X), -1)
        told = [row.tobytes() for row in rows]
    return [hashlib.sha256(about + row).hexdigest()[:32] for row in told]
