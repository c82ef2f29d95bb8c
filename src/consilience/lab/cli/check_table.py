"""``consilience check-table``: a table as a run would read it, before there is a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.core.errors import InvalidInput, RunFailed, as_json, command
from consilience.lab.cli.output import (
    Debug,
    Independent,
    Json,
    check_target,
    handle_errors,
    say,
    tables,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from rich.table import Table

    from consilience.core.messages.columns import Schema
    from consilience.tables.check import ColumnCheck

preparation = typer.Typer(suggest_commands=False)

_LISTED = 6
"""Categories of a column that are shown."""


@preparation.command(
    "check-table", epilog="Example: consilience check-table patients.csv --like schema.json"
)
def check_table(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A .csv, .parquet or .xlsx; for --write also a configuration, .toml.",
        ),
    ],
    like: Annotated[
        Path | None,
        typer.Option(metavar="SCHEMA.json", help="The columns agreed on; without it, its own."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="SCHEMA.json", help="Write the columns of these public rows there, for --like."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its column of labels or values.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A column to leave out. Repeatable.")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OWN=AGREED", help="Its name for a column that is agreed on. Repeatable."
        ),
    ] = None,
    units: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AGREED=FACTOR", help="Brings a column to the unit agreed on. Repeatable."
        ),
    ] = None,
    missing: Annotated[
        str, typer.Option(metavar="refused|allowed", help="Whether it may lack columns.")
    ] = "refused",
    unknown: Annotated[
        str,
        typer.Option(
            metavar="refused|missing", help="What becomes of categories that are not agreed on."
        ),
    ] = "refused",
    independent: Independent = False,
    json_to: Json = None,
    debug: Debug = False,
) -> None:
    """Read a table as a run would, and say of every column what it holds and what a run would refuse."""
    with handle_errors(debug):
        from consilience.core.validation.numbers import check_choice
        from consilience.tables.check import check_table as checked

        check_target(json_to)
        check_choice("--missing", missing, ("refused", "allowed"), where="check-table")
        check_choice("--unknown", unknown, ("refused", "missing"), where="check-table")
        factors = _pairs(units or (), "--units", "AGREED=FACTOR")
        if file.suffix == ".toml":
            if write is None:
                raise InvalidInput(
                    "this is a configuration, and a table is wanted",
                    where=str(file),
                    mend="With --write SCHEMA.json the columns of its public rows are written.",
                )
            _write_schema(_schema_of(file), write)
            return
        found = checked(
            file,
            like=None if like is None else _read_schema(like),
            target=target,
            drop=drop or (),
            rename=_pairs(rename or (), "--rename", "OWN=AGREED"),
            units={name: _factor(text) for name, text in factors.items()},
            missing=missing,  # type: ignore[arg-type]  # both were checked above
            unknown=unknown,  # type: ignore[arg-type]
            rows_are_independent=independent,
        )
        console = tables(json_to)
        console.print(
            columns_table(found.columns, found.target, f"{file.name}: {found.rows:,} rows")
        )
        if found.left_out:
            console.print(f"Left out, no inputs: {', '.join(found.left_out)}", soft_wrap=True)
        data = {**asdict(found), "schema": None if found.schema is None else found.schema.key}
        write_json({"file": str(file), **data, "refused": len(found.refused)}, json_to)
        if found.refused:
            count = len(found.refused)
            raise RunFailed(
                f"a run would refuse {count} column{'s' * (count > 1)}: "
                f"{', '.join(repr(one.name) for one in found.refused)}",
                where=str(file),
            )
        if write is not None:
            if found.schema is None:
                raise InvalidInput("texts have no columns to agree on", where=str(file))
            _write_schema(found.schema, write)


def _read_schema(path: Path) -> Schema:
    """The columns agreed on."""
    from consilience.core.files import check_format, read_text
    from consilience.core.messages.columns import Schema
    from consilience.tables.files.sizes import check_is_file

    check_is_file(path)
    try:
        document = json.loads(read_text(path))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"this is no schema of a table: {error}", where=str(path)) from error
    document = document if isinstance(document, dict) else {}
    check_format(document, path, anew="write it again: consilience check-table FILE --write SCHEMA")
    try:
        return Schema.from_json(json.dumps(document.get("columns")))
    except InvalidInput as error:
        raise error.located(str(path)) from error


def _schema_of(file: Path) -> Schema:
    """The columns of the public rows of a configuration."""
    from consilience.lab.experiments import gather, read_spec

    spec = read_spec(file)
    schema = gather(spec, spec.seed_list[0]).public.schema
    if schema is None:
        raise InvalidInput("its columns have no names to agree on", where=str(file))
    return schema


def _write_schema(schema: Schema, path: Path) -> None:
    from consilience.core.files import FORMAT

    document = {"format": FORMAT, "columns": json.loads(schema.to_json())}
    write_text(path, as_json(json.dumps(document, indent=1)) + "\n")
    say(f"{len(schema.columns):,} columns: {path}")
    say(f"a site that prepares its data: {command('check-table', 'its-table.csv', '--like', path)}")


def _pairs(given: Sequence[str], option: str, form: str) -> dict[str, str]:
    """Texts before an equals sign to those behind it, of an option that is written in this form."""
    found = dict(text.partition("=")[::2] for text in given)
    if odd := [name for name, other in found.items() if not name or not other]:
        raise InvalidInput(f"{odd[0]!r} is not {form}", where=option)
    return found


def _factor(text: str) -> float | str:
    """A factor, or the name of a conversion."""
    try:
        return float(text)
    except ValueError:
        return text


def columns_table(columns: Sequence[ColumnCheck], target: ColumnCheck | None, title: str) -> Table:
    """Lay out columns with their kinds, gaps and contents, and what is odd of each.

    Args:
        columns: the inputs.
        target: the column of labels or values, which stands last.
        title: above the table.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for head in ("column", "kind", "missing", "holds", "remarks"):
        table.add_column(head, justify="right" if head == "missing" else "left", overflow="fold")
    for one in (*columns, *filter(None, [target])):
        share = f"{one.missing:.1%}" if one.missing else ""
        table.add_row(*map(Text, (one.name, one.kind, share, _contents(one), _remarks(one))))
    return table


def _contents(one: ColumnCheck) -> str:
    """The most frequent categories with their rows; or the least, median and largest value."""
    if not isinstance(one.holds, Mapping):
        return " … ".join(f"{v:g}" if isinstance(v, float) else v for v in one.holds)
    most = sorted(one.holds.items(), key=lambda pair: -pair[1])
    more = f", and {len(most) - _LISTED} more" if len(most) > _LISTED else ""
    return ", ".join(f"{name} ({count:,})" for name, count in most[:_LISTED]) + more


def _remarks(one: ColumnCheck) -> str:
    if one.refused is None:
        return "; ".join(one.notes)
    return f"REFUSED: {one.refused}" + (f". {one.mend}" if one.mend else "")
