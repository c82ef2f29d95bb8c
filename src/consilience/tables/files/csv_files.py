"""CSV files of any separator and encoding.

The separator is the one by which most lines have the same number of fields, more than one; the encoding
UTF-8, with or without a mark in front, UTF-16 with one, or else that of Windows (cp1252). A file with letters
of two encodings is refused. The decimal mark is decided for the whole file; digits with a leading zero and
``1E5`` stay texts (:mod:`consilience.tables.texts`).
"""

from __future__ import annotations

import csv as lines
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from consilience.core.errors import InvalidInput
from consilience.core.validation.arrays import Array
from consilience.core.validation.memory import check_memory
from consilience.tables.table import GAPS, Table, check_names, named_by_place
from consilience.tables.texts import Mark, mark_of, marks_shown

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""Characters that may stand between the fields of a line."""

_LOOKED_AT = 1 << 16
"""Number of characters from which the separator is determined."""

_GAPS_AS_WRITTEN = sorted(
    {spelling for gap in GAPS for spelling in (gap, gap.upper(), gap.title())}
)

_DECLARED = re.compile(r'\A"?sep=[,;|\t]"?[,;|\t]*(\r\n?|\n)', re.IGNORECASE)
"""First line that declares the separator to Excel."""

_FEW_VALUES = 1_000
"""Values of a column that may be classes or groups."""

_CODE = r"^\s*[-+]?0\d|0[xX]|\d[eE]\d"
_THOUSANDS = r"^\s*[-+]?[1-9]\d{0,2}\.\d{3}\s*$"
_LONG = r"^\s*[-+]?\d{17}"
_POINT = r"^\s*[-+]?(\d{4,}|0)?\.|^\s*[-+]?\d{1,3}\.(\d{1,2}|\d{4,})?(\s*$|[eE])|\.\d*[eE]"
"""Forms of numbers for pyarrow: codes, perhaps thousands, more digits than a float has, a decimal point."""

_UTF_8 = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
"""A letter of UTF-8 beyond ASCII."""


def read_csv(path: Path, rows: Array | None) -> Table:
    """Read a CSV file, as :func:`consilience.tables.files.columns.read_table` does."""
    import pyarrow as arrow
    from pyarrow import csv

    check_memory(8 * path.stat().st_size, "what it holds", where=str(path))
    content = path.read_bytes()
    if not content.strip():
        # pyarrow says so too, and may then abort the process while its threads end
        raise InvalidInput("the file is empty", where=str(path))
    text = _DECLARED.sub("", _decoded(content, path).lstrip("\r\n"), count=1)
    separator = _separator(text[:_LOOKED_AT], path)
    header = named_by_place([name.strip() for name in _first_line(text, separator, path)])
    check_names(header, where=str(path))
    data = text.encode()
    form = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    if rows is not None:  # written again as texts: no other row decides the kind of a column
        whole = csv.read_csv(
            arrow.py_buffer(data),
            csv.ReadOptions(autogenerate_column_names=True),
            form,
            csv.ConvertOptions(column_types={f"f{i}": arrow.string() for i in range(len(header))}),
        )
        chosen = io.BytesIO()
        plain = csv.WriteOptions(include_header=False, delimiter=separator)
        csv.write_csv(whole.filter([True, *rows]), chosen, plain)
        data = chosen.getvalue()

    def read(kinds: Mapping[str, Any], only: Sequence[str] = ()) -> dict[str, Any]:
        found = csv.read_csv(
            arrow.py_buffer(data),
            csv.ReadOptions(column_names=header, skip_rows_after_names=1),
            form,
            csv.ConvertOptions(
                null_values=_GAPS_AS_WRITTEN,
                strings_can_be_null=True,
                column_types=kinds,
                include_columns=list(only),
            ),
        )
        return dict(zip(found.column_names, found.columns, strict=True))

    found = read({})
    numbers = [name for name, one in found.items() if str(one.type) in ("int64", "double")]
    written = read(dict.fromkeys(numbers, arrow.string()), numbers) if numbers else {}
    mark = _decimal_mark(found, written)
    for name, texts in written.items():
        if _stays_text(texts, found[name], mark, separator):
            found[name] = texts
    return Table.of(found, where=str(path), mark=mark)


def _decimal_mark(found: Mapping[str, Any], written: Mapping[str, Any]) -> Mark:
    """The decimal mark that all columns of numbers of a file show, if they show one.

    Args:
        found: the file's columns.
        written: the texts of those that pyarrow takes for numbers.
    """
    import pyarrow.compute as compute

    texts = (one for one in found.values() if str(one.type) == "string")
    shown = {mark for one in texts for mark in marks_shown(compute.unique(one).to_pylist())}
    parts = (written[name] for name, one in found.items() if str(one.type) == "double")
    return mark_of(shown | {"."} if any(_any(one, _POINT) for one in parts) else shown)


def _stays_text(written: Any, read: Any, mark: Mark, separator: str) -> bool:
    """Check whether texts that pyarrow reads as numbers may be codes, or would lose differences as numbers.

    They may be codes, or thousands with points. Two texts may be one number: 1.1 and 1.10, or whole numbers
    of 17 digits and more.
    """
    import pyarrow.compute as compute

    if str(read.type) == "int64":
        return _any(written, _CODE)
    if _any(written, f"{_CODE}|{_LONG}"):
        return True
    unsure = mark == "," or (mark == "" and separator != ",")
    if unsure and _any(written, _THOUSANDS) and not _any(written, _POINT):
        return True
    values = compute.unique(read)
    return len(values) <= _FEW_VALUES and len(compute.unique(written)) > len(values)


def _any(texts: Any, pattern: str) -> bool:
    import pyarrow.compute as compute

    return bool(compute.any(compute.match_substring_regex(texts, pattern)).as_py())


def _decoded(content: bytes, path: Path) -> str:
    """The text of a file: UTF-8 or UTF-16 with a mark, or else the encoding of Windows.

    Raises:
        InvalidInput: it is none of these, or partly one and partly another.
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = content.decode("utf-16")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            text = _of_windows(content, error, path)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidInput(
            f"line {line:,} holds a zero byte: it is no text, or of an encoding that is not known",
            where=str(path),
            mend="Save it as UTF-8.",
        )
    return text


def _of_windows(content: bytes, error: UnicodeDecodeError, path: Path) -> str:
    """Decode a non-UTF-8 file as cp1252; raise ``InvalidInput`` if this fails or parts of it are UTF-8."""
    line = content.count(b"\n", 0, error.start) + 1
    if _UTF_8.search(content):
        raise InvalidInput(
            f"line {line:,} holds the byte 0x{content[error.start]:02X}, which is not UTF-8, and other lines "
            "hold letters that are",
            where=str(path),
            mend="Write that line again in UTF-8: the file has two encodings, or is damaged.",
        )
    try:
        return content.decode("cp1252")
    except UnicodeDecodeError as other:
        line = content.count(b"\n", 0, other.start) + 1
        raise InvalidInput(
            f"line {line:,} holds the byte 0x{content[other.start]:02X}: it is neither UTF-8 nor the "
            "encoding of Windows (cp1252)",
            where=str(path),
            mend="Save it as UTF-8.",
        ) from None


def _first_line(text: str, separator: str, path: Path) -> list[str]:
    """The fields of a file's first line.

    Raises:
        InvalidInput: a quote in it is not closed, or a name is too long.
    """
    try:
        found = lines.reader(io.StringIO(text, newline=""), delimiter=separator)
        return next(filter(None, found), [])
    except lines.Error as error:
        raise InvalidInput(
            f"its first line cannot be read: {error}",
            where=str(path),
            mend="The first line has the names of the columns; is a quote in it not closed?",
        ) from error


def _separator(text: str, path: Path) -> str:
    """The separator by which most lines have the same number of fields, two or more.

    Raises:
        InvalidInput: two do as well as one another, or none does and there are blanks.
    """
    sample = "".join(text.splitlines(keepends=True)[:200])
    fitting: dict[str, tuple[float, int]] = {}
    for separator in SEPARATORS:
        try:
            fields_of = [
                len(line)
                for line in lines.reader(io.StringIO(sample, newline=""), delimiter=separator)
                if line
            ]
        except lines.Error:
            continue
        (fields, times), *_ = Counter(fields_of).most_common(1) or [(0, 0)]
        if fields > 1 and fields_of[0] == fields:
            fitting[separator] = times / len(fields_of), fields
    best = [one for one in fitting if fitting[one] == max(fitting.values())]
    if len(best) > 1:
        raise InvalidInput(
            f"its fields may stand between {' or '.join(SEPARATORS[one] for one in best)}",
            where=str(path),
            mend="Write it with one of them, and texts that hold the other in quotes.",
        )
    header, *body = [line.split() for line in sample.splitlines()[:100]] or [[]]
    if not best and len(header) > 1 and sum(map(len, body)) >= len(header) * len(body) > 0:
        raise InvalidInput(
            "its fields seem to stand between blanks",
            where=str(path),
            mend=f"Write it with {', '.join(list(SEPARATORS.values())[:-1])} or bars between them.",
        )
    return best[0] if best else ","
