"""A party's live page: requests, answers, refusals, privacy budget, and model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilience.core.errors import InvalidInput
from consilience.core.party.mixed_model import Choice
from consilience.core.party.state import read_choices
from consilience.lab.report.html import render
from consilience.privacy.accounting.ledger import FOLDER
from consilience.sites.operations.processes import running
from consilience.sites.pages import PACKAGE
from consilience.sites.pages.chart import Chart, line_chart
from consilience.sites.pages.open_metrics import Sample
from consilience.sites.pages.server import View, stamp
from consilience.sites.party import AUDIT, Log, read_log, read_party, state_of
from consilience.sites.party.connection import STALE, connected_now, idle_seconds
from consilience.sites.party.privacy_limits import spending
from consilience.sites.party.process import REFUSALS, folder_of, party_status
from consilience.sites.party.state import current_state

LISTED = 100
"""Answers that are listed; ``consilience party audit`` prints all."""

_LOSSES = "alone", "taught", "as it predicts now"
"""Models of a choice, in the order of its losses."""


@dataclass(frozen=True)
class Answers:
    """Counts of the lines of an audit log.

    Attributes:
        last: the last lines, the last first.
        refused: the last lines with a refusal, the last first.
        left: rows of tasks, number of answers, and their bytes.
        faults: descriptions of the places at which the log's chain is broken.
    """

    last: Sequence[Mapping[str, Any]]
    refused: Sequence[Mapping[str, Any]]
    left: Sequence[tuple[str, int, int]]
    faults: Sequence[str]


class PartyPage:
    """Live page of a party.

    Args:
        path: its configuration, or the folder of its state.

    Raises:
        InvalidInput: there is no such file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = state_of(path)
        self.title = f"{party_status(path)['party']}: party"

    def changed(self) -> Hashable:
        """Return the times and sizes of the page's files, and all other values on which the page depends."""
        state, flower = self._state, folder_of(self._state)
        files = [self._path, *(state / name for name in ("current", AUDIT)), flower / "trouble"]
        ledger = state / FOLDER
        with suppress(InvalidInput):  # said on the page
            ledger = read_party(self._path).limits.ledger_in(state)
        files += sorted(ledger.glob("*"))
        stuck = idle_seconds(flower) > STALE
        return running(flower), connected_now(flower), stuck, tuple(map(stamp, files))

    def read(self) -> View:
        """Read the state, the audit log and the ledger of privacy, and render them.

        Raises:
            InvalidInput: the configuration is gone.
            RunFailed: the state, the log or the ledger is damaged.
        """
        log = read_log(self._state / AUDIT)
        status, answers = party_status(self._path, log), answers_of(log)
        budget, trouble = self._budget()
        folder = current_state(self._state)
        choices = [] if folder is None else read_choices(folder)
        main = render(
            "live/party.html",
            PACKAGE,
            status=status,
            answers=answers,
            budget=budget,
            trouble=trouble,
            choices=choices,
            losses=_LOSSES,
            chart=_chart(choices),
            runs=_runs(status),
        )
        return View(main, tuple(_samples(status, answers, choices)))

    def _budget(self) -> tuple[Mapping[str, Any] | None, str]:
        """Return the party's spending of its budget, or the reason why it is not available."""
        if self._path == self._state:
            return None, "Start the page with party.toml to see it: the limits stand there."
        try:
            spec = read_party(self._path)
        except InvalidInput as error:
            return None, str(error)
        return spending(spec.state, spec.limits), ""


def answers_of(log: Log) -> Answers:
    """Count the lines of an audit log by the tasks of the request."""
    blank = {"time": "", "round": None, "status": "", "detail": "", "bytes": 0}
    lines = [{**blank, **line} for line in log.entries if "tasks" in line]
    refused = [line for line in lines if line["status"] in REFUSALS]
    times, sizes = Counter[str](), Counter[str]()
    for line in lines:
        if line["status"] not in REFUSALS:
            times[line["tasks"]] += 1
            sizes[line["tasks"]] += line["bytes"]
    return Answers(
        last=lines[: -LISTED - 1 : -1],
        refused=refused[: -LISTED - 1 : -1],
        left=[(task, count, sizes[task]) for task, count in times.most_common()],
        faults=log.faults,
    )


def _chart(choices: Sequence[Choice]) -> Chart | None:
    """The losses on calibration rows over rounds, of the model alone, the taught one and what predicts."""
    judged = [one for one in choices if one.losses]
    lines = {
        title: [(one.round, one.losses[i]) for one in judged] for i, title in enumerate(_LOSSES)
    }
    return line_chart(lines, max((one.round for one in judged), default=0), main=_LOSSES[-1:])


def _runs(status: Mapping[str, Any]) -> bool:
    return status["state"] not in ("stopped", "unattended")


def _samples(
    status: Mapping[str, Any], answers: Answers, choices: Sequence[Choice]
) -> Iterator[Sample]:
    """The figures for Prometheus."""
    round = -1 if status["round"] is None else status["round"]
    yield Sample("party_runs", _runs(status), "1 while the party's process runs.")
    yield Sample("party_round", round, "The latest round that it was asked for; -1 before.")
    yield Sample("party_answered", status["answers"], "Requests that it answered.", counter=True)
    yield Sample("party_refusals", status["refusals"], "Requests that it said no to.", counter=True)
    yield Sample("party_left_bytes", status["bytes_that_left"], "Bytes that left it.", counter=True)
    yield Sample("party_log_faults", len(answers.faults), "Breaks of its audit log's chain.")
    if choices and choices[-1].losses:
        for name, loss in zip(_LOSSES, choices[-1].losses, strict=True):
            yield Sample("party_loss", loss, "Loss on calibration rows.", labels={"model": name})
