"""Parties that join a simulated run after a given round with rows from separate files, or are excluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, command, nearest
from consilience.core.federation.driver import total_rounds
from consilience.core.protocols import PROTOCOLS, Protocol
from consilience.core.validation.arrays import Array, check_alike
from consilience.core.validation.labels import label_names
from consilience.core.validation.printing import prints_no_rows
from consilience.lab.config.experiment import Spec
from consilience.lab.config.experiment_sections import LateSpec
from consilience.lab.config.reading import parse_spec, stored_spec
from consilience.lab.data import Dataset
from consilience.lab.runs.folder import CONFIGURATION, LEDGER
from consilience.lab.runs.leaving import REMAINS, Record, record_of
from consilience.lab.runs.ledger import Ledger
from consilience.tables.rows import rows_of
from consilience.tables.table import Table, text_rows
from consilience.tables.text_columns import with_text_columns


@prints_no_rows
@dataclass(frozen=True)
class LateRows:
    """Rows of a late party, read in the same way as those of the dataset.

    Attributes:
        spec: configuration of the late party.
        X: private inputs.
        y: their codes or values; unused zeros if the party has no labels.
        X_test: test inputs.
        y_test: their codes or values.
    """

    spec: LateSpec
    X: Array
    y: Array
    X_test: Array
    y_test: Array


def read_late(spec: LateSpec, dataset: Dataset) -> LateRows:
    """Read the rows of a party that joins later.

    Args:
        spec: the party.
        dataset: the rows of all others, as they came.

    Raises:
        InvalidInput: a file cannot be used, or other columns, classes or kinds of target than the others'.
    """
    where, given = f"party {spec.name!r}", spec.data
    if given.path is None:
        raise InvalidInput("it has no rows", where=where, mend="Name their file: data.path.")
    usual = type(given)()
    for_all = ("missing", "encoder", "classes")
    if odd := [key for key in for_all if getattr(given, key) != getattr(usual, key)]:
        raise InvalidInput(
            f"data.{odd[0]} does not count for a party that joins a simulated run",
            where=where,
            mend="Leave it out: the run's configuration says it for all.",
        )
    if given.labels and dataset.survival != (given.time is not None):
        raise InvalidInput(
            "its targets are others than those of the run",
            where=where,
            mend="Name data.time and data.event where the run is of survival, else data.target.",
        )
    if dataset.labels:
        raise InvalidInput(
            "rows of the run have several labels, which a late party's file cannot name",
            where=where,
            mend="In Python it can join: federation.resume(history, protocol, join=[party]).",
        )
    given = given.model_copy(update={"kind": "classification" if dataset.classes else "regression"})
    (X, y), tests, _ = given.rows()
    inputs = _inputs(X, spec, dataset, where)
    known = np.zeros((len(inputs), *dataset.y.shape[1:]), dtype=dataset.y.dtype)
    if tests is None:
        return LateRows(spec, inputs, known, inputs[:0], dataset.y_test[:0])
    held_out = _inputs(tests[0], spec, dataset, f"{where}, test rows")
    private = known if y is None else _targets(y, spec, dataset, where)
    return LateRows(spec, inputs, private, held_out, _targets(tests[1], spec, dataset, where))


def _inputs(X: Any, spec: LateSpec, dataset: Dataset, where: str) -> Array:
    """Inputs as the dataset has them."""
    if isinstance(X, Table):
        if dataset.schema is not None:
            own = spec.data
            options: dict[str, Any] = {
                "rename": own.rename, "units": own.units, "unknown": own.unknown
            }  # fmt: skip
            X = with_text_columns(X, dataset.schema)
            rows = rows_of(X, dataset.schema, where=where, missing="allowed", **options)
            if rows.absent:
                raise InvalidInput(
                    f"there is no input column {dataset.schema.names[rows.absent[0]]!r}",
                    where=where,
                    mend="In a simulated run all parties have all columns: data.rename says which is which.",
                )
            X = rows.X
        elif (X := text_rows(X)) is None:
            raise InvalidInput(
                "its columns have names, and those of the run's rows have none",
                where=where,
                mend="Write its rows as an .npz file with arrays X and y.",
            )
    found: Array = np.asarray(X)
    check_alike(found, dataset.X, where=where)
    return found.astype(dataset.X.dtype)


def _targets(y: Array, spec: LateSpec, dataset: Dataset, where: str) -> Array:
    """Targets as codes of the dataset's classes, or values."""
    if dataset.classes is None:
        return np.asarray(y, dtype=np.float64)
    codes = {name: code for code, name in enumerate(dataset.classes)}
    names = label_names(y, where=where, aliases=spec.data.aliases).tolist()
    if new := sorted(set(names) - codes.keys()):
        raise InvalidInput(
            f"class {new[0]!r} is none of those that were agreed on",
            where=where,
            mend=f"{nearest(new[0], codes)} A late party brings no class: say what others call it "
            "with data.aliases, or leave such rows out.",
        )
    return np.array([codes[name] for name in names], dtype=np.int64)


def check_late(spec: Spec, protocol: Protocol, label: str) -> None:
    """Raise ``InvalidInput`` if a late party cannot join a method.

    Parties can join only protocols that take any party, on the networks local and wire, and before the last
    round.

    Args:
        spec: the configuration.
        protocol: protocol of the method.
        label: label of the method.
    """
    rounds = total_rounds(protocol)
    for late in spec.late:
        where = f"party {late.name!r}, method {label}"
        if not PROTOCOLS[protocol.name].any_party or spec.network.kind not in ("local", "wire"):
            raise InvalidInput(
                "nobody can join it later",
                where=where,
                mend="Late parties are for ensemble_distillation and iterative_distillation, on the network "
                "local or wire.",
            )
        if late.after >= rounds:
            raise InvalidInput(
                f"it is to join after round {late.after}, and there are {rounds} rounds",
                where=where,
                mend="Give more rounds.",
            )


def with_rows(dataset: Dataset, late: Sequence[LateRows]) -> Dataset:
    """Put the rows of late parties behind all others."""
    if not late:
        return dataset
    fields: dict[str, Any] = {}
    if dataset.group is not None and dataset.group_test is not None:
        names = [one.spec.name for one in late]
        sizes = [[len(one.y) for one in late], [len(one.y_test) for one in late]]
        fields = {
            "group": np.concatenate([dataset.group, np.repeat(names, sizes[0])]),
            "group_test": np.concatenate([dataset.group_test, np.repeat(names, sizes[1])]),
        }
    fields |= {
        name: np.concatenate([getattr(one, name) for one in (dataset, *late)])
        for name in ("X", "y", "X_test", "y_test")
    }
    return replace(dataset, **fields)


def staying(spec: Spec, names: Sequence[str]) -> list[str]:
    """Remove the excluded parties from the names of the dataset's parties.

    Args:
        spec: the configuration.
        names: names of all parties of the dataset, excluded ones included.

    Returns:
        The remaining names, in the given order.

    Raises:
        InvalidInput: an excluded party does not exist, or no party remains.
    """
    known = [*names, *(late.name for late in spec.late)]
    if strangers := sorted(set(spec.without) - set(known)):
        raise InvalidInput(
            f"no party is called {strangers[0]!r}",
            where="without",
            mend=nearest(strangers[0], known),
        )
    stay = [name for name in names if name not in spec.without]
    if not stay:
        raise InvalidInput("no party would be left", where="without", mend="Name fewer.")
    return stay


def spec_joined_by(
    folder: Path, late: Sequence[Mapping[str, Any]], rounds: int | None = None
) -> Spec:
    """Make the configuration that continues a finished run with further parties.

    Args:
        folder: the run folder.
        late: ``name``, ``data`` and ``model`` of the parties, which join after its last round.
        rounds: total number of rounds; by default twice the configured number.

    Returns:
        The configuration of the longer run.

    Raises:
        InvalidInput: not the folder of a simulated run, or it is not finished.
    """
    spec = stored_spec(folder)
    with closing(Ledger(folder / LEDGER, read_only=True)) as ledger:
        done = ledger.done
    if any((method.label, seed) not in done for method in spec.methods for seed in spec.seed_list):
        raise InvalidInput(
            "this run is not finished, and a party joins after its last round",
            where=str(folder),
            mend=f"First: {command('resume', folder)}",
        )
    document, after = spec.model_dump(mode="json"), spec.protocol.rounds
    document["protocol"]["rounds"] = 2 * after if rounds is None else rounds
    document["late"] += [{**party, "after": after} for party in late]
    return parse_spec(document, where=str(folder / CONFIGURATION))


def spec_without(folder: Path, names: Sequence[str]) -> tuple[Spec, Record]:
    """Make the configuration of a run as if parties had never been there, and the record of the run before.

    Args:
        folder: the run folder; it stays as it is.
        names: of the parties.

    Raises:
        InvalidInput: not the folder of a simulated run, or there is no such party in it.
    """
    spec = stored_spec(folder)
    with closing(Ledger(folder / LEDGER, read_only=True)) as ledger:
        before = record_of(folder, ledger, names)
    document = spec.model_dump(mode="json")
    late = [one for one in document["late"] if one["name"] not in names]
    dealt = set(names) - {one.name for one in spec.late}
    document |= {"late": late, "without": sorted({*spec.without, *dealt})}
    lists = [(document["robustness"], key) for key in ("let_in", "leave_out")]
    if (hostile := document["hostile"]) and not isinstance(hostile["parties"], int):
        lists.append((hostile, "parties"))
    for section, key in lists:
        section[key] = [name for name in section[key] if name not in names]
    if hostile and not hostile["parties"]:
        document["hostile"] = None
    holds = {
        "read": True,
        "public": spec.data.public_file is not None,
        "dealt": bool(document["without"]) and spec.partition.name != "group",
    }
    remains = [REMAINS[what] for what, so in holds.items() if so]
    return parse_spec(document, where=str(folder / CONFIGURATION)), {**before, "remains": remains}
