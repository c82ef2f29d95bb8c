"""A configuration for a table, as ``consilience new`` writes it."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from consilience.core.errors import InvalidInput, as_json, command
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.lab.config.reading import parse_spec
from consilience.lab.config.sections import write_new
from consilience.lab.experiments.run import rehearse
from consilience.tables.check import ColumnCheck
from consilience.tables.table import Table, text_rows
from consilience.tables.texts import Mark, read_texts

_READERS = {".parquet": "parquet", ".xlsx": "excel"}
_TARGETS = ("target", "label", "labels", "class", "outcome", "y", "diagnosis", "response")
_SITES = (
    *("site", "hospital", "clinic", "center", "centre", "institution", "bank", "branch"),
    *("party", "group", "station", "ward", "organization", "organisation", "client"),
    *(
        "klinik",
        "krankenhaus",
        "standort",
        "zentrum",
        "praxis",
        "filiale",
        "hôpital",
        "hopital",
        "centro",
    ),
)
_MOST_PARTIES, _FEWEST_ROWS = 20, 20
"""Groups of a column that is suggested as the parties', and rows of each; and of a table in all."""
_MOST_CLASSES = 20
"""Different whole numbers that are suggested as classes; more are values."""
_MODELS: Mapping[str, tuple[str, ...]] = {
    "classification": ("gradient-boosting", "logistic-regression", "random-forest"),
    "regression": ("gradient-boosting-regressor", "ridge", "random-forest-regressor"),
    "texts": ("tfidf-logistic",),
    "one class": ("random-forest", "extra-trees", "knn"),
}
"""Models that are written; ``"one class"``: those that can be trained on rows of a single one."""


@dataclass(frozen=True)
class Study:
    """Choices for the configuration of a study of one table.

    Attributes:
        table: the file.
        target: its column of labels or values.
        kind: kind of the target.
        drop: excluded columns; all others but target and group are inputs.
        group: the column with the party of each row; ``None`` to deal rows at random.
        parties: number of parties, without such a column.
        public: share or number of rows to make public; or a file of public rows.
        independent: whether rows are taken to be independent of one another, though a column seems to name
            persons on several.
        models: their names, dealt to the parties in turn; set by :func:`write_study`, like ``strict``.
        strict: whether a party with a single class, and a class of one party alone, are refused.
    """

    table: Path
    target: str
    kind: Kind
    drop: tuple[str, ...] = ()
    group: str | None = None
    parties: int = 4
    public: float | int | Path = 0.2
    independent: bool = False
    models: tuple[str, ...] = ()
    strict: bool = True


def check_enough(table: Table, *, where: str) -> None:
    """Raise ``InvalidInput`` for a table of too few rows to be shared among parties."""
    if len(table) < _FEWEST_ROWS:
        count = f"{len(table)} row" + "s" * (len(table) != 1)
        raise InvalidInput(
            f"the table has {count}, too few to be shared among parties",
            where=where,
            mend=f"Give one of {_FEWEST_ROWS} rows or more: some become public, some measure the models.",
        )


def suggested_target(table: Table) -> str:
    """Guess the column of labels: by its name, else the last."""
    names = {name.lower(): name for name in table.columns}
    return next((names[one] for one in _TARGETS if one in names), list(table.columns)[-1])


def suggested_kind(values: Array, mark: Mark) -> Kind:
    """Guess whether a target holds classes or values.

    Args:
        values: the column, shape ``(n,)``, as read from a table; texts may contain numbers, such as 64,1.
        mark: decimal mark of the table.

    Returns:
        ``"regression"`` for fractions and for many distinct whole numbers, otherwise ``"classification"``.
    """
    if values.dtype.kind == "O":
        with suppress(InvalidInput):  # what could mean two things is refused once the kind is known
            values = read_texts(values, "target", where="table", mark=mark)
    whole = values.dtype.kind in "iu" and len(np.unique(values)) > _MOST_CLASSES
    return "regression" if whole or values.dtype.kind == "f" else "classification"


def suggested_group(table: Table, target: str) -> str | None:
    """Guess the column with the party of each row: named like a site, with few values of several rows each.

    Returns:
        Name of the column; ``None`` if no column qualifies.
    """
    for name, values in table.columns.items():
        plain = re.sub(r"[\s_-]*(id|name|code|no)?$", "", name.lower())
        if plain not in _SITES or name == target or values.dtype.kind == "f":
            continue
        known = [value for value in values.tolist() if value is not None]
        _, counts = np.unique(np.array(known, dtype=str), return_counts=True)
        if len(known) == len(values) and 2 <= len(counts) <= _MOST_PARTIES:
            return name if counts.min() >= _FEWEST_ROWS else None
    return None


def suggested_drop(found: Sequence[ColumnCheck], table: Table) -> tuple[str, ...]:
    """Choose the columns that cannot or should not be inputs.

    If no column is suited, one text column stays.

    Args:
        found: findings on the candidate input columns.
        table: table with these columns.

    Returns:
        Names of the columns to drop.
    """
    unsuited = [one.name for one in found if not one.suited]
    if len(unsuited) == len(found):
        texts = [name for name in unsuited if text_rows(table.only([name])) is not None]
        unsuited = [name for name in unsuited if name not in texts[:1]]
    return tuple(unsuited)


def check_free(path: Path) -> None:
    """Raise ``InvalidInput`` where there is something already."""
    if path.exists():
        raise InvalidInput("there is something already", where=str(path), mend="Give another name.")


def write_study(path: Path, study: Study, rows: Table) -> str | None:
    """Write a configuration after a successful rehearsal of everything short of training.

    If a group has a single class, or a class occurs in a single group, the configuration allows this
    explicitly, and has models that support it.

    Args:
        path: path of the new file.
        study: choices for the configuration.
        rows: rows of the table.

    Returns:
        The problem for which the configuration was adapted; ``None`` if there was none.

    Raises:
        InvalidInput: a run would refuse it, or there is such a file already.
    """
    check_free(path)
    used = {study.target, study.group, *study.drop}
    texts = text_rows(rows.only([name for name in rows.columns if name not in used])) is not None
    tries = [replace(study, models=_MODELS["texts" if texts else study.kind])]
    if study.group is not None and study.kind == "classification":
        tries += [replace(tries[0], strict=False)]
        tries += [replace(tries[1], models=_MODELS["one class"])] * (not texts)
    refused: list[InvalidInput] = []
    for one in tries:
        text = _text(path, one)
        try:
            document = {"name": "rehearsal", **tomllib.loads(text)}
            rehearse(parse_spec(document, where=str(path), relative_to=path.parent))
        except InvalidInput as error:
            refused.append(error)
            continue
        write_new(path, text)
        return str(refused[0]).splitlines()[0] if refused else None
    raise refused[0]


def _text(path: Path, study: Study) -> str:
    """The file, with comments."""
    grouped, classes = study.group is not None, study.kind == "classification"
    lines = [
        f"# Run it with: {command('run', path)}",
        f"# Before that, to see how different the parties are: {command('parties', path)}",
        _line("seeds", 2, "so often all is repeated, with other test rows and public rows"),
        _line(
            "methods", ["local", "auto", "central"], "alone; taught by one another; all rows in one"
        ),
        _line("models", list(study.models), "dealt to the parties in turn"),
    ]
    if not study.strict:
        lines.append(
            _line("strict", False, "one class at a party, or a class of one party, is meant")
        )
    lines += [
        "",
        "[data]",
        _line("name", _READERS.get(study.table.suffix, "csv"), "how the file is read"),
        _line("path", _beside(study.table, path), "file names are relative to this file"),
        _line("target", study.target, "the column that is predicted"),
        _line("kind", study.kind, "it holds classes" if classes else "it holds values"),
    ]
    if grouped:
        lines.append(_line("group", study.group, "the column that says whose row it is"))
    if study.drop:
        lines.append(_line("drop", list(study.drop), "no inputs; all other columns are"))
    if study.independent:
        lines.append(_line("rows_are_independent", True, "whatever a column says of persons"))
    if isinstance(study.public, Path):
        file = _beside(study.public, path)
        lines.append(_line("public_file", file, "rows that everybody sees, without labels"))
    else:
        what = "share" if isinstance(study.public, float) else "number"
        lines.append(
            _line("public", study.public, f"{what} of rows that everybody sees, without labels")
        )
    if not grouped:
        lines += [
            "",
            "[partition]",
            _line("name", "iid", "rows are dealt at random; others: consilience list partitions"),
            _line("parties", study.parties, "among so many"),
        ]
    return (
        "\n".join([*lines, "", "[protocol]", _line("rounds", 3, "of teaching one another")]) + "\n"
    )


def _beside(file: Path, path: Path) -> str:
    """Name of a file as it is relative to another."""
    return Path(os.path.relpath(file.resolve(), path.parent.resolve())).as_posix()


def _line(name: str, value: object, comment: str) -> str:
    """A key with its value and a comment, the comments below one another."""
    said = f"{name} = {as_json(json.dumps(value, ensure_ascii=False))}"
    return f"{said:<43} # {comment}"
