"""Classes of a federation as it grows: named by the operator, added between rounds when the parties agree.

coordinator.toml        classes names those that may be added; it counts while a run goes on
run/ledger.sqlite       what became of each, and from which round on they are agreed on

A class is added once a party has rows of it and every party that has joined says yes. Until then, and where
one says no or is away, the run goes on as it was, and the parties are asked again after the next round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from consilience.deployment.coordinator.configuration import (
    CONFIGURATION,
    CoordinatorSpec,
    check_folder,
    edited,
    edits,
    stored_coordinator,
)
from consilience.deployment.coordinator.membership import MembershipNetwork, agreement_of
from consilience.errors import InvalidInput, command, nearest
from consilience.federation.forming import (
    check_growing,
    check_new_names,
    check_tolerates,
    with_classes,
)
from consilience.federation.ledger import Ledger
from consilience.federation.run_folder import LEDGER
from consilience.files import write_whole
from consilience.messages.replies import Description
from consilience.messages.schema import Agreement
from consilience.messages.wire import encode
from consilience.tasks.lifecycle import ConsiderClasses, Describe
from consilience.validation.sections import read_toml

# --- at the operator's command ------------------------------------------------------------------------


@edits
def add_class(folder: Path, name: str) -> None:
    """Name a class in coordinator.toml that may be added.

    Args:
        folder: the coordinator's.
        name: of the class.

    Raises:
        InvalidInput: no class is called so, or it is named or agreed on already, or this run takes in none.
    """
    document = _document(folder)
    check_new_names([name], document["classes"])
    names = [*document["classes"], name]
    check_addable(folder, names)
    _write(folder, document, names)


@edits
def remove_class(folder: Path, name: str) -> None:
    """Take a class that was not added yet out of coordinator.toml.

    Args:
        folder: the coordinator's.
        name: of the class.

    Raises:
        InvalidInput: it is not named there, or agreed on already.
    """
    document = _document(folder)
    names: list[str] = document["classes"]
    if name not in names:
        raise InvalidInput(
            f"no class {name!r} is named", where="classes", mend=nearest(name, names)
        )
    if (agreed := _agreed(folder)) is not None and name in agreed.classes:
        raise InvalidInput(
            f"class {name!r} is agreed on, and no class is taken out of a run",
            where="classes",
            mend=f"To be without it have the parties leave such rows out, then: "
            f"{command('coordinator', 'stop', folder)}, move the run folder away, and start anew.",
        )
    _write(folder, document, [one for one in names if one != name])


def check_addable(folder: Path, names: Sequence[str]) -> None:
    """Raise ``InvalidInput`` where a run goes on that takes in none of these classes.

    Args:
        folder: the coordinator's.
        names: all that coordinator.toml is to name.
    """
    spec, agreed = stored_coordinator(folder), _agreed(folder)
    if spec is None or agreed is None:
        return
    # Of the others the run has heard.
    if new := [name for name in names if name not in spec.classes]:
        _check_growing(spec, agreed, new)


def _check_growing(spec: CoordinatorSpec, agreed: Agreement, names: Sequence[str]) -> None:
    """Raise ``InvalidInput`` where a run takes in no classes, or none of these names."""
    check_new_names(names, agreed.classes)
    secret = spec.robustness.secret_labels is not None
    check_growing(spec.make_protocol(), agreed, secret=secret)


def _agreed(folder: Path) -> Agreement | None:
    """The agreement of the run in a folder; ``None`` where no round was kept yet."""
    if not (folder / "run" / LEDGER).exists():
        return None
    with closing(Ledger(folder / "run" / LEDGER)) as ledger:
        return agreement_of(ledger)


def _document(folder: Path) -> dict[str, Any]:
    """The contents of coordinator.toml, with a list of classes."""
    check_folder(folder)
    found = {"classes": []} | read_toml(folder / CONFIGURATION)
    if not isinstance(found["classes"], list) or not all(
        isinstance(n, str) for n in found["classes"]
    ):
        raise InvalidInput(
            "it should be a list of names", where=f"{folder / CONFIGURATION}: classes"
        )
    return found


def _write(folder: Path, before: dict[str, Any], names: list[str]) -> None:
    """Write the line of the classes into coordinator.toml, and leave all else as it is.

    Raises:
        InvalidInput: no coordinator could go on with the file, or it is written so that this cannot be done.
    """
    path = folder / CONFIGURATION
    lines = path.read_text(encoding="utf-8").splitlines()
    new = f"classes = {json.dumps(names, ensure_ascii=False)}"
    tables = next((i for i, one in enumerate(lines) if re.match(r"\s*\[", one)), len(lines))
    at = next((i for i in range(tables) if re.match(r"\s*classes\s*=", lines[i])), None)
    if at is None:
        at = next((i for i in range(tables) if re.match(r"\s*#\s*classes\s*=", lines[i])), None)
    if at is None:
        lines.insert(tables, new)
    else:
        lines[at] = new
    mend = f"By hand, above the first [section]: {new}"
    write_whole(path, edited(path, lines, {**before, "classes": names}, what="classes", mend=mend))


# --- between two rounds -------------------------------------------------------------------------------


def grow(
    network: MembershipNetwork,
    ledger: Ledger,
    spec: CoordinatorSpec,
    wanted: Sequence[str],
    round: int,
) -> bool:
    """Add classes, if a party has rows of them and all agree; tell whether any was added.

    The ledger has the new agreement before any party joins it.

    Args:
        network: the parties.
        ledger: of the run.
        spec: its configuration.
        wanted: names of the classes.
        round: the round that is complete.
    """
    agreed, before = network.agreed, ledger.meta.get("classes", {})
    pending = [name for name in wanted if name not in agreed.classes]
    made, why = _considered(network, pending, spec) if pending else (None, {})
    words = {name: said for name, said in before.items() if name in agreed.classes}
    words |= {name: f"is not added yet: {reason}" for name, reason in why.items()}
    new = [] if made is None else [name for name in made.classes if name not in agreed.classes]
    words |= dict.fromkeys(new, f"was added after round {round}")
    if words == before:
        return False
    told = [f"class {name!r} {said}" for name, said in words.items() if before.get(name) != said]
    with ledger.transaction():
        ledger.note(classes=words)
        if made is not None:
            written = encode([made])
            told.append(
                f"agreed on after round {round}: classes {', '.join(made.classes)}; digest "
                f"{sha256(written).hexdigest()[:16]}"
            )
            ledger.note(agreement=written.hex(), learners=list(made.learners), grown=round, still=0)
        notes = [(spec.method.label, spec.seed, round, line) for line in told]
        ledger.write("notes", notes)
    if made is not None:
        network.take_on(made)
    return made is not None


def _considered(
    network: MembershipNetwork, pending: Sequence[str], spec: CoordinatorSpec
) -> tuple[Agreement | None, Mapping[str, str]]:
    """The agreement with those that can be added, if there are any; and why the others cannot yet."""
    agreed = network.agreed
    joined = network.described - network.excluded.keys()
    others = set(network.parties) - joined - network.banned
    try:
        _check_growing(spec, agreed, pending)
        said = network.look_in(Describe(), joined | others).of(Description)
        known = {*agreed.classes, *pending}
        fitting = [one for one in said if one.party in joined or known.issuperset(one.classes)]
        held = {name for one in fitting for name in one.classes}
        why = {
            name: "no party that is there has rows of it" for name in pending if name not in held
        }
        if not (new := [name for name in pending if name in held]):
            return None, why
        check_tolerates(fitting, spec.robustness.unaided)
    except InvalidInput as error:
        return None, dict.fromkeys(pending, error.what)
    made = with_classes(agreed, [one for one in said if one.party in joined], new)
    holders = {one.party for one in fitting if set(new).intersection(one.classes)}
    task = ConsiderClasses(classes=made.classes, new=tuple(new))
    asked = joined | holders
    refused = network.look_in(task, asked, wait_for=asked - network.excluded.keys()).missing
    if refused:
        reasons = "; ".join(f"{name}: {failure.reason}" for name, failure in refused.items())
        return None, {**why, **dict.fromkeys(new, reasons)}
    return made, why
