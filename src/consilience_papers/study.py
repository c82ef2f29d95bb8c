"""Repetitions of an experiment: in parallel, each kept as soon as it is done."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import RunFailed
from consilience.core.files import database
from consilience.core.numerics.randomness import limited_threads
from consilience.core.validation.arrays import Array

Trial = Callable[..., Mapping[str, Any]]
Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Study:
    """Settings of a reproduction: its size, its processes, and the folder of its results.

    Attributes:
        folder: results, one row a repetition, go into ``results.sqlite`` there; what is in it is not computed
            again, so that a study that was stopped goes on where it was.
        repetitions: of every cell; ``None`` for each exhibit's own number.
        quick: a small part of everything, to see that it works; its figures mean little.
        processes: that compute at a time, each with one numerical thread.
        report: told of every repetition: what, how many are done, of how many.
    """

    folder: Path
    repetitions: int | None = None
    quick: bool = False
    processes: int = 2
    report: Report = lambda label, done, total: None

    def times(self, full: int, quick: int) -> int:
        """Number of repetitions, given an exhibit's own full and quick number."""
        return self.repetitions or (quick if self.quick else full)

    def repeat(
        self, trial: Trial, repetitions: int, *, label: str, **arguments: Any
    ) -> dict[str, Array]:
        """Run ``trial(repetition=0, …)``, ``trial(repetition=1, …)``, …

        Args:
            trial: a function at the top level of a module that returns numbers, or lists of them, by name.
            repetitions: how many.
            label: what to call it in reports.
            arguments: plain values, the same for every repetition.

        Returns:
            By name, shape ``(repetitions, …)``.

        Raises:
            RunFailed: the results cannot be written or read.
        """
        key = f"{trial.__module__}.{trial.__qualname__}" + json.dumps(arguments, sort_keys=True)
        key = hashlib.sha256(key.encode()).hexdigest()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with closing(
                sqlite3.connect(database(self.folder / "results.sqlite"), timeout=60)
            ) as store:
                found = self._found(store, key)
                missing = [r for r in range(repetitions) if r not in found]
                done = repetitions - len(missing)
                self.report(label, done, repetitions)
                for repetition, values in self._computed(trial, missing, arguments):
                    found[repetition] = values
                    with store:
                        store.execute(
                            "INSERT OR REPLACE INTO results VALUES (?, ?, ?)",
                            (key, repetition, json.dumps(values)),
                        )
                    done += 1
                    self.report(label, done, repetitions)
        except (OSError, sqlite3.Error) as error:
            raise RunFailed(
                f"results cannot be kept ({error})",
                where=str(self.folder),
                mend="Free some space or give another folder with --out.",
            ) from error
        names = found[0]
        return {
            name: np.array([found[r][name] for r in range(repetitions)], float) for name in names
        }

    def _found(self, store: sqlite3.Connection, key: str) -> dict[int, dict[str, Any]]:
        with store:
            store.execute("PRAGMA journal_mode = WAL")
            store.execute(
                "CREATE TABLE IF NOT EXISTS results "
                "(cell TEXT, repetition INTEGER, value TEXT, PRIMARY KEY (cell, repetition))"
            )
        query = "SELECT repetition, value FROM results WHERE cell = ?"
        return {repetition: json.loads(text) for repetition, text in store.execute(query, (key,))}

    def _computed(
        self, trial: Trial, missing: list[int], arguments: Mapping[str, Any]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        if self.processes == 1 or len(missing) < 2:
            for repetition in missing:
                yield _one(trial, repetition, arguments)
            return
        import joblib

        jobs = joblib.Parallel(n_jobs=self.processes, return_as="generator_unordered")
        yield from jobs(joblib.delayed(_one)(trial, r, arguments) for r in missing)


def _one(trial: Trial, repetition: int, arguments: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Run one repetition; gives its values as numbers and lists, as they are kept."""
    with limited_threads(1):
        values = trial(repetition=repetition, **arguments)
    return repetition, {name: np.asarray(value).tolist() for name, value in values.items()}
