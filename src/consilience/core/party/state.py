"""Files of a party's state: its model, its memory, its noisy replies, and the agreement that it joined.

    folder/state.json              format number, version that wrote it, whether the model is trained, its
                                   history, and a digest of the columns of the public rows
    folder/agreement.safetensors   the agreement, as a message
    folder/model.*                 the trained model, as its learner writes it
    folder/alone.*                 the model that it had trained alone, where it chooses between the two
    folder/choices.json            what it chose after each round, where it did
    folder/memory.safetensors      arrays that a protocol keeps from round to round
    folder/NAME.safetensors        what the feature of that name keeps: ``released``, releases of the privacy
                                   accountant; ``sums``, a secure sum with its secrets, in no checkpoint
    folder/nearness.safetensors    which of its rows are public rows too, as far as that was computed

One form for checkpoints of a run, for a party at its own machine (:mod:`consilience.sites.party.state`
replaces the folder as a whole) and for parties of a population that are not in memory
(:mod:`consilience.core.networks.population`). The agreement is written where a party has joined.
Random streams are keyed and optimisers start afresh, so that nothing else is needed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from consilience import __version__
from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.files import FORMAT, check_format, inside, write_folder
from consilience.core.learners import Learner, Model
from consilience.core.messages.schema import Agreement
from consilience.core.messages.wire import decode, encode
from consilience.core.party.mixed_model import RIDGE, Choice, MixedModel, OwnRegion
from consilience.core.party.shared_space import SharedSpace
from consilience.core.registry import registered_names

if TYPE_CHECKING:
    from consilience.core.party.party import Party

FEATURES = "consilience.party_features"
"""Group of entry points that make what a feature keeps at a party (:class:`.outbox.PartyFeature`)."""

ABOUT = "state.json"
"""The file by which a folder is known to hold a state."""

_AGREEMENT, _MEMORY = "agreement.safetensors", "memory.safetensors"
_NEARNESS, _OF_FEATURE = "nearness.safetensors", ".safetensors"

_ALONE, _CHOICES, _REGION = "alone", "choices.json", "region.safetensors"

_DAMAGED = (OSError, ValueError, TypeError, KeyError)


class SavedState:
    """The half of a :class:`~.party.Party` that keeps its state on its own disk."""

    home: Path | None
    """Folder of its saved states; ``None`` for none."""
    identity: bytes = b""
    """Private key by which the others know it, in OpenSSH's form, which signs its keys of secure sums."""
    roster: Mapping[str, str] | None = None
    """Public keys of the others, for secure sums; ``None`` where it takes the coordinator's word for them."""
    _where: str

    @property
    def _whole(self) -> Party:
        return cast("Party", self)

    def save(self, label: str) -> None:
        """Write the state (:mod:`consilience.core.party.state`) as ``home/label``, whole or not at all."""
        folder = self._state_folder(label)
        try:
            write_folder(
                folder, lambda part: write_state(self._whole, part, checkpoint=True), replace=True
            )
        except OSError as error:
            raise RunFailed(
                f"its state cannot be written ({error.strerror})",
                where=self._where,
                mend=f"Free some space below {folder.parent}, then resume the run.",
            ) from error
        if (chooser := self._whole.chooser) is not None and chooser.saved is not None:
            chooser.saved = folder / chooser.saved.name  # it was written under another name

    def restore(self, label: str) -> None:
        """Load the state that :meth:`save` wrote; call after :meth:`join`."""
        folder = self._state_folder(label)
        if not folder.is_dir():
            raise RunFailed(f"it has no state of {label}", where=self._where, code="not-joined")
        read_state(self._whole, folder)

    def keep(self, labels: Container[str]) -> None:
        """Delete the saved states that ``labels`` does not name."""
        delete_states(self._state_folder(""), but=labels)

    def _state_folder(self, label: str) -> Path:
        """The folder of a saved state.

        Raises:
            InvalidInput: the party has no folder to keep states in.
            RunFailed: a link leads out of it.
        """
        if self.home is None:
            raise InvalidInput("it has no folder to keep its state in", where=self._where)
        return inside(self.home / label, self.home)


def write_state(
    party: Party,
    folder: Path,
    *,
    before: Path | None = None,
    keeps_model: bool = False,
    checkpoint: bool = False,
) -> None:
    """Write a party's state as files of a folder.

    Args:
        party: the party; where its training failed, the state says that it has no trained model.
        folder: the folder, which is there and empty.
        before: the folder of the state before, whose files are shared where they hold the same.
        keeps_model: whether the model is that of the state before, so that it need not be written.
        checkpoint: whether it is a checkpoint of a run, which some features stay out of.

    Raises:
        OSError: a file cannot be written.
        RunFailed: the model cannot be written.
    """
    model = f"model{party.learner.suffix}"
    trained = party.learner.fitted
    if before is not None and keeps_model:
        trained = (before / model).exists()
        if trained:
            share_file(before / model, folder / model)
    elif trained:
        party.learner.save(folder / model)
    about = {"format": FORMAT, "consilience": __version__, "trained": trained}
    about["history"], about["columns"] = party.history, _columns(party)
    files = {ABOUT: json.dumps(about).encode()}
    if party.agreement is not None:
        files[_AGREEMENT] = encode([party.agreement])
    for name, feature in party.features.items():
        kept = feature.in_checkpoints or not checkpoint
        if kept and (content := feature.to_bytes()):
            files[f"{name}{_OF_FEATURE}"] = content
    for name, arrays in ((_MEMORY, party.memory), (_NEARNESS, party.comparison.found)):
        if arrays:
            files[name] = save(arrays)
    chooser = party.chooser
    if chooser is not None and chooser.alone is not None:
        alone = folder / f"{_ALONE}{chooser.alone.suffix}"
        if chooser.saved is not None and chooser.saved.is_file():
            share_file(chooser.saved, alone)
        else:
            chooser.alone.save(alone)
        chooser.saved = alone
        files[_CHOICES] = _written(chooser.choices)
    for name, content in files.items():
        if before is not None and _holds(before / name, content):
            share_file(before / name, folder / name)
        else:
            (folder / name).write_bytes(content)


def read_state(party: Party, folder: Path) -> None:
    """Load the model, the memory and the noisy replies that :func:`write_state` wrote; the party has joined.

    Noisy replies that the party has given meanwhile stay as they are.

    Args:
        party: the party.
        folder: the folder of the state.

    Raises:
        RunFailed: the state has another format, or is damaged.
    """
    about = read_about(folder)
    party.history = about["history"]
    if about["columns"] != _columns(party):  # its own table is read in another way since
        party.forget()
    try:
        if about["trained"]:
            party.changing().load(folder / f"model{party.learner.suffix}")
        party.memory = _read_arrays(folder / _MEMORY)
        if (chooser := party.chooser) is not None:
            chooser.alone, chooser.saved = None, folder / f"{_ALONE}{party.learner.suffix}"
            if chooser.saved.is_file():
                chooser.alone = party.untrained()
                chooser.alone.load(chooser.saved)
            chooser.choices = read_choices(folder)
    except (*_DAMAGED, SafetensorError, KnowledgeRefused, InvalidInput) as error:
        raise _damaged(folder, error) from error
    read_features(party, folder)


def _columns(party: Party) -> str:
    """Digest of the columns that a party reads its own table by; empty without a schema."""
    return "" if party.public is None else party.public.columns_key


def read_choices(folder: Path) -> list[Choice]:
    """Read what the party of a state chose after each round; nothing where it has chosen nothing.

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
    """Write what a mixed model has beside the taught one, for :func:`read_mixture`.

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
    """Read what :func:`write_mixture` wrote; the taught model itself where nothing was.

    Args:
        taught: the taught model.
        untrained: a learner like it.
        folder: where the files are.
        space: makes the space in which rows are compared, where the choice asks for it.

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


def join_again(party: Party, folder: Path) -> None:
    """Have a party join what it had joined when its state was written, its rows not compared again.

    Args:
        party: the party, which holds the public rows that were agreed on.
        folder: the folder of the state.

    Raises:
        RunFailed: the state has another format, or is damaged.
        InvalidInput: the party's data are others now, and do not fit any more.
    """
    read_about(folder)
    agreement = read_agreement(folder)
    try:
        party.comparison.found = _read_arrays(folder / _NEARNESS) | party.comparison.found
    except (OSError, SafetensorError) as error:
        raise _damaged(folder, error) from error
    party.join(agreement)


def read_features(party: Party, folder: Path, *, only: bool = False) -> None:
    """Load what features keep in a state, such as releases of privacy, and the secure sum that it is in.

    Args:
        party: the party; what it has released meanwhile stays as it is.
        folder: the folder of the state.
        only: whether to forget what it has released meanwhile.

    Raises:
        RunFailed: a file is damaged.
    """
    for name in registered_names(FEATURES):
        file = folder / f"{name}{_OF_FEATURE}"
        if file.exists() or name in party.features:
            try:
                data = file.read_bytes() if file.exists() else None
                party.feature(name).read(data, only=only)
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
        whole: the folder to be moved away to start anew, for the error; by default that of the state.

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
    """Delete the states in a folder, each in a folder of its own, but for those of some names."""
    for file in home.glob(f"*/{ABOUT}"):
        if file.parent.name not in but:
            shutil.rmtree(inside(file.parent, home))


def share_file(file: Path, target: Path) -> None:
    """Have a file of an earlier state in a new one too, without writing its bytes again.

    Files of a state are never changed in place, so that both may share them.
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
    """Arrays of a file by name; none where there is no such file."""
    return dict(load_file(file)) if file.exists() else {}


def _damaged(folder: Path, error: object) -> RunFailed:
    """An error for a state that cannot be read."""
    return RunFailed(
        f"its state is damaged: {error}",
        where=str(folder),
        mend="Restore it from a copy; or move the folder away and start anew.",
    )
