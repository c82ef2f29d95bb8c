"""Models that a run kept, loaded for ``consilience predict``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from consilience.core.errors import (
    InvalidInput,
    KnowledgeRefused,
    RunFailed,
    command,
    nearest,
)
from consilience.core.files import read_text
from consilience.core.learners import Model, suited_to
from consilience.core.messages.columns import Schema
from consilience.core.messages.replies import SharedModel
from consilience.core.messages.schema import MOST_CLASSES, Agreement, Public
from consilience.core.messages.wire import decode
from consilience.core.numerics.outcomes import outcome_of
from consilience.core.party.shared_space import SharedSpace, shared_space
from consilience.core.party.state import read_mixture
from consilience.core.protocols import RoundState
from consilience.lab.cli.trust import allowing
from consilience.lab.config.methods import BASELINES
from consilience.lab.experiments import Ledger, Spec, stored_spec
from consilience.lab.runs.deployment import deployment
from consilience.lab.runs.folder import (
    LEDGER,
    file_name,
    model_folder,
    public_file,
    read_configuration,
    run_of,
)
from consilience.models.encoders.encoders import find_encoder
from consilience.models.files.transfer import unpack
from consilience.models.fixed import Frozen
from consilience.models.presets import foreign_code, make
from consilience.tables.predictions import Kept, Scaling


def kept(
    run: Path,
    party: str,
    method: str | None = None,
    seed: int | None = None,
    *,
    trust: bool = False,
) -> Kept:
    """Load a party's model.

    Args:
        run: the run folder.
        party: whose model.
        method: label of the method; by default the last one in the configuration that is not a baseline.
        seed: by default the first.
        trust: whether a model of code beyond the trusted packages may be imported and run.

    Raises:
        ForeignCode: it is of such code, which is not trusted; nothing of it was imported.
        InvalidInput: no such run, method, seed or party, with the nearest that there is.
        RunFailed: the model is damaged.
    """
    run = run_of(run)
    if read_configuration(run).kind == "deployed":
        return _sent_to_coordinator(run, party, method, seed)
    spec = stored_spec(run)
    labels = [one.label for one in spec.methods]
    method = _default_method(spec) if method is None else method
    _among(method, labels, "method", run)
    seed = spec.seed_list[0] if seed is None else seed
    _among(str(seed), map(str, spec.seed_list), "seed", run)
    folder = model_folder(run, method, seed, party)
    if not folder.parent.is_dir():
        raise InvalidInput(
            f"it has kept no models of method {method!r}, seed {seed}",
            where=str(run),
            mend=f"keep_models is {spec.keep_models!r} there; or the run is not that far yet "
            f"({command('resume', run)}).",
        )
    if not folder.is_dir():
        if _took_part(run, seed, party):
            raise InvalidInput(
                f"party {party!r} has no model: its training failed",
                where=str(run),
                mend="The report says why, under failures and remarks.",
            )
        there = [path.name for path in folder.parent.iterdir()]
        raise InvalidInput(
            f"there is no party {party!r}", where=str(run), mend=nearest(file_name(party), there)
        )
    model, scaling, about = _loaded(folder, trust, lambda: _space(run, spec, seed))
    return Kept(
        model=model,
        schema=model.learner.schema,
        row_shape=tuple(about["row_shape"]),
        scaling=scaling,
        about=f"{method}, seed {seed}, {party}",
    )


def _sent_to_coordinator(run: Path, party: str, method: str | None, seed: int | None) -> Kept:
    """A party's model of a deployed run, whose coordinator has it where the protocol exchanges models.

    Raises:
        InvalidInput: no such method, seed or party; or no model of it left the party.
        RunFailed: the ledger is damaged.
    """
    spec = deployment().deployed_spec(run)
    (label,), (only,) = (one.label for one in spec.methods), spec.seed_list
    _among(label if method is None else method, [label], "method", run)
    _among(str(only if seed is None else seed), [str(only)], "seed", run)
    _among(party, spec.parties, "party", run)
    with closing(Ledger(run / LEDGER, read_only=True, states=True)) as ledger:
        ledger.check_values()
        found, agreed = ledger.last_checkpoint(label, only), ledger.meta.get("agreement", "")
        try:
            (state,) = decode(found[1]) if found else (None,)
            (agreement,) = decode(bytes.fromhex(agreed)) if found else (None,)
        except (KnowledgeRefused, ValueError, TypeError) as error:
            raise ledger.damaged(error) from error
    shared = state.memory.get(party) if isinstance(state, RoundState) else None
    if not isinstance(shared, SharedModel) or not isinstance(agreement, Agreement):
        raise InvalidInput(
            f"the coordinator has no model of party {party!r}: its model stays with it",
            where=str(run),
            mend="At the party: consilience party predict party.toml DATA",
        )
    try:
        learner = unpack(shared.about, shared.data)
    except KnowledgeRefused as error:
        raise RunFailed(f"the model cannot be used: {error.what}", where=str(run)) from error
    return Kept(
        model=Model(learner, agreement.classes, outcome_of(agreement.outcome)),
        schema=learner.schema,
        row_shape=None,
        scaling=None,
        about=f"{label}, seed {only}, {party}, round {state.round}",
    )


def _default_method(spec: Spec) -> str:
    taught = [one.label for one in spec.methods if one.aggregate not in BASELINES]
    return taught[-1] if taught else spec.methods[-1].label


def _among(word: str, known: Iterable[str], what: str, run: Path) -> None:
    known = list(known)
    if word not in known:
        raise InvalidInput(
            f"there is no {what} {word!r}", where=str(run), mend=nearest(word, known)
        )


def _took_part(run: Path, seed: int, party: str) -> bool:
    with closing(Ledger(run / LEDGER, read_only=True)) as ledger:
        return bool(ledger.read("SELECT 1 FROM holdings WHERE seed = ? AND party = ?", seed, party))


def _space(run: Path, spec: Spec, seed: int) -> SharedSpace:
    """The space of a seed's public rows, which the run has kept.

    Raises:
        RunFailed: it has not, or they are damaged.
    """
    path = public_file(run, seed)
    try:
        (task,) = decode(path.read_bytes())
        public: Public = task.rows()
    except FileNotFoundError as error:
        raise RunFailed(
            "the public rows of this run are not there",
            where=str(path),
            mend="Restore the folder from a copy, or run the configuration anew.",
        ) from error
    except (OSError, ValueError, AttributeError, KnowledgeRefused) as error:
        raise RunFailed(f"the public rows are damaged ({error})", where=str(path)) from error
    encoder = None if spec.data.encoder is None else find_encoder(spec.data.encoder)
    return shared_space(public.with_encoder(encoder), seed)


def _loaded(
    folder: Path, trust: bool, space: Callable[[], SharedSpace]
) -> tuple[Model, Scaling | None, dict[str, Any]]:
    path = folder / "model.json"
    try:
        about = json.loads(read_text(path))
        named, classes = dict(about["model"]), tuple(map(str, about["classes"]))
        outputs, _ = int(about["outputs"]), tuple(about["row_shape"])
        schema = Schema.from_json(about["schema"]) if about["schema"] else None
        if not 0 < outputs <= MOST_CLASSES or (classes and outputs != len(classes)):
            raise ValueError(f"{outputs} outputs, and {len(classes)} classes")
        name = str(named.pop("name"))
        outcome_key = str(about["outcome"])
        scaling = about["scaling"] and Scaling(
            *(np.asarray(about["scaling"][part], dtype=float) for part in ("centre", "spread"))
        )
    except FileNotFoundError as error:
        raise RunFailed(
            "the model's description is not there",
            where=error.filename,
            mend="Restore the folder from a copy, or train the model anew.",
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFailed(
            f"the model's description is damaged ({error})",
            where=str(path),
            mend="Restore it from a copy, or run the configuration anew.",
        ) from error
    foreign = foreign_code(name, named)
    with allowing([one.within("model") for one in foreign], path, trust=trust):
        outcome = outcome_of(outcome_key)
        learner, alone = (suited_to(make(name, **named), outcome) for _ in range(2))
    learner.bind(outputs, schema)
    alone.bind(outputs, schema)
    if isinstance(learner, Frozen) and learner.classes:
        learner.align(classes, learner.classes)
    learner.load(folder / f"model{learner.suffix}")
    return read_mixture(Model(learner, classes, outcome), alone, folder, space), scaling, about
