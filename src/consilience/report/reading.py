"""From a run's ledger to :class:`~consilience.report.results.Results`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from consilience.data import Holdings
from consilience.experiments import Ledger, stored_spec
from consilience.report.results import Arm, Array, Event, Left, Method, Note, Results

NOT_PROTOCOL = ("Evaluate", "Checkpoint", "Restore")
"""Tasks of the experiment, not of the method: they are left out of what a method costs."""


def read_results(run: Path) -> Results:
    """Read a run folder, finished or not.

    Raises:
        InvalidInput: not a run folder.
        RunFailed: a damaged ledger.
    """
    spec = stored_spec(run)
    ledger = Ledger(run / "ledger.sqlite")
    try:
        splits, models = _splits(ledger)
        parties = tuple(dict.fromkeys(name for split in splits.values() for name in split.parties))
        status = {
            (method, seed): (state, seconds)
            for method, seed, state, seconds in ledger.read(
                "SELECT method, seed, status, seconds FROM arms"
            )
        }
        reached = {
            (method, seed): round
            for method, seed, round in ledger.read(
                "SELECT method, seed, max(round) FROM rounds GROUP BY method, seed"
            )
        }
        done = {arm for arm, (state, _) in status.items() if state == "done"}
        methods, missing = [], []
        for chosen in spec.methods:
            label = chosen.label
            seeds = [seed for seed in spec.seed_list if (label, seed) in done]
            missing += [
                Arm(label, seed, reached.get((label, seed)))
                for seed in spec.seed_list
                if seed not in seeds
            ]
            if seeds:
                seconds = tuple(float(status[label, seed][1]) for seed in seeds)
                methods.append(
                    _method(ledger, label, chosen.named, seeds, seconds, parties, splits)
                )
        return Results(
            folder=run,
            spec=spec,
            meta=ledger.meta,
            methods=tuple(methods),
            missing=tuple(missing),
            parties=parties,
            models=models,
            splits=splits,
            failures=_failures(ledger),
            notes=_notes(ledger),
            left=_left(ledger, spec.seed_list[0]),
        )
    finally:
        ledger.close()


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
        table = [[row.get(label, 0) for label in classes] for row in held.values()]
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
) -> Method:
    where = {party: i for i, party in enumerate(parties)}
    row = {seed: i for i, seed in enumerate(seeds)}
    found = [
        measured
        for measured in ledger.read(
            "SELECT seed, round, party, name, value FROM metrics WHERE method = ? ORDER BY rowid",
            label,
        )
        # Pooled rows hold every class: "own classes" would mean something else than for the others.
        if measured[0] in row and not (aggregate == "central" and measured[3] == "accuracy_local")
    ]
    rounds = sorted({round for _, round, *_ in found})
    scores: dict[str, Array] = {}
    for seed, round, party, name, value in found:
        if name not in scores:
            scores[name] = np.full((len(seeds), len(rounds), len(parties)), np.nan)
        scores[name][row[seed], rounds.index(round), where[party]] = value

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
    for seed, round, part, value in ledger.read(parts, label) if ledger.has("teachers") else ():
        if seed in row and 0 < round <= last:
            errors.setdefault(part, np.full((len(seeds), last), np.nan))
            errors[part][row[seed], round - 1] = value

    down = np.zeros((len(seeds), last + 1, len(parties)))
    up = np.zeros_like(down)
    for seed, round, party, to, back in ledger.read(
        "SELECT seed, round, party, sum(bytes_down), sum(bytes_up) FROM deliveries "
        f"WHERE method = ? AND tasks NOT IN ({', '.join('?' * len(NOT_PROTOCOL))}) "
        "GROUP BY seed, round, party",
        label,
        *NOT_PROTOCOL,
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
        trust=_trust(ledger, label, seeds[0], splits[seeds[0]], where),
    )


def _trust(
    ledger: Ledger, label: str, seed: int, split: Holdings, where: Mapping[str, int]
) -> Array | None:
    found = ledger.read(
        "SELECT party, class, weight FROM trust WHERE method = ? AND seed = ? AND round = "
        "(SELECT max(round) FROM trust WHERE method = ? AND seed = ?)",
        *(label, seed) * 2,
    )
    if not found:
        return None
    weights = np.full((len(where), len(split.classes)), np.nan)
    for party, name, weight in found:
        weights[where[party], split.classes.index(name)] = weight
    return weights


def _failures(ledger: Ledger) -> tuple[Event, ...]:
    return tuple(
        Event(*row)
        for row in ledger.read(
            "SELECT method, seed, round, party, tasks, status, detail FROM deliveries "
            "WHERE status <> 'ok' ORDER BY rowid"
        )
    )


def _notes(ledger: Ledger) -> tuple[Note, ...]:
    times: dict[str, int] = defaultdict(int)
    who: dict[str, tuple[dict[str, None], dict[str, None]]] = defaultdict(lambda: ({}, {}))
    for text, party, method, count in ledger.read(
        "SELECT detail, party, method, count(*) FROM deliveries "
        "WHERE status = 'ok' AND detail <> '' GROUP BY detail, party, method ORDER BY min(rowid)"
    ):
        for part in text.split("; "):
            times[part] += count
            who[part][0][party] = None
            who[part][1][method] = None
    return tuple(
        Note(text, count, tuple(sorted(who[text][0])), tuple(who[text][1]))
        for text, count in times.items()
    )


def _left(ledger: Ledger, seed: int) -> tuple[Left, ...]:
    return tuple(
        Left(*row)
        for row in ledger.read(
            "SELECT method, party, left, tasks, count(*), sum(bytes_up) FROM deliveries "
            "WHERE seed = ? AND bytes_up > 0 AND tasks NOT IN ('Checkpoint', 'Restore') "
            "GROUP BY method, party, left, tasks ORDER BY min(rowid)",
            seed,
        )
    )
