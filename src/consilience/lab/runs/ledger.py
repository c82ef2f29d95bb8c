"""The ledger: one SQLite file per run, written round by round, enough to report on and to resume from.

A ledger may come from an untrusted source. Before a ledger is read, its schema is compared with the tables of
this module, so that no view or trigger runs; a report opens the ledger read-only. Its format number is
SQLite's ``user_version``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.aggregation.base import Teacher
from consilience.core.errors import RunFailed, command
from consilience.core.federation.driver import CompletedRound
from consilience.core.files import FORMAT, check_format, database
from consilience.core.messages.wire import encode
from consilience.core.networks import Delivery
from consilience.core.tasks.base import bookkeeping_tasks
from consilience.core.validation.arrays import Array
from consilience.lab.runs.folder import ANEW, machine, now, versions

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE method_runs (
    method TEXT, seed INTEGER, status TEXT NOT NULL, seconds REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (method, seed));
CREATE TABLE holdings (
    seed INTEGER, party TEXT, model TEXT, class TEXT, rows INTEGER,
    PRIMARY KEY (seed, party, class));
CREATE TABLE rounds (
    method TEXT, seed INTEGER, round INTEGER, seconds REAL, state BLOB, checkpoint INTEGER NOT NULL,
    teacher_accuracy REAL,
    PRIMARY KEY (method, seed, round));
CREATE TABLE deliveries (
    method TEXT, seed INTEGER, party TEXT, round INTEGER, tasks TEXT, status TEXT, left TEXT,
    bytes_down INTEGER, bytes_up INTEGER, seconds REAL, detail TEXT, within INTEGER,
    bookkeeping INTEGER NOT NULL);
CREATE INDEX deliveries_by_round ON deliveries (method, seed, round);
CREATE TABLE metrics (
    method TEXT, seed INTEGER, round INTEGER, party TEXT, name TEXT, value REAL,
    PRIMARY KEY (method, seed, round, party, name));
CREATE TABLE own_rows (
    seed INTEGER, party TEXT, test TEXT, weights BLOB,
    PRIMARY KEY (seed, party));
CREATE TABLE row_scores (
    method TEXT, seed INTEGER, round INTEGER, party TEXT, metric TEXT, scores BLOB,
    PRIMARY KEY (method, seed, round, party, metric));
CREATE TABLE trust (
    method TEXT, seed INTEGER, round INTEGER, party TEXT, class TEXT, weight REAL,
    PRIMARY KEY (method, seed, round, party, class));
CREATE TABLE notes (method TEXT, seed INTEGER, round INTEGER, text TEXT NOT NULL);
CREATE TABLE teachers (
    method TEXT, seed INTEGER, round INTEGER, part TEXT, value REAL,
    PRIMARY KEY (method, seed, round, part));
"""


_BY_ROUND = ("rounds", "deliveries", "metrics", "row_scores", "trust", "notes", "teachers")
"""Tables of what happened in a round."""

_DOUBTFUL = {
    "TEXT": "typeof({0}) <> 'text'",
    "INTEGER": "typeof({0}) <> 'integer' OR {0} < 0",
    "REAL": "typeof({0}) NOT IN ('real', 'null') OR abs({0}) > 1e100",  # NaN is written as NULL
    "BLOB": "typeof({0}) NOT IN ('blob', 'null')",
}
"""Values that a column of a declared type never holds here; SQLite takes anything in any."""

_LONGEST = 1 << 24
"""Bytes of a text that a report reads; states of protocols may be longer, and are not read."""

_STEPS = 10_000_000, 20
"""Steps of SQLite's machine in which a ledger is looked through: so many, and so many more a byte."""


def _made(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Name of every table, index and the like to how it was made."""
    query = "SELECT name, type, tbl_name, coalesce(sql, '') FROM sqlite_master"
    return {name: (*kind, " ".join(sql.split())) for name, *kind, sql in connection.execute(query)}


@cache
def _ours() -> dict[str, tuple[str, ...]]:
    """Every table and index of a new ledger, and how it is made."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _made(connection)


_TABLES = frozenset(name for name, (kind, *_) in _ours().items() if kind == "table")

_NOT_WRITTEN = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
"""Names of SQLite's errors that a full or locked disk causes; others are of a damaged file."""


class Ledger:
    """The record of a run.

    Args:
        path: the SQLite file; it must exist unless ``create``.
        read_only: it is not to be written, and no long values are read.
        states: read protocols' states all the same, which hold models.

    Raises:
        RunFailed: no ledger there; one of another format, a damaged one, or one of somebody else's making; or
            a link in its place.
    """

    def __init__(
        self, path: Path, *, create: bool = False, read_only: bool = False, states: bool = False
    ) -> None:
        self.path = database(path)
        if not create and not path.is_file():
            raise RunFailed("there is no ledger", where=str(path), mend="Is this a run folder?")
        log = path.with_name(f"{path.name}-wal")
        mode = "rwc" if create else "rw"
        if read_only:  # without its log nobody writes it, and nothing need be made beside it
            mode = "ro" if log.exists() else "ro&immutable=1"
        with self._explained():
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None
            )
            if create:  # on disk with the change of mode, and not once more before
                self._connection.execute("PRAGMA synchronous = OFF")
                self._connection.executescript(
                    f"BEGIN; {_SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;"
                )
            else:
                self._check(path.stat().st_size + (log.stat().st_size if log.exists() else 0))
            if read_only and not states:
                self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
            if not read_only:
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA journal_mode = WAL")

    @classmethod
    def begin(cls, path: Path, **facts: Any) -> None:
        """Write the ledger of a run that begins: its time, its machine, its versions, and further facts."""
        with closing(cls(path, create=True)) as ledger:
            ledger.note(versions=versions(), machine=machine(), started=now(), **facts)

    def _check(self, size: int) -> None:
        """Raise ``sqlite3.DatabaseError`` unless the file is whole and holds only tables of this module."""
        steps = iter(range((_STEPS[0] + _STEPS[1] * size) // 10_000))
        self._connection.set_progress_handler(lambda: next(steps, None) is None, 10_000)
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.execute("PRAGMA cell_size_check = ON")
        (number,) = self._connection.execute("PRAGMA user_version").fetchone()
        # SQLite gives 0 if no number was set.
        check_format({"format": number} if number else {}, self.path, anew=ANEW)
        found, ours = _made(self._connection), _ours()
        for name, how in found.items():
            if how != ours.get(name):
                raise sqlite3.DatabaseError(
                    f"{name!r} in it is none of the tables that are written here"
                )
        if missing := sorted(_TABLES - found.keys()):
            raise sqlite3.DatabaseError(f"there is no table {missing[0]!r} in it")
        if self._connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("it fails SQLite's own check")
        self._connection.set_progress_handler(None, 0)

    def check_values(self) -> None:
        """Raise ``RunFailed`` if a column holds a value that a run never writes into it."""
        for table in sorted(_TABLES):
            columns = self.read("SELECT name, type FROM pragma_table_info(?)", table)
            for name, declared in columns:
                doubtful = _DOUBTFUL[declared].format(f'"{name}"')
                if self.read(f"SELECT 1 FROM {table} WHERE {doubtful} LIMIT 1"):
                    raise self.damaged(f"{table}.{name} holds what is never written there")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            # An error of Python's own layer, such as a text that is none, has no such name.
            if getattr(error, "sqlite_errorname", "").startswith(_NOT_WRITTEN):
                raise RunFailed(
                    f"the ledger cannot be written ({error})",
                    where=str(self.path),
                    mend=f"Free some space, then: {command('resume', self.path.parent)}",
                ) from error
            raise self.damaged(error) from error
        except sqlite3.DatabaseError as error:
            raise self.damaged(error) from error

    def damaged(self, why: object) -> RunFailed:
        """Make the error for a damaged ledger."""
        return RunFailed(
            f"the ledger is damaged ({why})",
            where=str(self.path),
            mend="Restore it from a copy, or start the run anew in another folder.",
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run all writes inside the context as one transaction."""
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._connection.in_transaction:  # a full disk ends it by itself
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def write(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Insert rows whose values stand in the table's column order."""
        rows = list(rows)
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            with self._explained():
                self._connection.executemany(
                    f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows
                )

    def read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Read the rows of a query."""
        with self._explained():
            return self._connection.execute(query, values).fetchall()

    def add_round(
        self,
        method: str,
        seed: int,
        done: CompletedRound,
        deliveries: Iterable[Delivery],
        *,
        teacher_accuracy: float | None = None,
    ) -> None:
        """Record a complete round; a checkpoint also stores its state, which replaces earlier ones.

        Args:
            method: label of the method.
            seed: the seed.
            done: the round, with the metrics measured after it.
            deliveries: each party's part of each exchange since the round before.
            teacher_accuracy: accuracy of the teacher on the public rows, if known.
        """
        state = None
        if done.checkpoint:
            self.forget_states(method, seed)
            state = encode([done.round.state])
        number = done.round.number
        row = (method, seed, number, done.seconds, state, int(done.checkpoint), teacher_accuracy)
        self.write("rounds", [row])
        notes = () if done.round.teacher is None else done.round.teacher.notes
        notes += done.round.notes
        self.write("notes", [(method, seed, number, text) for text in notes])
        measured = {party: metrics.values for party, metrics in done.metrics.items()}
        self.add_deliveries(method, seed, number, deliveries, measured)

    def add_deliveries(
        self,
        method: str,
        seed: int,
        round: int,
        deliveries: Iterable[Delivery],
        metrics: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Record the requests to the parties and their replies up to the end of a round, and its metrics.

        A task can carry the number of a later round: training before the end of round 0 belongs to round 1.

        Args:
            method: label of the method.
            seed: the seed.
            round: the completed round.
            deliveries: each party's part of each exchange.
            metrics: party to metric to value, after the round.
        """
        aside = frozenset(bookkeeping_tasks())
        self.write(
            "deliveries",
            (
                (method, seed, *one, round, int(aside.issuperset(one.tasks.split("+"))))
                for one in deliveries
            ),
        )
        self.write(
            "metrics",
            (
                (method, seed, round, party, name, value)
                for party, measured in metrics.items()
                for name, value in measured.items()
            ),
        )

    def add_trust(
        self, method: str, seed: int, round: int, teacher: Teacher, labels: Array
    ) -> None:
        """Record every party's mean weight in a teacher on the public rows of every class, if it has any.

        Args:
            method: label of the method.
            seed: the seed.
            round: the round.
            teacher: of the round.
            labels: classes of the public rows, shape ``(n_public,)``.
        """
        if teacher.weights is None:
            return
        for label in np.unique(labels):
            means = teacher.weights[:, labels == label].mean(axis=1)
            weights = zip(teacher.parties, map(float, means), strict=True)
            self.write("trust", ((method, seed, round, one, str(label), w) for one, w in weights))

    def forget_after(self, method: str, seed: int, round: int) -> None:
        """Delete the records of a method with a seed after a round; computing them again is bit-identical.

        Args:
            method: label of the method.
            seed: the seed.
            round: the last round that stays; -1 for none.
        """
        with self.transaction():
            for table in _BY_ROUND:
                column = "within" if table == "deliveries" else "round"
                self._connection.execute(
                    f"DELETE FROM {table} WHERE method = ? AND seed = ? AND {column} > ?",
                    (method, seed, round),
                )

    def forget_states(self, method: str, seed: int) -> None:
        """Delete the states of a protocol, which are large; a run resumes only from the latest state."""
        with self._explained():
            self._connection.execute(
                "UPDATE rounds SET state = NULL WHERE method = ? AND seed = ?", (method, seed)
            )

    def last_checkpoint(self, method: str, seed: int) -> tuple[int, bytes] | None:
        """Find the last round after which every party's state was written, and the protocol's state."""
        found = self.read(
            "SELECT round, state FROM rounds WHERE method = ? AND seed = ? AND checkpoint = 1 "
            "ORDER BY round DESC LIMIT 1",
            method,
            seed,
        )
        return (int(found[0][0]), bytes(found[0][1])) if found else None

    def mark(self, method: str, seed: int, status: str, seconds: float = 0.0) -> None:
        """Record how far a method with a seed is.

        Args:
            method: label of the method.
            seed: the seed.
            status: ``"running"`` or ``"done"``.
            seconds: wall time of its rounds.
        """
        self.write("method_runs", [(method, seed, status, seconds)])

    @property
    def done(self) -> frozenset[tuple[str, int]]:
        """Finished methods and seeds."""
        found = self.read("SELECT method, seed FROM method_runs WHERE status = 'done'")
        return frozenset((str(method), int(seed)) for method, seed in found)

    def last_round(self, method: str | None = None, seed: int = 0) -> tuple[int, float]:
        """Find the last recorded round, and the wall time to its end in seconds; -1 and 0 for none.

        Args:
            method: label of a method; by default any, for a run with a single method.
            seed: the seed of that method.

        Returns:
            Number of the round, and seconds.
        """
        query = (
            "SELECT coalesce(max(round), -1), coalesce(max(seconds), 0) FROM rounds "
            "WHERE ?1 IS NULL OR (method = ?1 AND seed = ?2)"
        )
        number, seconds = self.read(query, method, seed)[0]
        return int(number), float(seconds)

    @property
    def meta(self) -> Mapping[str, Any]:
        """Facts about the whole run: versions, machine, dataset notes."""
        try:
            facts = self.read("SELECT key, value FROM meta")
            return {key: json.loads(value) for key, value in facts}
        except (ValueError, TypeError, RecursionError) as error:
            raise self.damaged(f"meta.value is no JSON: {error}") from error

    def note(self, **facts: Any) -> None:
        """Add facts to :attr:`meta`."""
        self.write("meta", ((key, json.dumps(value)) for key, value in facts.items()))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
