"""A ``coordinator.toml`` to be filled in, as ``consilience coordinator init`` writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from consilience.core.errors import InvalidInput, command
from consilience.core.federation.forming import borne
from consilience.lab.config.sections import check_address, write_new
from consilience.sites.coordinator.configuration import CONFIGURATION
from consilience.sites.operations.certificates import make_authority, require_cryptography
from consilience.sites.operations.invitation import NAMES, PLAIN, check_party_name

TEMPLATE = """\
# The coordinator of a federation. File names are relative to this file.
# When all is filled in:  {start}

name = {name}                     # of the federation; parties may limit themselves to it
address = {address}       # where the parties reach it: HOST:PORT, the host that the certificate is for
# listen = "0.0.0.0"              # where to listen, if that is another host, or HOST:PORT behind a proxy
public = "public.csv"             # rows without labels; a party that has no file of them is sent them once
seed = 0                          # with the secrets that parties keep, the same seed gives the same models
timeout = 600                     # seconds a party may take to answer
quorum = 0.5                      # share of the parties that must answer, or how many of them
wait = 600                        # seconds to wait for the parties at the start
metrics = 2                       # how often to measure, where a party's limits allow it: before and after

[method]
aggregate = "auto"                # asks for no more than all parties' limits let leave; consilience list
                                  # methods; without public rows: protocol = "scaffold"

[protocol]
name = "ensemble_distillation"    # consilience list protocols
rounds = 3

# [pace]                          # share, grace, age, early_stop: rounds that do not wait for the late

# Without labelled rows a class that h parties hold bears (h - 1) // 2 malicious ones: {most} of {count} at
# most, and none for a class with one or two holders. For these give ten labelled rows that no party has:
# [robustness]
# secret_labels = "root.csv"
# label = "label"                 # its column of labels

# Filled in by "consilience coordinator invite" and "add"; or by hand, with the line that "consilience party
# key party.toml" prints at each.
[parties]
{parties}
"""
"""What ``consilience coordinator init`` writes."""


def write_coordinator(folder: Path, parties: Sequence[str], address: str) -> Path:
    """Write a ``coordinator.toml`` with comments, and ``tls/`` with a private CA and a server certificate.

    Args:
        folder: the coordinator's; made if need be.
        parties: names of the parties.
        address: host and port where the parties will reach it.

    Returns:
        The path of the file.

    Raises:
        InvalidInput: there is one already, no parties, or the folder cannot be written.
    """
    path = folder / CONFIGURATION
    twice = sorted({name for name in parties if parties.count(name) > 1})
    if twice or not all(parties) or not parties:
        what = f"two parties are called {twice[0]!r}" if twice else "a name is empty"
        if not any(parties):
            what = "there are no parties"
        raise InvalidInput(what, where="--parties", mend="Give names with commas between: a,b,c.")
    for name in parties:
        check_party_name(name, where="--parties")
    federation = folder.resolve().name
    if not re.fullmatch(PLAIN, federation):
        raise InvalidInput(
            f"{federation!r} is no name of a federation, which is called as its folder",
            where=str(folder),
            mend=f"Give a folder whose name has {NAMES} alone, 100 at most.",
        )
    try:
        host = check_address(address).rpartition(":")[0]
    except ValueError as error:
        raise InvalidInput(str(error), where="--address") from error
    require_cryptography()  # where it is not installed, nothing is made
    write_new(
        path,
        TEMPLATE.format(
            start=command("coordinator", "start", folder),
            name=json.dumps(federation),
            address=json.dumps(address),
            count=len(parties),
            most=borne(len(parties)),
            parties="\n".join(f'{json.dumps(name)} = ""' for name in parties),
        ),
    )
    make_authority(folder / "tls", host)
    return path
