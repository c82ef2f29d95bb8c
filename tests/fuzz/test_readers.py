"""Files and messages of strangers are read, or refused in words: in bounded time and memory.

The suite tries a few mutations of each kind; ``make fuzz`` tries thousands. What fuzzing has found is kept in
``FOUND``, and tried first.
"""

from __future__ import annotations

import io
import json
import re
import resource
import signal
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from consilience.core.errors import ConsilienceError
from consilience.core.files import FORMAT
from consilience.core.learners import as_learner
from consilience.core.messages.replies import Failure, Receipt
from consilience.core.messages.schema import Agreement, Public
from consilience.core.messages.wire import encode
from consilience.core.networks.incoming import decode_reply
from consilience.core.tasks.lifecycle import Join, TakePublic
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.lab.cli.check_table import _read_schema
from consilience.lab.config.reading import read_spec
from consilience.lab.config.sections import read_toml
from consilience.lab.data import load_table, read_rows
from consilience.models.files.transfer import pack, unpack
from consilience.sites.coordinator.configuration import checked
from consilience.sites.coordinator.template import TEMPLATE as COORDINATOR
from consilience.sites.operations.invitation import Invitation, read_invitation
from consilience.sites.party import read_party
from consilience.sites.party.limits import GROUPS
from consilience.sites.party.requests import read_request
from consilience.sites.party.template import TEMPLATE as PARTY
from consilience.tables.rows import rows_and_schema
from consilience.tables.table import Table

SECONDS, MORE_MEMORY = 20, 2 << 30
"""Limits of one example: its time, and the memory beyond what the process has at its start."""

EXAMPLES = Path(__file__).parents[2] / "examples"
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 2)), np.arange(30) % 2


@contextmanager
def limits() -> Iterator[None]:
    """Bound the time and the memory of a block."""

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"no end within {SECONDS} s")

    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MORE_MEMORY, before[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


# --- what is read ---------------------------------------------------------------------------------


def sheet() -> list[bytes]:
    openpyxl = pytest.importorskip("openpyxl")
    book, file = openpyxl.Workbook(), io.BytesIO()
    for row in (["x", "code", "y"], [1.5, "01", "a"], [2, "1", "b"], [3, "2", "a"], [4, "3", "b"]):
        book.active.append(row)
    book.save(file)
    return [file.getvalue()]


def columns() -> list[bytes]:
    file = io.BytesIO()
    kinds = {"x": [1.5, None], "y": ["a", "b"], "t": pa.array([1, 2], pa.timestamp("s"))}
    parquet.write_table(pa.table(kinds), file)
    return [file.getvalue()]


def invitation() -> list[bytes]:
    facts = {"federation": "heart", "party": "north", "address": "a.example.org:9092"}
    made = Invitation.new(3, certificate="-----BEGIN CERTIFICATE-----", **facts)
    said = made.model_dump(mode="json")
    document = {"format": FORMAT, **said, "fingerprint": made.fingerprint}
    return [json.dumps(document).encode()]


def messages() -> list[bytes]:
    public = Public(X[:5])
    agreed = Agreement(
        kind="classification", classes=("a", "b"), outputs=2, public=public.key, rows=5, seed=0
    )
    tasks = (
        FitPrivate(round=0),
        PredictPublic(round=1),
        Distill(round=1, targets=np.full((5, 2), 0.5), alpha=1.0),
        Join(agreement=agreed),
        TakePublic(public=public.key, values=X[:5]),
    )
    replies = (Receipt(party="north", round=0), Failure(party="north", reason="late", kind="late"))
    return [encode((one,)) for one in (*tasks, *replies)]


def models() -> list[bytes]:
    found = []
    for model in (LogisticRegression(), DecisionTreeClassifier(max_depth=2)):
        learner = as_learner(model)
        learner.bind(2)
        learner.fit(X, np.eye(2)[Y], rng=np.random.default_rng(0))
        about, data = pack(learner)
        found.append(about.encode() + b"\n" + data.tobytes())
    return found


def read_model(content: bytes) -> None:
    about, _, data = content.partition(b"\n")
    learner = unpack(about.decode("latin-1"), np.frombuffer(data, np.uint8))
    with suppress(ValueError):  # what a model says of rows that do not suit it
        learner.predict(X)


def read_any_table(path: Path) -> None:
    with suppress(ConsilienceError):
        read_rows(path)
    load_table(path, "y", group="x")


def read_coordinators(path: Path) -> None:
    checked(read_toml(path), path)


Read = Callable[[bytes, Path], object]


def of_file(reader: Callable[[Path], object], name: str) -> Read:
    """A reader of bytes that reads a file."""

    def read(content: bytes, folder: Path) -> object:
        (folder / name).write_bytes(content)
        return reader(folder / name)

    return read


READERS: dict[str, Read] = {
    "csv": of_file(read_any_table, "t.csv"),
    "parquet": of_file(read_any_table, "t.parquet"),
    "xlsx": of_file(read_any_table, "t.xlsx"),
    "npz": of_file(read_any_table, "t.npz"),
    "configuration": of_file(read_spec, "t.toml"),
    "party": of_file(read_party, "t.toml"),
    "coordinator": of_file(read_coordinators, "t.toml"),
    "invitation": of_file(read_invitation, "t.json"),
    "schema": of_file(_read_schema, "t.json"),
    "request": lambda content, _: read_request(content, GROUPS),
    "reply": lambda content, _: decode_reply("north", content, 1.0),
    "model": lambda content, _: read_model(content),
}

CELLS = (
    *(
        "",
        "NA",
        "0",
        "1",
        "-1.5",
        "1,5",
        "1.234",
        "1,234",
        "007",
        "1E5",
        "1e400",
        "inf",
        "0x1F",
        "9" * 30,
    ),
    *(
        "2026-12-24",
        "1/2/2026",
        "99.99.9999",
        "0001-01-01",
        "24:61",
        "12:30",
        "true",
        "yes",
        "45 %",
        "$5",
    ),
    *(
        '"',
        '""',
        '"a',
        "\x00",
        "\ufeff",
        "ö",
        "\u202e",
        "=1+1",
        "a b",
        "\u0662",
        "\u2212 1",
        "1 000",
    ),
)
VALUES = (
    *(
        "1",
        "-1",
        "0",
        "1e400",
        "nan",
        "-inf",
        "9223372036854775807",
        "0.5",
        "true",
        '""',
        '"a"',
        "[]",
        "{}",
    ),
    *(
        "[[]]",
        "[1, 'a']",
        "{a = 1}",
        "1979-05-27",
        "07:32:00",
        '"\\u0000"',
        "['a', 'a']",
        "1e-300",
        "[{}]",
    ),
)


def tables_of_text() -> list[bytes]:
    table = "x,code,y\n1.5,01,a\n2,1,b\n3,2,a\n4,3,b\n5,4,a\n"
    return [
        table.encode(),
        table.replace(",", ";").encode("utf-16"),
        table.encode("utf-8-sig"),
    ]


def arrays() -> list[bytes]:
    np.savez(packed := io.BytesIO(), X=X, y=Y, site=Y)
    return [packed.getvalue()]


def npz_with(header: bytes) -> bytes:
    """An array with a header of its own."""
    with zipfile.ZipFile(file := io.BytesIO(), "w") as packed:
        packed.writestr("X.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return file.getvalue()


def coordinator() -> list[bytes]:
    facts = {"start": "", "name": '"h"', "address": '"a.example.org:9092"', "count": 2, "most": 1}
    return [COORDINATOR.format(**facts, parties='a = ""\nb = ""').encode()]


def schema() -> list[bytes]:
    found = rows_and_schema(Table.of({"a": [1, 2], "b": ["x", "y"]}, where=""), where="").schema
    assert found is not None
    document = {"format": FORMAT, "columns": json.loads(found.to_json())}
    return [json.dumps(document).encode()]


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "csv": tables_of_text,
    "parquet": columns,
    "xlsx": sheet,
    "npz": arrays,
    "configuration": lambda: [
        (EXAMPLES / f"{n}.toml").read_bytes() for n in ("heart", "own-table")
    ],
    "party": lambda: [PARTY.encode()],
    "coordinator": coordinator,
    "invitation": invitation,
    "schema": schema,
    "request": messages,
    "reply": messages,
    "model": models,
}
"""Whole files of every kind, which are mutated."""

FOUND: dict[str, list[bytes]] = {
    "csv": [b"a,b\r1,2\r3,4\r", b'"' + b"a" * 200_000, b"x,y\n" + b"9" * 400 + b",a\n1,b\n"],
    "npz": [npz_with(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), ")],
    "configuration": [
        b'[data]\npath = "\\u0000"',
        b"a = " + b"[" * 5_000,
        b"a" + b".a" * 50_000,
        b"a = " + b"9" * 5_000,
    ],
    "schema": [b"[" * 100_000, b'{"columns": [{"name": ' + b"9" * 5_000 + b"}]}"],
    "model": [b"[" * 100_000 + b"\n", b'{"model": "sklearn:a", "outputs": 1e999}\n'],
}
"""Contents that a reader did not refuse in words, or not in time."""


# --- mutations ------------------------------------------------------------------------------------


def bytes_of(whole: bytes) -> st.SearchStrategy[bytes]:
    """A file with parts that are changed, taken out, doubled or cut off."""
    places = st.integers(0, max(0, len(whole) - 1))
    part = st.one_of(
        st.binary(max_size=6), st.sampled_from([b"\xff" * 4, b"\x00" * 8, b"\x7f", b"["])
    )
    edit = st.tuples(
        places, st.integers(0, 40), part, st.sampled_from(["replace", "insert", "double", "cut"])
    )

    def edited(edits: list[tuple[int, int, bytes, str]]) -> bytes:
        content = whole
        for at, count, new, how in edits:
            if how == "cut":
                content = content[: max(at, 1)]
            elif how == "double":
                content = content[: at + count] + content[at:]
            else:
                content = content[:at] + new + content[at + (count if how == "replace" else 0) :]
        return content

    return st.lists(edit, min_size=1, max_size=4).map(edited)


def lines_of(whole: bytes) -> st.SearchStrategy[bytes]:
    """A configuration with other values, or lines that are taken out, doubled or moved."""
    text = whole.decode()
    # What stands in a comment is an option too.
    lines = [re.sub(r"^#\s*(?=[\w.]+\s*=|\[)", "", line) for line in text.splitlines()]
    edit = st.tuples(
        st.integers(0, len(lines) - 1), st.sampled_from(("", "double", "move", *VALUES))
    )

    def edited(edits: list[tuple[int, str]], as_it_is: bool) -> bytes:
        found = text.splitlines() if as_it_is else list(lines)
        for at, how in edits:
            line = found[at % len(found)]
            if how == "double":
                found.insert(0, line)
            elif how == "move":
                found.append(found.pop(at % len(found)))
            else:
                key = line.partition("=")[0]
                found[at % len(found)] = f"{key} = {how}" if how and "=" in line else how
        return "\n".join(found).encode()

    return st.builds(edited, st.lists(edit, min_size=1, max_size=3), st.booleans())


def tables(_: bytes) -> st.SearchStrategy[bytes]:
    """Lines of cells that are odd, in any encoding."""
    row = st.lists(st.sampled_from(CELLS), min_size=2, max_size=3)
    ends, encodings = (
        st.sampled_from(["\n", "\r", "\r\n"]),
        st.sampled_from(["utf-8", "utf-16", "cp1252"]),
    )

    def written(body: list[list[str]], separator: str, end: str, encoding: str) -> bytes:
        lines = [["x", "code", "y"], *(line for line in body for _ in range(2))]
        return end.join(map(separator.join, lines)).encode(encoding, errors="replace")

    return st.builds(written, st.lists(row, max_size=12), st.sampled_from(",;\t|"), ends, encodings)


def parts_of(whole: bytes) -> st.SearchStrategy[bytes]:
    """A packed file with one part changed, which is packed again."""
    with zipfile.ZipFile(io.BytesIO(whole)) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}

    def packed_again(name: str, content: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as again:
            for other, part in parts.items():
                again.writestr(other, content if other == name else part)
        return file.getvalue()

    names = st.sampled_from(sorted(parts))
    return names.flatmap(lambda name: st.builds(packed_again, st.just(name), bytes_of(parts[name])))


def jsons_of(whole: bytes) -> st.SearchStrategy[bytes]:
    """A text of JSON with one value in the place of another."""
    document = json.loads(whole)
    odd = st.sampled_from(
        [None, True, -1, 1e300, 10**30, "", "\ud800", "a" * 2_000, [], {}, [[]], {"a": []}]
    )
    records = document if isinstance(document, list) else [document]

    def changed(at: int, key: str, value: Any) -> bytes:
        found = [dict(one) for one in records]
        found[at % len(found)][key] = value
        return json.dumps(found if isinstance(document, list) else found[0]).encode()

    return st.builds(changed, st.integers(0, 9), st.sampled_from(sorted(records[0])), odd)


MUTATIONS: dict[str, Callable[[bytes], st.SearchStrategy[bytes]]] = {
    "csv": tables,
    "xlsx": parts_of,
    "npz": parts_of,
    **dict.fromkeys(("configuration", "party", "coordinator"), lines_of),
    **dict.fromkeys(("invitation", "schema"), jsons_of),
}


@pytest.mark.parametrize(
    "times", [pytest.param(15, id="few"), pytest.param(2_000, id="many", marks=pytest.mark.fuzz)]
)
@pytest.mark.parametrize("kind", READERS)
def test_whatever_is_read_is_read_or_refused(kind: str, times: int, tmp_path: Path) -> None:
    whole = SEEDS[kind]()
    ways = [bytes_of, MUTATIONS[kind]] if kind in MUTATIONS else [bytes_of]

    @settings(
        max_examples=times,
        derandomize=times < 100,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from([way(one) for way in ways for one in whole]).flatmap(lambda way: way))
    def attempt(content: bytes) -> None:
        with warnings.catch_warnings(), limits(), suppress(ConsilienceError):
            warnings.simplefilter("ignore")
            READERS[kind](content, tmp_path)

    for content in (*whole, *FOUND.get(kind, ())):
        attempt.hypothesis.inner_test(content)
    attempt()
