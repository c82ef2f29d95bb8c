"""``consilience new``: a configuration for a table, after a few questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args

import typer

from consilience.core.errors import InvalidInput, command, nearest
from consilience.lab.cli.check_table import columns_table
from consilience.lab.cli.output import Debug, Independent, handle_errors, say, tables
from consilience.lab.cli.trust import on_terminal

if TYPE_CHECKING:
    from consilience.core.validation.labels import Kind
    from consilience.tables.table import Table

Answer = TypeVar("Answer")

questions = typer.Typer(suggest_commands=False)

NONE = "none"
"""Answer that there is no such column."""


@questions.command(
    epilog="Example: consilience new clinics --table patients.csv --target ill --yes"
)
def new(
    name: Annotated[
        Path, typer.Argument(metavar="NAME", help="Of the configuration: NAME.toml is written.")
    ],
    table: Annotated[
        str | None, typer.Option(metavar="FILE", help="The table: a .csv, .parquet or .xlsx.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column that is to be predicted.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="classification|regression", help="Whether that holds classes or values."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|none",
            help="The column that says whose row it is, such as the hospital.",
        ),
    ] = None,
    parties: Annotated[
        str | None,
        typer.Option(metavar="N", help="Without such a column: parties that rows are dealt to."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN|none", help="No input, such as the number of a person. Repeatable."
        ),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|N|FILE", help="The rows that everybody sees, without their labels."
        ),
    ] = None,
    independent: Independent = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: take what would be suggested.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Write a configuration for a table, after a few questions; consilience run takes it as it is."""
    with handle_errors(debug):
        from consilience.lab.config import template
        from consilience.tables.check import named_columns, suggest_columns

        path = name if name.suffix == ".toml" else name.with_name(f"{name.name}.toml")
        template.check_free(path)
        file = _answer("Which file is your table?", "--table", table, None, Path, yes=yes)
        rows = named_columns(file)
        template.check_enough(rows, where=str(file))
        if parties is not None and group not in (None, NONE):
            raise InvalidInput(
                "rows are dealt to parties by a column or by number, not by both",
                where="--group, --parties",
                mend="Leave one of them out.",
            )
        findings, _ = suggest_columns(rows, where=str(file))
        if on_terminal() and not yes:
            title = f"{file.name}: {len(rows):,} rows"
            tables("-").print(columns_table(findings, None, title))
        asked = _Questions(file, rows, yes)
        predicted, holds = asked.target(target, kind)
        whose = None if parties is not None else asked.group(group, predicted)
        many = 0 if whose is not None else asked.parties(parties)
        inputs = [one for one in findings if one.name not in (predicted, whose)]
        study = template.Study(
            table=file,
            target=predicted,
            kind=holds,
            group=whose,
            parties=many,
            drop=asked.drop(drop, template.suggested_drop(inputs, rows), (predicted, whose)),
            public=asked.public(public),
            independent=independent,
        )
        if odd := template.write_study(path, study, rows):
            say(f"warning: {odd}; the configuration says that it is meant: strict = false")
        for one in inputs:
            if one.refused and one.name in study.drop:
                say(f"warning: left out: {one.refused}. {one.mend or ''}")
        typer.echo(path)
        say(f"now: {command('run', path)}")


@dataclass(frozen=True)
class _Questions:
    """Questions about a table: answered by an option, by a person, or by the suggestion.

    Attributes:
        file: of the table.
        rows: that it has.
        yes: whether suggestions are taken without a question.
    """

    file: Path
    rows: Table = field(repr=False)
    yes: bool

    def target(self, given: str | None, kind: str | None) -> tuple[str, Kind]:
        """The column to be predicted, and what it holds."""
        from consilience.lab.config.template import suggested_kind, suggested_target

        guess = suggested_target(self.rows)
        name = self._ask("Which column is to be predicted?", "--target", given, guess, self._column)
        likely = suggested_kind(self.rows.columns[name], self.rows.mark)
        question = f"Is {name!r} for classification or regression?"
        return name, self._ask(
            question, "--kind", kind, likely, lambda text: self._kind(name, text)
        )

    def group(self, given: str | None, target: str) -> str | None:
        """The column that says whose row it is."""
        from consilience.lab.config.template import suggested_group

        question = "Which column says whose row it is, such as the hospital?"
        guess = suggested_group(self.rows, target) or NONE
        return self._ask(question, "--group", given, guess, lambda text: self._other(text, target))

    def parties(self, given: str | None) -> int:
        """The number of parties that rows are dealt to."""
        return self._ask("How many parties share the rows?", "--parties", given, "4", _count)

    def drop(
        self, given: list[str] | None, guess: tuple[str, ...], used: tuple[str | None, ...]
    ) -> tuple[str, ...]:
        """The columns that are no inputs.

        Args:
            given: with the option.
            guess: the suggestion.
            used: columns with another use, which are none of them.
        """
        if given is not None:
            return tuple(self._other(one, *used) or "" for one in given if one != NONE)

        def several(text: str) -> tuple[str, ...]:
            parts = [] if text == NONE else [part.strip() for part in text.split(",")]
            return tuple(self._other(part, *used) or "" for part in parts)

        if any("," in name for name in guess) and (self.yes or not on_terminal()):
            return guess
        question = "Which columns are no inputs, such as numbers of persons?"
        return self._ask(question, "--drop", None, ", ".join(guess) or NONE, several)

    def public(self, given: str | None) -> float | int | Path:
        """The public rows: a share, a number, or a file."""
        question = "Which rows does everybody see, without labels: a share, a number, or a file?"
        return self._ask(question, "--public", given, "0.2", _public)

    def _ask(
        self,
        question: str,
        option: str,
        given: str | None,
        guess: str,
        read: Callable[[str], Answer],
    ) -> Answer:
        return _answer(question, option, given, guess, read, yes=self.yes)

    def _column(self, text: str) -> str:
        if text not in self.rows.columns:
            raise InvalidInput(
                f"there is no column {text!r}",
                where=str(self.file),
                mend=nearest(text, self.rows.columns),
            )
        return text

    def _other(self, text: str, *used: str | None) -> str | None:
        """A column without another use, or none."""
        if text == NONE and NONE not in self.rows.columns:
            return None
        if text in used:
            raise InvalidInput(f"column {text!r} has another use already", where=str(self.file))
        return self._column(text)

    def _kind(self, name: str, text: str) -> Kind:
        """The kind of a target whose values go with it."""
        from consilience.core.validation.labels import Kind
        from consilience.core.validation.numbers import check_choice
        from consilience.tables.check import check_outcome

        check_choice("kind", text, get_args(Kind), where="--kind")
        found = check_outcome(self.file, self.rows, name, cast("Kind", text))
        if found.refused is not None:
            what = f"column {name!r}: {found.refused}"
            raise InvalidInput(what, where=str(self.file), mend=found.mend)
        if text == "classification" and (many := len(found.holds or ())) > len(self.rows) / 2:
            raise InvalidInput(
                f"column {name!r} holds {many:,} classes in {len(self.rows):,} rows",
                where=str(self.file),
                mend="A class is learnt from several rows. Say --kind regression if it holds values, or "
                "name another --target.",
            )
        return cast("Kind", text)


def _answer(
    question: str,
    option: str,
    given: str | None,
    guess: str | None,
    read: Callable[[str], Answer],
    *,
    yes: bool,
) -> Answer:
    """The answer to a question.

    Args:
        question: in words.
        option: that answers it.
        given: with that option.
        guess: the suggestion; ``None`` where there is none.
        read: makes the answer of a text, or refuses it.
        yes: whether the suggestion is taken without a question.

    Raises:
        InvalidInput: the answer is refused; or there is none, and nobody to be asked.
    """
    if given is not None:
        return read(given)
    if yes and guess is not None:
        say(f"{question} {guess}")
        return read(guess)
    if yes or not on_terminal():
        rest = "" if guess is None else f"; or --yes, which here takes {guess!r}"
        raise InvalidInput(
            f"{question} There is no terminal to ask at" if not yes else question,
            where="consilience new",
            mend=f"Say it with {option}{rest}.",
        )
    while True:
        try:
            return read(typer.prompt(question, default=guess, err=True).strip())
        except InvalidInput as error:
            say(f"  {error}")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise InvalidInput(f"{text!r} is no number of parties", mend="Give 2 or more.")
    return int(text)


def _public(text: str) -> float | int | Path:
    """A share, a number, or a file that is there."""
    for kind in (int, float):
        try:
            number: Any = kind(text)
        except ValueError:
            continue
        if number > 0 and (kind is int or number < 1):
            return cast("float | int", number)
        raise InvalidInput(f"{text} is neither a share, in (0, 1), nor a number of rows")
    if not Path(text).is_file():
        raise InvalidInput(
            f"{text!r} is neither a share nor a number of rows, and there is no such file",
            mend="Give 0.2 for a fifth of the rows, 500 for so many, or the name of a file.",
        )
    return Path(text)
