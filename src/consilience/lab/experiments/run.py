"""Run a configuration: every method with every seed, recorded round by round, resumable at any point.

The run folder is described in :mod:`consilience.lab.runs.folder`; one method with one seed is a
:func:`~consilience.lab.experiments.method_run.run_method`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import ConsilienceError, InvalidInput, RunFailed, command, nearest
from consilience.core.federation.federation import federation_over
from consilience.core.federation.forming import check_classes_fixed, known_to_few
from consilience.core.files import write_folder
from consilience.core.learners.sklearn.estimators import make_of
from consilience.core.learners.sklearn.learner import SklearnLearner
from consilience.core.messages.replies import SharedModel
from consilience.core.messages.schema import Agreement, Public
from consilience.core.metrics.metrics import metrics_for
from consilience.core.networks import Network, Population, in_process_network
from consilience.core.party.party import Party
from consilience.lab.config.experiment import Spec
from consilience.lab.config.methods import budget_of, sums_without_noise
from consilience.lab.config.reading import stored_spec
from consilience.lab.experiments.late import check_late
from consilience.lab.experiments.measured_rows import MOST_NUMBERS
from consilience.lab.experiments.method_run import MethodRun, Report, check_liars, run_method
from consilience.lab.experiments.public_known import public_known
from consilience.lab.experiments.setup import SimulatedParties, everyone, gather
from consilience.lab.runs.folder import (
    CONFIGURATION,
    LEDGER,
    locked,
    now,
    store_configuration,
)
from consilience.lab.runs.leaving import Record, certify, keep_record
from consilience.lab.runs.ledger import Ledger
from consilience.models.files.trust import ForeignCode
from consilience.models.presets import make


def start(
    spec: Spec,
    folder: Path,
    *,
    report: Report = lambda progress: None,
    warn: Callable[[str], None] = lambda line: None,
    before: Record | None = None,
) -> None:
    """Run a configuration in a new folder.

    Model code from outside of the trusted packages runs only inside of :func:`consilience.models.trusting`.

    Args:
        spec: configuration to run.
        folder: folder of the run, which must not exist.
        report: function called with the progress of the run.
        warn: function called, before any training, with each warning that does not stop the run.
        before: record of the original run that this run repeats without some parties; at its end the
            certificate is written (:mod:`consilience.lab.runs.leaving`).

    Raises:
        ForeignCode: a model uses code outside of the trusted packages; no such code was imported.
        InvalidInput: the folder exists, or the configuration's data, parties and models do not go
            together; before anything is trained or written.
        RunFailed: the disk is full, a party's state cannot be written.
    """
    _check_new(folder)
    rehearsal = rehearse(spec)
    warnings = _warnings(spec, rehearsal)
    for line in warnings:
        warn(line)
    _open(spec, folder, warnings, before)
    _continue(spec, folder, report, rehearsal)


def _check_new(folder: Path) -> None:
    """Raise ``InvalidInput`` where the run folder, or something else in its place, is there."""
    if (folder / CONFIGURATION).exists():
        raise InvalidInput(
            "there is a run in this folder",
            where=str(folder),
            mend=f"Continue it with: {command('resume', folder)}\n  or choose another with --out.",
        )
    if folder.exists():
        raise InvalidInput(
            f"this {'folder' if folder.is_dir() else 'file'} exists, and it is no run",
            where=str(folder),
            mend="Choose a new folder with --out; the run makes it.",
        )


@dataclass(frozen=True)
class Rehearsal:
    """The untrained beginning of a run, for its first seed.

    Attributes:
        seed: the first seed.
        setup: its data and parties.
        parties: made from it; they have joined a federation, and can join another.
    """

    seed: int
    setup: SimulatedParties
    parties: list[Party] | Population


_RARE = 10
"""Warnings of classes that are rare at a party, at most."""


def _warnings(spec: Spec, rehearsal: Rehearsal) -> list[str]:
    """List warnings about the table, rare values, late parties, noiseless sums and public rows."""
    told = [f"The table: {remark}." for remark in rehearsal.setup.dataset.remarks]
    parties = [] if isinstance(rehearsal.parties, Population) else rehearsal.parties
    told += [f"{one.name}: {remark}." for one in parties for remark in one.trainer.rare][:_RARE]
    told += [
        f"{late.name} joins after round {late.after}: means of rounds before are without it."
        for late in spec.late
    ]
    if spec.hostile is not None and not spec.robustness.secret_labels:
        liars = spec.hostile.hostile().liars(rehearsal.setup.names, rehearsal.seed)
        if few := known_to_few(rehearsal.setup.holders, len(liars)):
            told.append(f"{few}: no rule without secret labels tells who of them is right.")
    told += [
        f"method {method.label}: its sums leave without noise, and nothing is guaranteed; for a guarantee "
        "give the method privacy = { epsilon = … }."
        for method in spec.methods
        if sums_without_noise(method)
    ]
    if not parties or not any(method.needs_public for method in spec.methods):
        return told  # of a population nobody is asked who is not drawn
    try:
        found = public_known(spec, rehearsal.setup, rehearsal.seed, parties)
        return told + list(found.warnings)
    except ConsilienceError as error:  # rows that cannot be judged may serve all the same
        return [*told, f"What the parties know of the public rows cannot be said: {error.what}"]


def _open(spec: Spec, folder: Path, warnings: list[str], before: Record | None) -> None:
    """Make the run folder, whole or not at all."""

    def fill(part: Path) -> None:
        store_configuration(part, "simulated", spec)
        Ledger.begin(part / LEDGER, warnings=warnings)
        if before is not None:
            keep_record(part, before)

    try:
        write_folder(folder, fill)
    except (OSError, RunFailed) as error:
        why = error.strerror if isinstance(error, OSError) else error.what
        raise RunFailed(f"the run folder cannot be made ({why})", where=str(folder)) from error


def resume(folder: Path, *, report: Report = lambda progress: None) -> None:
    """Continue a run that stopped for whatever reason; a finished one is left as it is.

    Raises:
        ForeignCode: the folder names code outside of the trusted packages, and the call is outside of
            :func:`consilience.models.trusting`; no such code was imported.
        RunFailed: no run there, or a damaged ledger or state.
    """
    spec = stored_spec(folder)
    try:
        _continue(spec, folder, report)
    except ForeignCode as error:
        raise error.said_in(folder / CONFIGURATION) from error


def rehearse(spec: Spec) -> Rehearsal:
    """Do everything short of training, for every seed, so that errors appear before training.

    Returns:
        The data and parties of the first seed, which is rehearsed last and need not be gathered again.
    """
    check_liars(spec)
    for seed in reversed(spec.seed_list):
        setup = gather(spec, seed, checked=seed != spec.seed_list[-1])
        for method in spec.methods:
            setup.informed(method.aggregate)
            if (budget := budget_of(method)) is not None:
                setup.parties(budget=budget)
        if any(method.needs_public for method in spec.methods):
            _check_public(setup.public)
        parties = everyone(spec, setup.names, setup.maker())
        if seed == spec.seed_list[-1]:
            for party in parties:
                party.prototype.check_saving()
        _check_methods(spec, setup, parties, seed)
    return Rehearsal(seed, setup, parties)


def _check_public(public: Public) -> None:
    """Raise ``InvalidInput`` if all public rows are identical; their predictions carry no information."""
    X = public.X
    if len(X) > 1 and np.array_equal(X[0], X[1], equal_nan=X.dtype.kind == "f"):
        first = np.broadcast_to(X[0], X.shape)
        if np.array_equal(X, first, equal_nan=X.dtype.kind == "f"):
            raise InvalidInput(
                f"all {len(X):,} public rows are the same in every input",
                where="data",
                mend="Name other input columns, or public rows that differ as the private ones do.",
            )


def _check_methods(
    spec: Spec, setup: SimulatedParties, parties: list[Party] | Population, seed: int
) -> None:
    """Raise ``InvalidInput`` unless parties can form a federation, and every method can begin with them."""
    limits: dict[str, Any] = {"timeout": spec.network.timeout, "quorum": spec.network.quorum}
    late = {one.name for one in spec.late}

    def formed(members: list[Party] | Population) -> tuple[Agreement, Network]:
        network = in_process_network(members, setup.public, **limits)
        bears: dict[str, Any] = {"strict": spec.strictly, "tolerates": spec.robustness.unaided}
        federation = federation_over(network, setup.public, seed=seed, **bears)
        return federation.form(), network

    early = [party for party in parties if party.name not in late] if late else parties
    before, _ = formed(early)
    agreed, network = formed(parties) if late else (before, _)
    check_classes_fixed(agreed.classes, before.classes)
    measured = [metric.name for metric in metrics_for(agreed.kind)]
    measured = measured if setup.outcome is None else list(setup.outcome.metrics)
    if spec.metric is not None and spec.metric not in measured:
        raise InvalidInput(
            f"metric {spec.metric!r} is not one of {'this outcome' if setup.outcome else agreed.kind}",
            where="metric",
            mend=nearest(spec.metric, measured),
        )
    if spec.metric in ("auc", "average_precision") and len(agreed.classes) != 2:
        raise InvalidInput(
            f"{spec.metric} is for two classes, and there are {len(agreed.classes)}",
            where="metric",
            mend="Take accuracy or log_loss.",
        )
    for method in spec.methods:
        protocol = spec.protocol_for(method, setup.informed(method.aggregate))
        check_late(spec, protocol, method.label)
        first = protocol.check(network, setup.public)
        if any(task.reply_type is SharedModel for task in first):
            _check_trust(spec)


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


def _continue(spec: Spec, folder: Path, report: Report, rehearsal: Rehearsal | None = None) -> None:
    """Run the remaining methods and seeds; a rehearsal stands for the first seed of a new run."""
    try:
        with closing(locked(folder)), closing(Ledger(folder / LEDGER)) as ledger:
            done = ledger.done
            for seed in spec.seed_list:
                remaining = [method for method in spec.methods if (method.label, seed) not in done]
                if not remaining:
                    continue
                setup = gather(spec, seed) if rehearsal is None else rehearsal.setup
                ready = None if rehearsal is None else rehearsal.parties
                rehearsal = None
                _record_setup(ledger, setup, seed)
                for method in remaining:
                    run_method(MethodRun(spec, method, seed, setup, folder), ledger, report, ready)
                    ready = None
            ledger.note(finished=now())
            certify(folder, ledger)
    except OSError as error:
        raise RunFailed(
            f"cannot be written ({error.strerror})",
            where=str(error.filename or folder),
            mend=f"Free some space, then: {command('resume', folder)}",
        ) from error


def _record_setup(ledger: Ledger, setup: SimulatedParties, seed: int) -> None:
    """Record who holds what with a seed, and facts about the data."""
    holdings, tests = setup.holdings, Public(setup.dataset.X_test).key
    kept = len(setup.names) * len(setup.dataset.X_test) <= MOST_NUMBERS
    weights = zip(setup.names, setup.own, strict=True) if kept else ()
    held = zip(holdings.parties, setup.models, holdings.counts, strict=True)
    with ledger.transaction():
        ledger.write(
            "own_rows", ((seed, name, tests, own.astype("<f4").tobytes()) for name, own in weights)
        )
        ledger.write(
            "holdings",
            (
                (seed, party, model.name, label, int(count))
                for party, model, counts in held
                for label, count in zip(holdings.classes, counts, strict=True)
            ),
        )
        ledger.note(
            dataset=setup.dataset.notes,
            public_rows=len(setup.public),
            columns=setup.dataset.columns,
            **({} if setup.outcome is None else {"outcome": setup.outcome.key}),
            **(
                {f"targets {seed}": setup.dataset.y_test.tolist()} if setup.outcome and kept else {}
            ),
            **({f"subgroup {seed}": list(setup.subgroups)} if setup.subgroups else {}),
            learners=[
                name
                for name, model in zip(setup.names, setup.models, strict=True)
                if not model.labels and model.name != "frozen"
            ],
        )
