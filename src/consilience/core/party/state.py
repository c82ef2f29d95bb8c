"""Files of a party's state: model, memory, features, and the agreement of its federation.

    folder/state.json              format number, version that wrote it, whether the model is trained, its
                                   history, and a digest of the columns of the public rows
    folder/agreement.safetensors   the agreement, as a message
    folder/model.*                 the trained model, as its learner writes it
    folder/alone.*                 the local model, if the party mixes it with the distilled one
    folder/choices.json            the choice of the mixture after each round, for the same parties
    folder/memory.safetensors      arrays that a protocol keeps from round to round
    folder/NAME.safetensors        state of the feature of that name: ``released``, releases of the privacy
                                   accountant; ``sums``, a secure sum with its secrets, in no checkpoint
    folder/nearness.safetensors    cached comparisons of own rows with public rows

The same form serves checkpoints of a run, parties at their own machine (:mod:`consilience.sites.party.state`
replaces the folder as a whole), and swapped-out parties of a population
(:mod:`consilience.core.networks.population`). A state requires that the party has joined. Random streams are
keyed and optimisers start afresh, so the state needs no further files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from consilience import __version__
from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.files import FORMAT, check_format, inside
from consilience.core.learners import Learner, Model
from consilience.core.messages.schema import Agreement
from consilience.core.messages.wire import decode, encode
from consilience.core.party.mixed_model import RIDGE, Choice, MixedModel, OwnRegion
from consilience.core.party.outbox import PartyFeature
from consilience.core.party.shared_space import SharedSpace
from consilience.core.party.trainer import Trainer
from consilience.core.registry import registered_names
from consilience.core.validation.arrays import Array

FEATURES = "consilience.party_features"
"""Group of entry points that make the state of a feature at a party (:class:`.outbox.PartyFeature`)."""

ABOUT = "state.json"
"""File that marks a folder as a state."""

_AGREEMENT, _MEMORY = "agreement.safetensors", "memory.safetensors"
_NEARNESS, _OF_FEATURE = "nearness.safetensors", ".safetensors"

_ALONE, _CHOICES, _REGION = "alone", "choices.json", "region.safetensors"

_DAMAGED = (OSError, ValueError, TypeError, KeyError)


def write_state(
    trainer: Trainer,
    folder: Path,
    files: Mapping[str, bytes],
    found: Mapping[str, Array],
    *,
    before: Path | None = None,
    keeps_model: bool = False,
) -> None:
    """Write the state of a joined party as files of a folder.

    Args:
        trainer: trainer of the party. If its training failed, the state has no trained model.
        folder: the folder, which exists and is empty.
        files: contents of further files by name, for features.
        found: cached comparisons of own rows with public rows.
        before: folder of the previous state; files with equal content are shared with it.
        keeps_model: whether the model equals that of the previous state, which is then shared too.

    Raises:
        OSError: a file cannot be written.
        RunFailed: the model cannot be written.
    """
    model = f"model{trainer.learner.suffix}"
    trained = trainer.learner.fitted
    if before is not None and keeps_model:
        trained = (before / model).exists()
        if trained:
            share_file(before / model, folder / model)
    elif trained:
        trainer.learner.save(folder / model)
    about = {"format": FORMAT, "consilience": __version__, "trained": trained}
    about["history"], about["columns"] = trainer.history.digest, trainer.public.columns_key
    contents = {ABOUT: json.dumps(about).encode(), _AGREEMENT: encode([trainer.agreement]), **files}
    for name, arrays in ((_MEMORY, trainer.memory.arrays), (_NEARNESS, found)):
        if arrays:
            contents[name] = save(dict(arrays))
    chooser = trainer.chooser
    if chooser is not None and chooser.alone is not None:
        alone = folder / f"{_ALONE}{chooser.alone.suffix}"
        if chooser.saved is not None and chooser.saved.is_file():
            share_file(chooser.saved, alone)
        else:
            chooser.alone.save(alone)
        chooser.saved = alone
        contents[_CHOICES] = _written(chooser.choices)
    for name, content in contents.items():
        if before is not None and _holds(before / name, content):
            share_file(before / name, folder / name)
        else:
            (folder / name).write_bytes(content)


def feature_files(features: Mapping[str, PartyFeature], *, checkpoint: bool) -> dict[str, bytes]:
    """Serialise the state of features, by the names of their files.

    Args:
        features: the features by name.
        checkpoint: whether it is for a checkpoint of a run, which excludes some features.

    Returns:
        Contents by file name; features without state are omitted.
    """
    kept = {name: one for name, one in features.items() if one.in_checkpoints or not checkpoint}
    written = {f"{name}{_OF_FEATURE}": one.to_bytes() for name, one in kept.items()}
    return {name: content for name, content in written.items() if content}


def read_state(trainer: Trainer, folder: Path) -> None:
    """Load the model and the memory that :func:`write_state` wrote; the party has joined.

    Args:
        trainer: trainer of the party.
        folder: the folder of the state.

    Raises:
        RunFailed: the state has another format, or is damaged.
    """
    about = read_about(folder)
    trainer.history.restore(about["history"])
    if about["columns"] != trainer.public.columns_key:  # its own table is read in another way since
        trainer.history.forget()
    try:
        if about["trained"]:
            trainer.changing().load(folder / f"model{trainer.learner.suffix}")
        elif trainer.learner.fitted:
            trainer.replace(trainer.untrained())
        trainer.memory.replace(_read_arrays(folder / _MEMORY))
        if (chooser := trainer.chooser) is not None:
            chooser.alone, chooser.saved = None, folder / f"{_ALONE}{trainer.learner.suffix}"
            if chooser.saved.is_file():
                chooser.alone = trainer.untrained()
                chooser.alone.load(chooser.saved)
            chooser.choices = read_choices(folder)
    except (*_DAMAGED, SafetensorError, KnowledgeRefused, InvalidInput) as error:
        raise _damaged(folder, error) from error


def read_choices(folder: Path) -> list[Choice]:
    """Read the choices that the party made after each round.

    Args:
        folder: folder of the state.

    Returns:
        The choices in order; empty if the party has made none.

    Raises:
        RunFailed: the file is damaged.
    """
    try:
        file = folder / _CHOICES
        return (
            [Choice.of(one) for one in json.loads(file.read_text(encoding="utf-8"))]
            if file.exists()
            else []
        )
    except (*_DAMAGED, InvalidInput) as error:
        raise _damaged(folder, error) from error


def write_mixture(model: MixedModel, folder: Path) -> None:
    """Write the parts of a mixed model other than its distilled model, for :func:`read_mixture`.

    Args:
        model: the mixed model.
        folder: the folder.

    Raises:
        OSError: a file cannot be written.
        RunFailed: the model trained alone cannot be written.
    """
    model.alone.learner.save(folder / f"{_ALONE}{model.alone.learner.suffix}")
    (folder / _CHOICES).write_bytes(_written(model.choices))
    if model.region is not None:
        (folder / _REGION).write_bytes(save({"coefficients": model.region.coefficients}))


def read_mixture(
    taught: Model, untrained: Learner, folder: Path, space: Callable[[], SharedSpace]
) -> Model:
    """Read the parts that :func:`write_mixture` wrote, and complete the mixed model.

    Args:
        taught: the distilled model.
        untrained: an untrained learner of the same type.
        folder: folder of the files.
        space: makes the space in which rows are compared, if the choice uses it.

    Returns:
        The mixed model; ``taught`` itself if the folder contains no choices.

    Raises:
        RunFailed: a file is damaged.
    """
    try:
        choices = read_choices(folder)
        if not choices:
            return taught
        region = None
        if choices[-1].asks_region:
            found, made = _read_arrays(folder / _REGION)["coefficients"], space()
            region = OwnRegion(made, found.astype(np.float64).reshape(made.ratio(RIDGE).landmarks))
    except (*_DAMAGED, SafetensorError, KnowledgeRefused, InvalidInput) as error:
        raise _damaged(folder, error) from error
    untrained.load(folder / f"{_ALONE}{untrained.suffix}")
    return MixedModel(
        taught.learner,
        taught.classes,
        alone=untrained,
        choices=choices,
        region=region,
        outcome=taught.outcome,
    )


def _written(choices: Sequence[Choice]) -> bytes:
    return json.dumps([asdict(one) for one in choices]).encode()


def read_joined(folder: Path) -> tuple[Agreement, dict[str, Array]]:
    """Read the agreement of a state, and the cached comparisons of rows.

    Args:
        folder: the folder of the state.

    Returns:
        The agreement, and the cached comparisons of own rows with public rows, by name.

    Raises:
        RunFailed: the state has another format, or is damaged.
    """
    read_about(folder)
    agreement = read_agreement(folder)
    try:
        return agreement, _read_arrays(folder / _NEARNESS)
    except (OSError, SafetensorError) as error:
        raise _damaged(folder, error) from error


def read_features(
    make: Callable[[str], Any], made: Container[str], folder: Path, *, only: bool = False
) -> None:
    """Load the state of features, such as privacy releases and the secure sum of the party.

    Args:
        make: returns a feature by name, made on the first call.
        made: names of the existing features; they keep later releases unless ``only`` is true.
        folder: the folder of the state.
        only: whether to discard releases made after the state was written.

    Raises:
        RunFailed: a file is damaged.
    """
    for name in registered_names(FEATURES):
        file = folder / f"{name}{_OF_FEATURE}"
        if file.exists() or name in made:
            try:
                data = file.read_bytes() if file.exists() else None
                make(name).read(data, only=only)
            except (OSError, ValueError, KnowledgeRefused) as error:
                raise _damaged(file, error) from error


def read_agreement(folder: Path) -> Agreement:
    """Read the agreement of a state.

    Raises:
        RunFailed: the file is missing or damaged.
    """
    try:
        agreement: Agreement
        (agreement,) = decode((folder / _AGREEMENT).read_bytes())
    except (OSError, ValueError, KnowledgeRefused) as error:
        raise _damaged(folder, error) from error
    return agreement


def read_about(folder: Path, *, whole: Path | None = None) -> dict[str, Any]:
    """Read the facts of a state: whether the model is trained, its history, its columns.

    Args:
        folder: the folder of the state.
        whole: folder that the error advises to move away before a restart; the default is ``folder``.

    Returns:
        ``trained``, ``history`` and ``columns`` by name.

    Raises:
        RunFailed: the state has another format, or the file is damaged.
    """
    path = folder / ABOUT
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(about, dict):
            raise ValueError(f"{ABOUT} is no table")
    except FileNotFoundError as error:
        raise _damaged(folder, f"there is no {ABOUT}") from error
    except (OSError, ValueError) as error:
        raise _damaged(folder, error) from error
    check_format(about, path, anew=f"move {whole or folder} away and start anew")
    try:
        return {
            "trained": bool(about["trained"]),
            "history": str(about["history"]),
            "columns": str(about["columns"]),
        }
    except KeyError as error:
        raise _damaged(folder, error) from error


def delete_states(home: Path, *, but: Container[str]) -> None:
    """Delete all states in subfolders of a folder, except those of some names.

    Args:
        home: the folder.
        but: names of the subfolders to keep.
    """
    for file in home.glob(f"*/{ABOUT}"):
        if file.parent.name not in but:
            shutil.rmtree(inside(file.parent, home))


def share_file(file: Path, target: Path) -> None:
    """Link a file of an earlier state into a new one, or copy it if links are not supported.

    Files of a state are never changed in place, so both may share them.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError:  # a file system without links
        shutil.copyfile(file, target)


def _holds(file: Path, content: bytes) -> bool:
    """Return true if a file is there and has this content."""
    return file.exists() and file.stat().st_size == len(content) and file.read_bytes() == content


def _read_arrays(file: Path) -> dict[str, Any]:
    """Read the arrays of a file by name; empty if the file does not exist."""
    return dict(load_file(file)) if file.exists() else {}


def _damaged(folder: Path, error: object) -> RunFailed:
    """Make the error for an unreadable state."""
    return RunFailed(
        f"its state is damaged: {error}",
        where=str(folder),
        mend="Restore it from a copy; or move the folder away and start anew.",
    )
