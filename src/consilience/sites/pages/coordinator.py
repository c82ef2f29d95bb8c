"""The coordinator's live page: parties, round and stage, accuracy, trust, bytes, privacy, and the log."""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

from consilience.core.aggregation.base import GUARANTEE
from consilience.core.aggregation.guard import excluded_in
from consilience.core.metrics.metrics import main_metric
from consilience.core.tasks.base import task_types
from consilience.lab.report.html import render
from consilience.lab.runs.folder import CONFIGURATION as STORED
from consilience.lab.runs.folder import LEDGER
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.configuration import CONFIGURATION, check_folder
from consilience.sites.coordinator.rounds import OUTCOME, STAGE
from consilience.sites.coordinator.status import PartyStatus, Status, coordinator_status
from consilience.sites.operations.processes import running
from consilience.sites.pages import PACKAGE
from consilience.sites.pages.chart import Chart, line_chart
from consilience.sites.pages.open_metrics import Sample
from consilience.sites.pages.server import View, stamp
from consilience.sites.transport.superlink import connected

ASKED_EVERY = 60.0
"""Seconds between two questions which nodes are connected: the command that says it costs two."""

LISTED = 200
"""Rounds and messages that did not go well that are listed; the rest are in the ledger."""

DRAWN = 40
"""Parties whose lines are drawn, beside the mean of all."""

_TAIL = 16_384
"""Bytes of the coordinator's own words that are shown."""


class Nodes:
    """Cached states of the parties' nodes; a query of the SuperLink takes seconds.

    Args:
        ask: queries the states.
        every: seconds after which the query is repeated, in a separate thread.
    """

    def __init__(self, ask: Any = connected, *, every: float = ASKED_EVERY) -> None:
        self._ask, self._every = ask, every
        self._next = 0.0
        self.states: Mapping[str, str] = {}

    def __call__(self, home: Path) -> Mapping[str, str]:
        """Return the latest states; start a query for the next call if they are old."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            Thread(target=self._update, args=(home,), name="nodes", daemon=True).start()
        return self.states

    def _update(self, home: Path) -> None:
        self.states = self._ask(home)


@dataclass(frozen=True)
class PartyRow:
    """A party as the page shows it.

    Attributes:
        status: its status.
        state: its state in words: ``"joined"``, ``"asked now"``, ``"late"``, ``"left out"``, ``"excluded"``,
            ``"not joined"`` or ``"waited for"``.
        why: reason why it is left out, is excluded or has not joined; else empty.
        value: last value of the main metric; ``None`` if it was not measured.
    """

    status: PartyStatus
    state: str
    why: str
    value: float | None


@dataclass(frozen=True)
class Facts:
    """Facts from a ledger, in addition to the status.

    Attributes:
        metric: name of the main metric; empty if no metric was measured.
        values: party to rounds and the metric after each.
        means: rounds and the parties' mean after each.
        compared: means after the first and the last measured round, over the parties with a value for both,
            and the number of these parties; ``None`` if there are none.
        trust: class to party to its mean weight, in the round ``trusted``.
        trusted: the round of ``trust``; -1 if there is none.
        excluded: party to the reason why it has not joined.
        unheard: party to the note with which the teacher of the last round excluded its answers.
        rounds: round to its end in seconds from the start.
        answered: round to the number of parties with an answer in it.
        failures: rounds, parties, tasks, kinds and reasons of failed messages, the last first.
        guarantees: privacy guarantees, in sentences.
        remarks: first and last round and text of the remarks of the rule and of the run, the last first.
        down: bytes sent to parties.
    """

    metric: str = ""
    values: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    means: list[tuple[int, float]] = field(default_factory=list)
    compared: tuple[float, float, int] | None = None
    trust: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    trusted: int = -1
    excluded: Mapping[str, str] = field(default_factory=dict)
    unheard: Mapping[str, str] = field(default_factory=dict)
    rounds: Mapping[int, float] = field(default_factory=dict)
    answered: Mapping[int, int] = field(default_factory=dict)
    failures: list[tuple[Any, ...]] = field(default_factory=list)
    guarantees: list[str] = field(default_factory=list)
    remarks: list[tuple[int, int, str]] = field(default_factory=list)
    down: int = 0


class CoordinatorPage:
    """Live page of a coordinator's folder.

    Args:
        folder: the folder.
        nodes: gives the state of each party's node.

    Raises:
        InvalidInput: there is no such folder.
    """

    def __init__(self, folder: Path, *, nodes: Nodes | None = None) -> None:
        check_folder(folder)
        self.folder = folder
        self.title = f"{folder.resolve().name}: coordinator"
        self._nodes = Nodes() if nodes is None else nodes

    def changed(self) -> Hashable:
        """Return the times and sizes of the page's files, and all other values on which the page depends."""
        run = self.folder / "run"
        if (pid := running(run / "flower")) is not None:
            self._nodes(run / "flower")
        files = (self.folder / CONFIGURATION, *(run / name for name in _FILES))
        return pid, tuple(self._nodes.states.items()), tuple(map(stamp, files))

    def read(self) -> View:
        """Read the status and the ledger, and render them.

        Raises:
            InvalidInput: the folder is gone.
            RunFailed: the run has another format, or the ledger is damaged.
        """
        status = coordinator_status(self.folder, nodes=self._nodes)
        path = self.folder / "run" / LEDGER
        facts = read_facts(path) if status.state != "no run" else Facts()
        now = status.stage
        rows = party_rows(status, facts, now)
        main = render(
            "live/coordinator.html",
            PACKAGE,
            status=status,
            facts=facts,
            rows=rows,
            stage=now,
            asks=[_asks(task) for task in str(now.get("tasks", "")).split("+") if task],
            chart=_chart(status, facts),
            log=_tail(self.folder / "run" / "log"),
            listed=LISTED,
            drawn=DRAWN,
            last_measured=max(1, LISTED // max(1, len(facts.values))),
        )
        return View(main, tuple(_samples(status, facts, rows)))


_FILES = (LEDGER, f"{LEDGER}-wal", STORED, OUTCOME, STAGE, "log", "flower/processes.json")


def read_facts(path: Path) -> Facts:
    """Read the facts of the page from a ledger, in addition to the status.

    Args:
        path: the ledger's file.

    Returns:
        The facts.

    Raises:
        RunFailed: the ledger is damaged.
    """
    with closing(Ledger(path, read_only=True)) as ledger:
        names = {name for (name,) in ledger.read("SELECT DISTINCT name FROM metrics")}
        metric = main_metric(names) or min(names, default="")
        values: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for round, party, value in ledger.read(
            "SELECT round, party, value FROM metrics WHERE name = ? AND value IS NOT NULL "
            "ORDER BY round, party",
            metric,
        ):
            values[party].append((round, value))
        trust: dict[str, dict[str, float]] = defaultdict(dict)
        trusted = -1
        for round, party, name, weight in ledger.read(
            "SELECT round, party, class, weight FROM trust WHERE round = "
            "(SELECT max(round) FROM trust) ORDER BY class, party"
        ):
            trusted, trust[name][party] = round, weight
        notes = [
            (int(first), int(last), str(text))
            for first, last, text in ledger.read(
                "SELECT min(round), max(round), text FROM notes GROUP BY text "
                f"ORDER BY max(rowid) DESC LIMIT {LISTED}"
            )
        ]
        means = _means(values)
        return Facts(
            metric=metric,
            values=values,
            means=means,
            compared=_compared(values, means[0][0], means[-1][0]) if len(means) > 1 else None,
            trust=trust,
            trusted=trusted,
            excluded={name: str(why) for name, (why, _) in ledger.meta.get("excluded", {}).items()},
            unheard=excluded_in(
                (
                    str(text)
                    for (text,) in ledger.read(
                        "SELECT text FROM notes WHERE round = (SELECT max(round) FROM rounds)"
                    )
                ),
                {name for (name,) in ledger.read("SELECT DISTINCT party FROM deliveries")},
            ),
            rounds=dict(ledger.read("SELECT round, seconds FROM rounds ORDER BY round DESC")),
            answered=dict(
                ledger.read(
                    "SELECT within, count(DISTINCT party) FROM deliveries WHERE status = 'ok' "
                    "AND NOT bookkeeping GROUP BY within"
                )
            ),
            failures=ledger.read(
                "SELECT within, party, tasks, status, detail FROM deliveries WHERE status <> 'ok' "
                f"ORDER BY rowid DESC LIMIT {LISTED}"
            ),
            guarantees=[text.removeprefix(GUARANTEE) for *_, text in notes if _is_promise(text)],
            remarks=[note for note in notes if not _is_promise(note[-1])],
            down=ledger.read("SELECT coalesce(sum(bytes_down), 0) FROM deliveries")[0][0],
        )


def _is_promise(text: str) -> bool:
    return text.startswith(GUARANTEE)


def _means(values: Mapping[str, list[tuple[int, float]]]) -> list[tuple[int, float]]:
    """Compute the mean over the measured parties, for each round."""
    by_round: dict[int, list[float]] = defaultdict(list)
    for line in values.values():
        for round, value in line:
            by_round[round].append(value)
    return [(round, sum(found) / len(found)) for round, found in sorted(by_round.items())]


def _compared(
    values: Mapping[str, list[tuple[int, float]]], first: int, last: int
) -> tuple[float, float, int] | None:
    """Compute the means after two rounds over the parties with a value for both, and count these parties."""
    both = [line for line in map(dict, values.values()) if first in line and last in line]
    if not both:
        return None
    before, after = (sum(line[round] for line in both) / len(both) for round in (first, last))
    return before, after, len(both)


def party_rows(status: Status, facts: Facts, now: Mapping[str, Any]) -> list[PartyRow]:
    """Describe the current state of every party.

    Args:
        status: status of the coordinator.
        facts: facts from its ledger.
        now: the current request; empty if there is none.

    Returns:
        One row for each party, in the order of the status.
    """
    rows = []
    for one in status.parties:
        if one.party in facts.excluded:
            state = "not joined"
        elif one.party in facts.unheard:
            state = "excluded"
        elif one.party in now.get("awaited", ()):
            state = "asked now"
        elif one.why:
            kinds = (kind for _, party, _, kind, _ in facts.failures if party == one.party)
            state = "late" if next(kinds, "") == "late" else "left out"
        else:
            state = "joined" if one.exchanges else "waited for"
        measured = facts.values.get(one.party)
        why = facts.unheard.get(one.party, one.why)
        rows.append(PartyRow(one, state, why, measured[-1][1] if measured else None))
    return rows


def _asks(task: str) -> str:
    """The first line of a task's own description, as it stands in the code that the party runs."""
    kind = task_types().get(task)
    line = "" if kind is None else str(kind.__doc__).splitlines()[0]
    return f"{task}: {re.sub(':[a-z]+:|[`~]', '', line)}" if line else task


def _chart(status: Status, facts: Facts) -> Chart | None:
    lines = {**dict(islice(facts.values.items(), DRAWN)), _MEAN: facts.means}
    most = 1.0 if facts.metric == "accuracy" else math.inf
    return line_chart(lines, status.rounds, main=[_MEAN], most=most)


_MEAN = "mean of all parties"


def _tail(path: Path) -> str:
    """The last whole lines of a file; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return text if size <= _TAIL else text.partition("\n")[2]


def _samples(status: Status, facts: Facts, rows: list[PartyRow]) -> Iterator[Sample]:
    """The figures for Prometheus."""
    yield Sample(
        "run_running", status.state == "running", "1 while the coordinator works on a run."
    )
    yield Sample("run_done", status.state == "done", "1 when all rounds are done.")
    yield Sample("run_round", status.round, "The last round that is kept; -1 before there is one.")
    yield Sample("run_rounds", status.rounds, "Rounds of the run.")
    yield Sample("run_seconds", status.seconds, "Seconds that the rounds took.")
    yield Sample("sent_bytes", facts.down, "Bytes that were sent to parties.", counter=True)
    for row in rows:
        one, labels = row.status, {"party": row.status.party}
        yield Sample(
            "party_joined",
            row.state != "not joined" and one.exchanges > 0,
            "1 where the party takes part.",
            labels=labels,
        )
        yield Sample("party_answers", one.exchanges, "Answers of the party.", True, labels)
        yield Sample(
            "party_left_out", one.left_out, "Exchanges that it was left out of.", True, labels
        )
        yield Sample(
            "party_received_bytes", one.bytes_up, "Bytes that left the party.", True, labels
        )
        for name, value in one.metrics.items():
            yield Sample(
                "party_metric",
                value,
                "A metric of the party, last measured.",
                labels={**labels, "metric": name},
            )
