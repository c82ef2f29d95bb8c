"""Every protocol over Flower's own processes, and the same in one process: the same bits.

    python tests/deploy/protocols.py FOLDER [--minutes M] [protocol …]

One SuperLink and three SuperNodes on this machine, two rounds of each protocol one after another; then the
states and teachers of all rounds and the models that the parties hold are compared with those of one process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from consilience import Party
from consilience.core.checks import PROTOCOL_CASES, ProtocolCase
from consilience.core.checks.example_parties import first_parties
from consilience.core.checks.expectations import same_bits
from consilience.core.federation.federation import federation_over
from consilience.core.networks import LocalNetwork
from consilience.core.protocols import Round
from consilience.sites.party import EVERYTHING, PartySite, own_secret
from consilience.sites.transport.flower.client_app import site_app
from consilience.sites.transport.flower.network import FlowerNetwork
from consilience.sites.transport.flower.server_app import coordinator_app
from consilience.sites.transport.superlink import write_app
from helpers.flower_loopback import Loopback
from helpers.party_rules import set_keys
from helpers.party_sites import NodeSites

# Every message starts a process that imports this file: what few need is imported where it is needed.

PARTIES = 3

USUAL = [
    # Alternating distillation is first: the third SuperNode is started when its ring of two is done.
    *sorted(
        (name for name in PROTOCOL_CASES if "," not in name),
        key=lambda n: (n[:11] != "alternating", n),
    ),
    "ensemble_distillation, compressed, by some",
    "functional_gradient_boosting, distilled",
]
"""What is run where nothing is asked for."""


def small(name: str) -> ProtocolCase:
    """An example with two rounds and three parties."""
    case = PROTOCOL_CASES[name]
    # In a ring of two; the third SuperNode is started when this is done.
    ring = case.protocol.name == "alternating_distillation"
    return replace(
        case,
        protocol=case.protocol.with_options(rounds=2),
        parties=first_parties(case.parties, 2 if ring else PARTIES),
    )


# --- what runs in Flower's processes --------------------------------------------------------------


def site(name: str, number: int, home: Path) -> PartySite:
    """One party of an example."""

    def made() -> Party:
        parties, public = small(name).parties()
        parties[number].hold_public(public)
        return parties[number]

    limits = EVERYTHING.model_copy(update={"secret": True})
    return PartySite(made, home / name, limits=limits, wait=60)


def conduct(grid: Any, config: Mapping[str, Any]) -> None:
    """Run the protocols that are asked for, and write what came of each."""
    folder = Path(str(config["folder"]))
    for name in json.loads((folder / "names.json").read_text()):
        case = small(name)
        parties, public = case.parties()
        network = FlowerNetwork(
            grid, nodes=len(parties), wait=300, federation=name, timeout=300, quorum=1.0
        )
        begun = time.perf_counter()
        rounds = list(federation_over(network, public, strict=False).rounds(case.protocol))
        found = {
            "said": said(case, rounds, network),
            "rounds": rounds[-1].number,
            "exchanges": len({(d.round, d.tasks) for d in network.deliveries}),
            "left out": sum(delivery.status != "ok" for delivery in network.deliveries),
            "seconds": time.perf_counter() - begun,
        }
        part = folder / "results" / f"{name}.part"
        part.write_text(json.dumps(found))
        part.replace(folder / "results" / f"{name}.json")


client = site_app(lambda context: NodeSites(context, site))
server = coordinator_app(conduct)

MODULE = """\
import protocols

client = protocols.client
server = protocols.server
"""
"""What Flower is given in place of the deployment's own app."""

# --- what starts them and compares ----------------------------------------------------------------


def said(case: ProtocolCase, rounds: list[Round], network: Any) -> list[str]:
    """A digest of every state and every teacher."""
    result = case.result(rounds, network)
    teachers = [b"" if r.teacher is None else r.teacher.values.tobytes() for r in rounds]
    return [hashlib.sha256(part).hexdigest() for part in (*result.states, *teachers)]


def different(name: str, found: Mapping[str, Any], homes: Callable[[int], Path]) -> list[str]:
    """What is not as it is in one process."""
    case = small(name)
    parties, public = case.parties()
    for number, party in enumerate(parties):
        set_keys(party, secret=own_secret(homes(number) / name))
    network = LocalNetwork(parties, public)
    rounds = list(federation_over(network, public, strict=False).rounds(case.protocol))
    differ = [] if said(case, rounds, network) == found["said"] else ["states or teachers"]
    here = network.models()
    for number, party in enumerate(parties):
        with site(name, number, homes(number)) as one:
            there = one.party()
            assert there is not None
            ours, theirs = here[party.name].learner, there.trainer.learner
            if not same_bits(ours.predict(case.inputs), theirs.predict(case.inputs)):
                differ.append(f"the model of {party.name}")
    return differ


def deploy(
    folder: Path, names: list[str], minutes: float, report: Callable[[str], None]
) -> list[str]:
    """Run protocols by name over a SuperLink and three SuperNodes, and stop them; gives those that ended."""
    until = time.monotonic() + 60 * minutes
    ours = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    os.environ["PYTHONPATH"] = os.pathsep.join([*ours, os.environ.get("PYTHONPATH", "")])
    (folder / "results").mkdir(parents=True)
    (folder / "names.json").write_text(json.dumps(names))
    app = write_app(folder / "app")
    (app / "deployed.py").write_text(MODULE)
    with Loopback(folder) as loopback:
        run, started = loopback.submit(app, f'folder="{folder}"'), 0
        for name in names:
            for number in range(started, len(small(name).parties()[0])):
                loopback.supernode(number)
                started = number + 1
            done = (folder / "results" / f"{name}.json").exists
            if not loopback.wait(done, run, seconds=until - time.monotonic()):
                return names[: names.index(name)]
            report(name)
    return names


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument(
        "--minutes", type=float, default=120.0, help="what has not ended is left out"
    )
    asked.add_argument("names", nargs="*", metavar="protocol", help="; ".join(PROTOCOL_CASES))
    given = asked.parse_intermixed_args()
    if unknown := set(given.names).difference(PROTOCOL_CASES):
        asked.error(f"there is no {min(unknown)}")
    folder, start = given.folder.resolve(), time.monotonic()
    names = given.names or USUAL
    ended = deploy(
        folder,
        names,
        given.minutes,
        lambda name: print(f"{time.monotonic() - start:6.0f} s  {name}", flush=True),
    )
    print("\n| protocol | rounds | exchanges | seconds an exchange | left out | differs |")
    print("|---|---|---|---|---|---|")
    wrong = ended != names
    for name in ended:
        found = json.loads((folder / "results" / f"{name}.json").read_text())
        differ = different(name, found, lambda number: folder / "parties" / str(number))
        wrong |= bool(differ or found["left out"])
        each = found["seconds"] / found["exchanges"]
        counts = f"{found['rounds']} | {found['exchanges']} | {each:.1f} | {found['left out']}"
        print(f"| {name} | {counts} | {', '.join(differ) or 'nothing'} |")
    sys.exit(wrong)


if __name__ == "__main__":
    main()
