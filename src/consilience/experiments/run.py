"""Run a configuration: every method with every seed, recorded round by round, resumable at any point.

A run folder holds ``config.json`` (the exact configuration), ``ledger.sqlite``, ``models/`` and, while it
runs, ``state/``. One method with one seed is an *arm* (:mod:`consilience.experiments.method_run`).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from consilience.errors import ConsilienceError, InvalidInput, RunFailed, nearest
from consilience.experiments.configuration import parse_spec
from consilience.experiments.coverage import public_known
from consilience.experiments.method_run import Arm, Report
from consilience.experiments.setup import Cohort, gather
from consilience.experiments.spec import Spec
from consilience.federation.federation import Federation
from consilience.federation.ledger import Ledger
from consilience.files import database, read_text, without_links
from consilience.learners import ForeignCode, make
from consilience.learners.sklearn.estimators import make_of
from consilience.learners.sklearn.learner import SklearnLearner
from consilience.messages.replies import Replies, SharedModel
from consilience.messages.schema import Agreement
from consilience.networks import LocalNetwork
from consilience.tasks.base import Task

CONFIGURATION = "config.json"

PACKAGES = ("consilience", "numpy", "scipy", "scikit-learn", "torch", "xgboost", "lightgbm", "flwr")


_METRICS = {
    "classification": ("accuracy", "accuracy_local", "log_loss", "auc"),
    "regression": ("mse", "r2"),
}


def start(
    spec: Spec,
    folder: Path,
    *,
    report: Report = lambda progress: None,
    warn: Callable[[str], None] = lambda line: None,
) -> None:
    """Run a configuration in a new folder.

    Models of code beyond the trusted packages run inside of :func:`consilience.learners.trusting` alone.

    Args:
        spec: what to run.
        folder: where.
        report: is told where the run is.
        warn: is told, before anything is trained, what bodes ill and does not keep it from running.

    Raises:
        ForeignCode: a model is of such code; nothing of it was imported.
        InvalidInput: the folder exists, or the configuration's data, parties and models do not go
            together; before anything is trained or written.
        RunFailed: the disk is full, a party's state cannot be written.
    """
    if folder.exists():
        raise InvalidInput(
            "this folder exists",
            where=str(folder),
            mend=f"Continue it with: consilience resume {folder}\n  or choose another with --out.",
        )
    gathered = rehearse(spec)
    warnings = _warnings(spec, gathered)
    for line in warnings:
        warn(line)
    _open(spec, folder, warnings)
    _continue(spec, folder, report, gathered)


def _warnings(spec: Spec, gathered: Mapping[int, Cohort]) -> list[str]:
    """That the parties know little of the public rows, by the first seed's; nothing where none are needed."""
    if not any(method.needs_public for method in spec.methods):
        return []
    seed = spec.seed_list[0]
    try:
        return list(public_known(spec, gathered[seed], seed).warnings)
    except ConsilienceError as error:  # rows that cannot be judged may serve all the same
        return [f"What the parties know of the public rows cannot be said: {error.what}"]


def _open(spec: Spec, folder: Path, warnings: list[str]) -> None:
    """Make the run folder, whole or not at all: it is filled beside its place and renamed."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        (partial / CONFIGURATION).write_text(spec.model_dump_json(indent=2), encoding="utf-8")
        ledger = Ledger(partial / "ledger.sqlite", create=True)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        ledger.note(versions=versions(), machine=machine(), started=started, warnings=warnings)
        ledger.close()
        partial.rename(folder)
    except (OSError, RunFailed) as error:
        why = error.strerror if isinstance(error, OSError) else error.what
        raise RunFailed(f"the run folder cannot be made ({why})", where=str(folder)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def resume(folder: Path, *, report: Report = lambda progress: None) -> None:
    """Continue a run that stopped for whatever reason; a finished one is left as it is.

    Raises:
        ForeignCode: the folder names code beyond the models of trusted packages, outside of
            :func:`consilience.learners.trusting`; nothing of it was imported.
        RunFailed: no run there, or a damaged ledger or state.
    """
    spec = stored_spec(folder)
    try:
        _continue(spec, folder, report)
    except ForeignCode as error:
        raise error.said_in(folder / CONFIGURATION) from error


def stored_spec(folder: Path) -> Spec:
    """The configuration of a run folder, read alone: no model that it names is made or imported."""
    path = folder / CONFIGURATION
    try:
        return parse_spec(json.loads(read_text(path)), where=str(path))
    except FileNotFoundError as error:
        raise InvalidInput(
            "this is not a run folder: it has no config.json", where=str(folder)
        ) from error
    except NotADirectoryError as error:
        raise InvalidInput("this is a file, not a run folder", where=str(folder)) from error
    except (ValueError, RecursionError) as error:  # not JSON or UTF-8, or no longer a configuration
        what = error.what if isinstance(error, InvalidInput) else str(error)
        raise RunFailed(f"the configuration is damaged ({what})", where=str(path)) from error


def rehearse(spec: Spec) -> dict[int, Cohort]:
    """Do everything short of training, for every seed, so that what cannot work says so at once.

    Returns:
        The first seed, rehearsed last, to its parties, whose data need not be gathered again.
    """
    for seed in reversed(spec.seed_list):
        cohort = gather(spec, seed)
        for method in spec.methods:
            if method.aggregate == "oracle" and (
                cohort.public_labels is None or cohort.dataset.classes is None
            ):
                raise InvalidInput(
                    "the oracle needs public rows whose true classes are known", where="methods"
                )
        limits: dict[str, Any] = {"timeout": spec.network.timeout, "quorum": spec.network.quorum}
        parties = cohort.parties()
        if seed == spec.seed_list[-1]:
            for party in parties:
                party.check_saving()
        network = LocalNetwork(parties, cohort.public, **limits)
        agreed = Federation.over(network, cohort.public, seed=seed, strict=spec.strictly).form()
        measured = _METRICS[agreed.kind]
        if spec.metric is not None and spec.metric not in measured:
            raise InvalidInput(
                f"metric {spec.metric!r} is not one of {agreed.kind}",
                where="metric",
                mend=nearest(spec.metric, measured),
            )
        for method in spec.methods:
            protocol = spec.protocol_for(method)
            try:  # a protocol checks its options, and requires what it must, before it has anything trained
                next(protocol(_Rehearsal(network), cohort.public))
            except _Asked as asked:
                if any(task.reply_type is SharedModel for task in asked.args):
                    _check_trust(spec)
    return {seed: cohort}


def _check_trust(spec: Spec) -> None:
    """Raise ``InvalidInput`` on a model that the others would not take."""
    for chosen in spec.models:
        learner = make(chosen.name, **chosen.options)
        where = f"model {chosen.name!r}"
        if isinstance(learner, SklearnLearner):
            module = make_of(learner.model)[-1].__module__.partition(".")[0]
        else:  # networks travel as the name of the function that builds them
            module = chosen.name.partition(":")[0] if ":" in chosen.name else "consilience"
        needed = dict.fromkeys((module.partition(".")[0], module))
        missing = [name for name in needed if name not in spec.trusts]
        if missing:
            raise InvalidInput(
                f"the others would not take it: {missing[0]!r} is not trusted",
                where=where,
                mend=f"At the top of the file: trusts = {json.dumps([*spec.trusts, *missing])}",
            )


class _Asked(Exception):
    """The first question of a protocol that takes work, where a rehearsal ends."""


@dataclass(frozen=True)
class _Rehearsal:
    """Parties who answer what is required of them before anything is trained, and nothing else."""

    network: LocalNetwork

    @property
    def parties(self) -> tuple[str, ...]:
        return self.network.parties

    @property
    def agreed(self) -> Agreement:
        return self.network.agreed

    def require(self, *tasks: Task) -> Replies:
        return self.network.require(*tasks)

    def ask(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        raise _Asked(*tasks)

    def ask_each(self, tasks: Mapping[str, Task]) -> Replies:
        raise _Asked(*tasks.values())


def _continue(
    spec: Spec,
    folder: Path,
    report: Report,
    gathered: dict[int, Cohort] | None = None,
) -> None:
    """Run what is not done yet; ``gathered`` are parties that are there already, which are let go of."""
    gathered = {} if gathered is None else gathered
    lock = locked(folder)
    try:
        ledger = Ledger(folder / "ledger.sqlite")
    except BaseException:
        lock.close()
        raise
    try:
        done = set(ledger.read("SELECT method, seed FROM arms WHERE status = 'done'"))
        for seed in spec.seed_list:
            remaining = [method for method in spec.methods if (method.label, seed) not in done]
            if not remaining:
                continue
            cohort = gathered.pop(seed) if seed in gathered else gather(spec, seed)
            holdings = cohort.holdings
            with ledger.transaction():
                ledger.write(
                    "holdings",
                    (
                        (seed, party, model.name, label, int(count))
                        for party, model, counts in zip(
                            holdings.parties, cohort.models, holdings.counts, strict=True
                        )
                        for label, count in zip(holdings.classes, counts, strict=True)
                    ),
                )
                ledger.note(
                    dataset=cohort.dataset.notes,
                    public_rows=len(cohort.public),
                    columns=cohort.dataset.columns,
                )
            for method in remaining:
                Arm(spec, method, seed, cohort, folder, ledger, report).run()
        ledger.note(finished=datetime.now(UTC).isoformat(timespec="seconds"))
    except OSError as error:
        raise RunFailed(
            f"cannot be written ({error.strerror})",
            where=str(error.filename or folder),
            mend=f"Free some space, then: consilience resume {folder}",
        ) from error
    finally:
        ledger.close()
        lock.close()


def locked(folder: Path, *, wait: float = 0.0) -> sqlite3.Connection:
    """Hold a run folder until the connection is closed or the process ends, however it ends.

    Args:
        folder: which.
        wait: seconds to wait for another process to let go of it.

    Raises:
        InvalidInput: another process holds it.
        RunFailed: it cannot be written, or something in it is a link out of it.
    """
    path = database(without_links(folder) / "lock.sqlite")
    lock = sqlite3.connect(path, timeout=wait, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        lock.close()
        if "locked" not in str(error):
            raise RunFailed(f"cannot be locked ({error})", where=str(folder)) from error
        raise InvalidInput(
            "this run is going on in another process",
            where=str(folder),
            mend="Wait for it, or stop it first.",
        ) from error
    return lock


def versions() -> dict[str, str]:
    """Versions of Python and of what is installed of :data:`PACKAGES`."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """The machine in words: processor family, cores, system."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, {sys.implementation.name}"
