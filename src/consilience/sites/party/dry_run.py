"""Dry run of a party's configuration on a few of its rows, before it joins anything."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import PRECISION, Agreement, OutputKind, Public
from consilience.core.messages.wire import decode, encode
from consilience.core.party.party import Party
from consilience.core.party.rules import PartyRules, PublicRules
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Describe, Join
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.core.validation.labels import class_order
from consilience.sites.party.audit import AUDIT, read_log
from consilience.sites.party.configuration import PartySpec
from consilience.sites.party.limits import EVERYTHING, Limits
from consilience.sites.party.own_ledger import ledger_warnings
from consilience.sites.party.privacy_limits import whole_ledger
from consilience.sites.party.public_rows import kept_public
from consilience.sites.party.session import read_session
from consilience.sites.party.site import PartySite

MOST_ROWS = 300
"""Own rows, and public ones, that a dry run works with."""


@dataclass(frozen=True)
class DryRunReport:
    """Findings of a dry run.

    Attributes:
        name: name of the party.
        rows: number of its rows, without the test rows.
        test_rows: number of test rows.
        inputs: shape of one row.
        classes: number of rows of each class, by the federation's class names; empty for regression.
        public_rows: number of public rows in the party's file.
        public: digest of the public rows, which must be equal to the coordinator's.
        public_from: source of the public rows: ``"file"``, ``"coordinator"`` if there is no file and the
            limits allow the coordinator to send them (own rows stood in for them in the dry run), or
            ``"none"``.
        public_bytes: largest accepted size of sent public rows, in bytes; ``None`` for no limit.
        kept: digests of public rows received from a coordinator earlier.
        shared_rows: number of private rows excluded because the public file also contains them.
        model: name of the model.
        soft_targets: method by which the model learns from soft targets.
        answer_bytes: size of its predictions on all public rows, the largest reply of this kind.
        leaves: task to the type of reply that the limits allow.
        seconds: estimated seconds of each part of a round, assuming that time grows linearly with the rows;
            measured on :data:`MOST_ROWS` rows.
        rounds: maximum number of rounds; ``None`` for no limit.
        warnings: limits laxer than the defaults, each with its risk, and further warnings about the rows.
    """

    name: str
    rows: int
    test_rows: int
    inputs: tuple[int, ...]
    classes: Mapping[str, int]
    public_rows: int
    public: str
    public_from: Literal["file", "coordinator", "none"]
    public_bytes: int | None
    kept: tuple[str, ...]
    shared_rows: int
    model: str
    soft_targets: str
    answer_bytes: int
    leaves: Mapping[str, str]
    seconds: Mapping[str, float]
    rounds: int | None
    warnings: tuple[str, ...]


def try_out(spec: PartySpec) -> DryRunReport:
    """Make the party, and have a small copy of it answer the requests of one round in a temporary folder.

    If the coordinator will send the public rows, own rows stand in for them, in memory only. Whether the real
    public rows match the party's columns is checked only when they arrive.

    Args:
        spec: configuration of the party.

    Returns:
        The findings.

    Raises:
        InvalidInput: parts of the configuration do not fit together; no model was trained on all rows.
        RunFailed: the model failed on the small copy, or the state cannot be written.
    """
    party = join_alone(spec)
    assert party.public is not None
    origin: Literal["file", "coordinator", "none"] = "file"
    if spec.public is None:
        origin = "coordinator" if spec.limits.max_public_bytes else "none"
    small = _smaller(party, spec)
    if origin == "coordinator":
        inputs = small.rows.X[:MOST_ROWS]
        small.hold_public(Public(inputs, party.rows.schema) if len(inputs) else Public.none())
    public_rows, outputs = len(party.public), _agreed(party).outputs
    precision = PRECISION[_kind_of(party)]
    _asked(small, spec.threads)  # the first time libraries are imported as well
    return DryRunReport(
        name=spec.name,
        rows=len(party.rows.X),
        test_rows=0 if party.rows.test is None else len(party.rows.test[0]),
        inputs=party.rows.X.shape[1:],
        classes=_rows_by_class(party),
        public_rows=public_rows,
        public=party.public.key if public_rows else "",
        public_from=origin,
        public_bytes=spec.limits.public_bytes,
        kept=kept_public(spec.state) if origin == "coordinator" else (),
        shared_rows=party.trainer.rows.left_out,
        model=spec.model.name,
        soft_targets=party.prototype.abilities.how,
        answer_bytes=public_rows * outputs * np.dtype(precision).itemsize,
        leaves=spec.limits.allowed_replies(),
        seconds=_seconds(_asked(small, spec.threads), small, party),
        rounds=spec.limits.rounds,
        warnings=(
            *lax_limits(spec.limits),
            *ledger_warnings(spec.limits),
            *party.rows.notes,
            *party.trainer.rare,
        ),
    )


def join_alone(spec: PartySpec) -> Party:
    """Make the party and have it join a federation without other parties, to check data and model.

    If the party has no file of public rows, it joins with an empty set.

    Args:
        spec: configuration of the party.

    Returns:
        The party, after it has joined.

    Raises:
        InvalidInput: parts of the configuration do not fit together.
        RunFailed: its state could not be written, is damaged, or has another format;
            or its privacy ledger was changed, cut or set back.
    """
    _check_folder(spec.state)
    read_session(spec.state)
    whole_ledger(spec.state, spec.limits.ledger_in(spec.state))
    party = spec.party()
    if party.public is None:
        party.hold_public(Public.none())
    with spec.located():
        spec.limits.bind(party)
        party.join(_agreed(party))
    return party


def lax_limits(limits: Limits) -> tuple[str, ...]:
    """List all limits laxer than the defaults, one sentence each, with the risk."""
    usual, (low, high) = Limits(), limits.quantile
    model = "what your model says of the public rows"
    lax = {
        "overlap": (
            limits.overlap,
            f"a person whose record is among the public rows shows in {model}",
        ),
        "secret": (
            not limits.secret,
            "who knows the seed can compute again what your model does with rows that are guessed",
        ),
        "alpha": (
            limits.alpha < usual.alpha,
            "a coordinator can make a model that looks for one person",
        ),
        "quantile": (
            low < usual.quantile[0] or high > usual.quantile[1],
            "single rows of yours show in which public rows are selected",
        ),
        "regularization": (
            limits.regularization < usual.regularization,
            "certainties tell more of single rows",
        ),
        "delta": (
            limits.epsilon is not None and limits.delta > usual.delta,
            "with that probability a release may tell all of a row",
        ),
        "metrics": (_more(limits.metrics, usual.metrics), "metrics tell who is measured on"),
        "metrics_in_all": (
            _more(limits.metrics_in_all, usual.metrics_in_all),
            "metrics tell who is measured on",
        ),
        "digits": (_more(limits.digits, usual.digits), "metrics tell more of single rows"),
        "public_sets": (
            _more(limits.public_sets, usual.public_sets),
            "the difference of two models reveals whether a record of one set is yours",
        ),
    }
    return tuple(
        f"limits.{name} is {_written(getattr(limits, name))}, and usually "
        f"{_written(getattr(usual, name))}: {danger}"
        for name, (laxer, danger) in lax.items()
        if laxer
    )


def _more(most: int | None, usual: int | None) -> bool:
    """Return true if a limit, or none, allows more than the usual one."""
    return usual is not None and (most is None or most > usual)


def _written(value: object) -> str:
    """A value as a file of TOML has it."""
    return json.dumps(value)


def _asked(party: Party, threads: int) -> dict[str, float]:
    """Send a party all requests of one round; return the seconds that each task took, by task name."""
    agreed, kind = _agreed(party), _kind_of(party)
    taken: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        PartySite(lambda: party, Path(folder), limits=EVERYTHING, threads=threads) as site,
    ):

        def ask(task: Task) -> Any:
            start = perf_counter()
            (reply,) = decode(site.answer(encode([task])))
            taken[type(task).__name__] = perf_counter() - start
            if isinstance(reply, Failure):
                wrong = InvalidInput if reply.kind == "invalid" else RunFailed
                said = str(read_log(Path(folder) / AUDIT).entries[-1]["detail"])
                if said != reply.reason:  # with the words that would not leave
                    raise wrong(said, where="dry run")
                raise wrong(said, where="dry run", mend=reply.mend or None)
            reply.validate(party=party.name, task=task, agreement=agreed)
            return reply

        ask(Describe())
        ask(Join(agreement=agreed))  # trains nothing: what it takes is the state's
        if learns_only := not (party.rows.labelled or party.frozen):
            targets = np.full((agreed.rows, agreed.outputs), 1 / agreed.outputs, PRECISION[kind])
            targets[:: agreed.outputs] *= 0.5  # of one class alone not every model learns
            targets[:: agreed.outputs, 0] += 0.5
        else:
            ask(FitPrivate(round=1))
        if agreed.rows:
            if not learns_only:
                targets = ask(PredictPublic(round=1, outputs=kind)).values
            ask(Distill(round=1, targets=targets, alpha=0.5))
    return taken


def _seconds(taken: Mapping[str, float], small: Party, party: Party) -> dict[str, float]:
    """Seconds of a round on all rows, if time grows with them; public rows to come are taken for as many."""
    assert small.public is not None and party.public is not None
    own, state = len(party.rows.X) / max(len(small.rows.X), 1), taken["Join"]
    factors = {"FitPrivate": own}
    if len(small.public):
        public = (len(party.public) or len(party.rows.X)) / len(small.public)
        factors |= {"PredictPublic": public, "Distill": max(own, public)}
    words = {"FitPrivate": "train", "PredictPublic": "predict", "Distill": "learn from the teacher"}
    seconds = {
        words[task]: factor * max(0.0, taken[task] - state)
        for task, factor in factors.items()
        if task in taken
    }
    seconds["read and write the state"] = state * (len(taken) - 2)
    return seconds


def _rows_by_class(party: Party) -> dict[str, int]:
    """Count the rows of each class, or of each stratum of another outcome, such as censored rows."""
    if party.rows.outcome is None or not party.rows.labelled:
        return {name: int((party.rows.y == name).sum()) for name in party.rows.classes}
    kinds, counts = np.unique(party.rows.outcome.strata(party.rows.y), return_counts=True)
    return {str(kind): int(n) for kind, n in zip(kinds, counts, strict=True) if kind}


def _smaller(party: Party, spec: PartySpec) -> Party:
    """The same party with a few rows of every class."""
    assert party.public is not None
    kinds, names = party.rows.y, party.rows.classes
    if party.rows.outcome is not None and party.rows.labelled:
        bins = party.rows.outcome.targets(party.rows.y, own=party.rows.y).argmax(axis=1)
        kinds = np.char.add(party.rows.outcome.strata(party.rows.y), bins.astype(str))
        names = tuple(np.unique(kinds))
    groups = [np.flatnonzero(kinds == name) for name in names if party.rows.labelled]
    groups = groups or [np.arange(len(party.rows.X))]
    rows = np.sort(np.concatenate([group[: -(-MOST_ROWS // len(groups))] for group in groups]))
    small = Party(
        party.name,
        party.trainer.untrained() if party.frozen else spec.learner(),  # one that keeps its answers
        party.rows.X[rows] if len(party.rows.X) else None,
        party.rows.y[rows] if party.rows.labelled else None,
        calibration=spec.data.calibration,
        outcome=party.rows.outcome,
        rules=PartyRules(
            trusts=spec.trusts,
            sends_rows=spec.model.sends_rows,
            public=PublicRules(encoder=party.rules.public.encoder),
        ),
    )
    public = party.public
    small.hold_public(public.take(slice(MOST_ROWS)) if len(public) else public)
    return small


def _agreed(party: Party) -> Agreement:
    """The agreement of a federation of this party alone."""
    assert party.public is not None
    classes, tested = party.rows.classes, party.rows.test
    if party.rows.kind == "classification" and not classes:  # it learns only: any will do
        classes = ("one", "other") if tested is None else class_order(tested[1].tolist())
    mine, encoder = (party.name,), party.rules.public.encoder
    return Agreement(
        kind=party.rows.kind,
        frozen=mine if party.frozen else (),
        learners=() if party.rows.labelled or party.frozen else mine,
        classes=classes,
        outputs=len(classes) or party.rows.targets or (1 if tested is None else tested[1].shape[1]),
        public=party.public.key,
        rows=len(party.public),
        seed=0,
        encoder=party.public.encoder_key if encoder is None else encoder.key,
        outcome="" if party.rows.outcome is None else party.rows.outcome.key,
    )


def _kind_of(party: Party) -> OutputKind:
    """The kind of its predictions."""
    return "probabilities" if party.rows.kind == "classification" else "values"


def _check_folder(state: Path) -> None:
    """Raise an error if the state could not be written, without making its folder."""
    if state.is_file():
        raise InvalidInput(
            "this is a file, and state is a folder",
            where=str(state),
            mend="Set state to another one; it is made if need be.",
        )
    there = next(folder for folder in (state, *state.parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise RunFailed(
            "its state cannot be written there",
            where=str(there),
            mend="Set state to a folder that this user may write to.",
        )
