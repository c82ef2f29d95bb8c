"""From a run's ledger to :class:`~consilience.lab.report.results.Results`.

A run was simulated or deployed. Both have one ledger (:mod:`consilience.lab.runs.ledger`), and each its own
configuration, which :mod:`consilience.lab.experiments` or a :class:`.Deployment` reads.

A run folder may come from an untrusted source. Its tables are therefore checked for consistency, and their
declared sizes against the available memory, before any array of such a size is allocated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.aggregation.guard import excluded_in
from consilience.core.validation.arrays import Array
from consilience.core.validation.memory import check_memory
from consilience.lab.data import Holdings
from consilience.lab.experiments import stored_spec
from consilience.lab.experiments.measured_rows import decoded
from consilience.lab.report.attendance import read_attendance
from consilience.lab.report.results import (
    Event,
    EveryonesRows,
    Exclusion,
    Method,
    Note,
    Results,
    SentItem,
    UnfinishedRun,
)
from consilience.lab.runs.deployment import deployment
from consilience.lab.runs.folder import LEDGER, RunSpec, read_configuration, run_of
from consilience.lab.runs.ledger import Ledger

_MOST_NAMES = 100
"""Metrics, or parts of a teacher's error, of one run."""

_FACTS: Mapping[str, type] = {
    "versions": dict,
    "warnings": list,
    "public_rows": int,
    "excluded": dict,
    "learners": list,
    "attacks": list,
}
"""Facts about a run that a report does more with than print them."""


def read_results(run: Path) -> Results:
    """Read a run, simulated or deployed, finished or not.

    Args:
        run: run folder, or the coordinator's folder around it.

    Returns:
        The results.

    Raises:
        InvalidInput: not a run folder, or one that would not fit into memory.
        RunFailed: a run of another format, or a damaged ledger.
    """
    run = run_of(run)
    deployed = read_configuration(run).kind == "deployed"
    federation = deployment().deployed_spec(run) if deployed else None
    spec: RunSpec = federation or stored_spec(run)
    with closing(Ledger(run / LEDGER, read_only=True)) as ledger:
        ledger.check_values()
        meta = _facts(ledger)
        splits, models = _splits(ledger)
        parties = tuple(dict.fromkeys(name for split in splits.values() for name in split.parties))
        if federation is not None:
            asked = {name for (name,) in ledger.read("SELECT DISTINCT party FROM deliveries")}
            parties = tuple(sorted(asked.union(federation.parties)))
        else:
            _check_holdings(ledger, splits)
        _check(ledger, parties)
        status = {
            (method, seed): (state, seconds)
            for method, seed, state, seconds in ledger.read(
                "SELECT method, seed, status, seconds FROM method_runs"
            )
        }
        reached = {
            (method, seed): round
            for method, seed, round in ledger.read(
                "SELECT method, seed, max(round) FROM rounds GROUP BY method, seed"
            )
        }
        done = {one for one, (state, _) in status.items() if state == "done"}
        tests = _tests(ledger, parties)
        methods, missing = [], []
        for chosen in spec.methods:
            label = chosen.label
            seeds = [seed for seed in spec.seed_list if (label, seed) in done]
            missing += [
                UnfinishedRun(label, seed, reached.get((label, seed)))
                for seed in spec.seed_list
                if seed not in seeds
            ]
            if seeds:
                seconds = tuple(float(status[label, seed][1]) for seed in seeds)
                methods.append(
                    replace(
                        _method(
                            ledger, label, chosen.named, seeds, seconds, parties, splits, tests
                        ),
                        aside=tuple(
                            i for i, name in enumerate(parties) if name in meta.get("learners", ())
                        ),
                    )
                )
        return Results(
            folder=run,
            spec=spec,
            meta=meta,
            methods=tuple(methods),
            missing=tuple(missing),
            parties=parties,
            models=models,
            splits=splits,
            tests=tests,
            failures=_failures(ledger),
            exclusions=_exclusions(ledger, parties),
            notes=_notes(ledger),
            left=_sent(ledger, spec.seed_list[0]),
            attendance=read_attendance(ledger, spec.seed_list[0]),
        )


def _facts(ledger: Ledger) -> Mapping[str, Any]:
    """Facts about the whole run."""
    meta = ledger.meta
    for key, kind in _FACTS.items():
        if not isinstance(meta.get(key, kind()), kind):
            raise ledger.damaged(f"meta.{key} is {meta[key]!r:.100}")
    return meta


def _check_holdings(ledger: Ledger, splits: Mapping[int, Holdings]) -> None:
    """Raise ``RunFailed`` if a simulated run has no record of the parties' holdings for a seed."""
    rounds = ledger.read("SELECT 1 FROM rounds LIMIT 1")
    for (seed,) in ledger.read("SELECT DISTINCT seed FROM method_runs"):
        if seed not in splits and rounds:
            raise ledger.damaged(f"it does not say who holds what with seed {seed}")


def _check(ledger: Ledger, parties: Sequence[str]) -> None:
    """Raise ``RunFailed`` where tables contradict one another, ``InvalidInput`` where they are too much."""
    last: dict[tuple[str, int], int] = {}
    for method, seed, most, count in ledger.read(
        "SELECT method, seed, max(round), count(*) FROM rounds GROUP BY method, seed"
    ):
        last[method, seed] = most
        if most >= count:
            raise ledger.damaged(f"rounds of {method!r} are missing, of {most:,} with seed {seed}")
    for table in ("metrics", "row_scores", "trust", "deliveries"):
        for (party,) in ledger.read(f"SELECT DISTINCT party FROM {table}"):
            if party not in parties:
                raise ledger.damaged(f"{table} are of party {party!r:.100}, who does not take part")
    for method, seed, most in ledger.read(
        "SELECT method, seed, max(round) FROM metrics GROUP BY method, seed"
    ):
        if most > last.get((method, seed), -1):
            raise ledger.damaged(f"metrics of {method!r} are of a round that was not recorded")
    names = ledger.read("SELECT count(DISTINCT name) FROM metrics")[0][0]
    parts = ledger.read("SELECT count(DISTINCT part) FROM teachers")[0][0]
    if max(names, parts) > _MOST_NAMES:
        raise ledger.damaged(f"it holds {max(names, parts):,} metrics")
    # Of each method there are tables of all its seeds and of as many rounds as the longest of them has.
    longest: dict[str, int] = defaultdict(int)
    for (method, _), most in last.items():
        longest[method] = max(longest[method], most + 1)
    rounds = sum(longest[method] for method, _ in last)
    needed = 8 * rounds * (len(parties) * (names + 2) + parts + 1)
    what = f"{rounds:,} rounds of {len(parties):,} parties with {names:,} metrics"
    check_memory(needed, what, where=str(ledger.path))


def _splits(ledger: Ledger) -> tuple[dict[int, Holdings], dict[str, str]]:
    counts: dict[int, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    models: dict[str, str] = {}
    for seed, party, model, label, rows in ledger.read(
        "SELECT seed, party, model, class, rows FROM holdings ORDER BY seed, rowid"
    ):
        counts[seed][party][label] = rows
        models[party] = model
    splits = {}
    for seed, held in counts.items():
        classes = tuple(dict.fromkeys(label for row in held.values() for label in row))
        if any(len(row) < len(classes) for row in held.values()):
            raise ledger.damaged(
                f"it does not say of each class how many rows who holds, seed {seed}"
            )
        table = [[row[label] for label in classes] for row in held.values()]
        splits[seed] = Holdings(np.array(table, dtype=np.int64), tuple(held), classes)
    return splits, models


def _method(
    ledger: Ledger,
    label: str,
    aggregate: str,
    seeds: Sequence[int],
    seconds: tuple[float, ...],
    parties: tuple[str, ...],
    splits: Mapping[int, Holdings],
    tests: Mapping[int, EveryonesRows],
) -> Method:
    where = {party: i for i, party in enumerate(parties)}
    row = {seed: i for i, seed in enumerate(seeds)}
    found = [
        measured
        for measured in ledger.read(
            "SELECT seed, round, party, name, value FROM metrics WHERE method = ? ORDER BY rowid",
            label,
        )
        if measured[0] in row
    ]
    rounds = sorted({round for _, round, *_ in found})
    column = {round: i for i, round in enumerate(rounds)}
    scores: dict[str, Array] = {}
    for seed, round, party, name, value in found:
        if name not in scores:
            scores[name] = np.full((len(seeds), len(rounds), len(parties)), np.nan)
        scores[name][row[seed], column[round], where[party]] = value

    recorded = ledger.read(
        "SELECT seed, round, teacher_accuracy FROM rounds WHERE method = ?", label
    )
    last = max((round for _, round, _ in recorded), default=0)
    teacher = np.full((len(seeds), last), np.nan)
    for seed, round, accuracy in recorded:
        if seed in row and round > 0 and accuracy is not None:
            teacher[row[seed], round - 1] = accuracy
    errors: dict[str, Array] = {}
    parts = "SELECT seed, round, part, value FROM teachers WHERE method = ? ORDER BY rowid"
    for seed, round, part, value in ledger.read(parts, label):
        if seed in row and 0 < round <= last:
            errors.setdefault(part, np.full((len(seeds), last), np.nan))
            errors[part][row[seed], round - 1] = value

    down = np.zeros((len(seeds), last + 1, len(parties)))
    up = np.zeros_like(down)
    for seed, round, party, to, back in ledger.read(
        "SELECT seed, round, party, sum(bytes_down), sum(bytes_up) FROM deliveries "
        "WHERE method = ? AND NOT bookkeeping GROUP BY seed, round, party",
        label,
    ):
        if seed in row and round <= last:
            down[row[seed], round, where[party]] = to
            up[row[seed], round, where[party]] = back
    return Method(
        label=label,
        aggregate=aggregate,
        seeds=tuple(seeds),
        rounds=tuple(rounds),
        scores=scores,
        teacher=teacher,
        errors=errors,
        seconds=seconds,
        bytes_down=down,
        bytes_up=up,
        rows=_row_scores(ledger, label, parties, tests),
        trust=_trust(ledger, label, seeds[0], splits.get(seeds[0])),
    )


def _tests(ledger: Ledger, parties: Sequence[str]) -> dict[int, EveryonesRows]:
    """Everyone's test rows by seed, with their weights as own rows."""
    by_seed: dict[int, dict[str, Array]] = defaultdict(dict)
    keys: dict[int, str] = {}
    for seed, party, key, weights in ledger.read("SELECT seed, party, test, weights FROM own_rows"):
        try:
            by_seed[seed][party] = np.frombuffer(weights, "<f4")
        except ValueError as error:
            raise ledger.damaged("weights of own rows are no numbers") from error
        keys[seed] = key
    for seed, held in by_seed.items():
        if set(held) != set(parties) or len({len(one) for one in held.values()}) > 1:
            raise ledger.damaged(
                f"it does not say of every party which rows are its own, seed {seed}"
            )
        if not all((np.isfinite(one) & (one >= 0)).all() and len(one) for one in held.values()):
            raise ledger.damaged(f"weights of own rows are not what they can be, seed {seed}")
    most = max((one.size for held in by_seed.values() for one in held.values()), default=0)
    scores = ledger.read("SELECT count(*) FROM row_scores")[0][0]
    if by_seed:
        what = f"scores of {most:,} test rows, {scores:,} times"
        check_memory(4 * most * scores, what, where=str(ledger.path))
    return {
        seed: EveryonesRows(keys[seed], np.stack([held[party] for party in parties]))
        for seed, held in by_seed.items()
    }


def _row_scores(
    ledger: Ledger, label: str, parties: Sequence[str], tests: Mapping[int, EveryonesRows]
) -> dict[tuple[str, int, int], Array]:
    """Scores of single test rows under a method, by metric, seed and round."""
    where = {party: i for i, party in enumerate(parties)}
    found: dict[tuple[str, int, int], Array] = {}
    for metric, seed, round, party, data in ledger.read(
        "SELECT metric, seed, round, party, scores FROM row_scores WHERE method = ?", label
    ):
        if seed not in tests or party not in where:
            raise ledger.damaged(f"scores of rows are of {party!r:.100} with seed {seed}")
        rows = tests[seed].own.shape[1]
        table = found.setdefault(
            (metric, seed, round), np.full((len(parties), rows), np.nan, dtype=np.float32)
        )
        table[where[party]] = decoded(metric, data, rows, ledger.damaged)
    return found


def _trust(ledger: Ledger, label: str, seed: int, split: Holdings | None) -> Array | None:
    found = ledger.read(
        "SELECT party, class, weight FROM trust WHERE method = ? AND seed = ? AND round = "
        "(SELECT max(round) FROM trust WHERE method = ? AND seed = ?)",
        *(label, seed) * 2,
    )
    if not found or split is None:
        return None
    row, column = (
        {name: i for i, name in enumerate(names)} for names in (split.parties, split.classes)
    )
    weights = np.full(split.counts.shape, np.nan)
    for party, name, weight in found:
        if party not in row or name not in column:
            raise ledger.damaged(f"trust is in party {party!r:.100} on class {name!r:.100}")
        weights[row[party], column[name]] = weight
    return weights


def _failures(ledger: Ledger) -> tuple[Event, ...]:
    return tuple(
        Event(*row)
        for row in ledger.read(
            "SELECT method, seed, round, party, tasks, status, detail FROM deliveries "
            "WHERE status <> 'ok' ORDER BY rowid"
        )
    )


def _exclusions(ledger: Ledger, parties: Sequence[str]) -> tuple[Exclusion, ...]:
    """Exclusions that notes of teachers name, one for each party."""
    found: dict[str, Exclusion] = {}
    for method, seed, text, final in ledger.read(
        "SELECT method, seed, text, round = (SELECT max(round) FROM rounds WHERE "
        "method = notes.method AND seed = notes.seed) FROM notes ORDER BY rowid"
    ):
        for party, reason in excluded_in([text], parties).items():
            before = found.get(party, Exclusion(party, (), (), reason))
            found[party] = replace(
                before,
                methods=tuple(dict.fromkeys((*before.methods, method))),
                seeds=tuple(sorted({*before.seeds, seed})),
                final=before.final or bool(final),
            )
    return tuple(found.values())


def _notes(ledger: Ledger) -> tuple[Note, ...]:
    times: dict[str, int] = defaultdict(int)
    who: dict[str, tuple[dict[str, None], dict[str, None]]] = defaultdict(lambda: ({}, {}))
    for text, party, method, count, _ in ledger.read(
        "SELECT detail, party, method, count(*), min(rowid) FROM deliveries "
        "WHERE status = 'ok' AND detail <> '' GROUP BY detail, party, method UNION ALL "
        "SELECT text, 'teacher', method, count(*), 1e18 + min(rowid) FROM notes GROUP BY text, method "
        "ORDER BY 5"
    ):
        for part in text.split("; "):
            times[part] += count
            who[part][0][party] = None
            who[part][1][method] = None
    return tuple(
        Note(text, count, tuple(sorted(who[text][0])), tuple(who[text][1]))
        for text, count in times.items()
    )


def _sent(ledger: Ledger, seed: int) -> tuple[SentItem, ...]:
    """Messages sent by parties with a seed, grouped by content; without bookkeeping that sent no data."""
    return tuple(
        SentItem(*row)
        for row in ledger.read(
            "SELECT method, party, left, tasks, count(*), sum(bytes_up) FROM deliveries "
            "WHERE seed = ? AND bytes_up > 0 AND (left <> '' OR NOT bookkeeping) "
            "GROUP BY method, party, left, tasks ORDER BY min(rowid)",
            seed,
        )
    )
