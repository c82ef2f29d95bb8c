"""Time a round between machines, against Flower's own round trip of as many messages and bytes.

    python benchmarks/deployed_round.py [FOLDER]     # a new one, for its logs; five to ten minutes

Two runs on this machine take turns, each with a SuperLink and two SuperNodes. In one, rounds of ensemble
distillation: two exchanges each, answered as ``consilience party start`` has them answered. In the other a
ClientApp that imports flwr alone, in a new process for each message as Flower has it, and answers with as
many bytes as a party did, asked as often: with Flower's ``send_and_receive``, which looks for answers every
3 s, and with its ``push_messages`` and ``pull_messages``, looking as often as consilience does.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from consilience import Party, ensemble_distillation, uwa
from consilience.core.checks.example_models import Linear
from consilience.core.federation.federation import federation_over
from consilience.core.messages.schema import Public
from consilience.sites.party import EVERYTHING, PartySite
from consilience.sites.party.process import write_programs
from consilience.sites.transport.flower.client_app import site_app
from consilience.sites.transport.flower.forks import answer_in_forks
from consilience.sites.transport.flower.network import FlowerNetwork, Waits
from consilience.sites.transport.flower.server_app import coordinator_app
from consilience.sites.transport.superlink import write_app
from helpers.party_sites import NodeSites

PARTIES, REPEATS = 2, 5
OURS = {"numpy": "a model of ours in numpy", "sklearn": "scikit-learn's logistic regression"}
BARE = {"waits": "Flower, send_and_receive", "looks": f"Flower, looking every {Waits().poll} s"}

MODULE = """\
import deployed_round

client = deployed_round.client
server = deployed_round.server
"""

# Flower reads which names there are without running it, so they stand here.
BARE_MODULE = """\
import json
import time
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()


def packed(size, answer=0):
    array = Array(dtype="uint8", shape=(size,), stype="bare", data=bytes(size))
    records = {"bare": ArrayRecord({"bare": array})}
    if answer:
        records["wanted"] = ConfigRecord({"bytes": answer})
    return RecordDict(records)


@client.query()
def respond(message, context):
    return Message(packed(int(message.content["wanted"]["bytes"])), reply_to=message)


def looked_for(grid, messages, every):
    waiting, found = set(grid.push_messages(messages)), []
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            found.append(reply)
        if waiting:
            time.sleep(every)
    return found


@server.main()
def main(grid, context):
    folder = Path(str(context.run_config["folder"]))
    while (turn := folder / "bare.turn") and not (folder / "end").exists():
        if not turn.exists():
            time.sleep(0.1)
            continue
        asked = json.loads(turn.read_text())
        turn.unlink()
        begun = time.perf_counter()
        for exchange in asked["exchanges"]:
            nodes = sorted(node.node_id for node in grid.get_nodes())
            messages = [
                Message(packed(down, up), node, MessageType.QUERY, ttl=300.0)
                for node, (down, up) in zip(nodes, exchange, strict=True)
            ]
            if asked["how"] == "waits":
                found = list(grid.send_and_receive(messages, timeout=300))
            else:
                found = looked_for(grid, messages, asked["every"])
            sizes = sorted(len(one.content["bare"]["bare"].data) for one in found)
            assert sizes == sorted(up for _, up in exchange)
        seconds = time.perf_counter() - begun
        (folder / "bare.part").write_text(json.dumps(seconds))
        (folder / "bare.part").replace(folder / "bare.said")
"""


def party_of(kind: str, number: int) -> Party:
    """A party with 600 rows of 64 numbers, 10 classes."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(600, 64))
    y = X[:, :10].argmax(axis=1)
    party = Party("ab"[number], Linear() if kind == "numpy" else "logistic-regression", X, y)
    party.hold_public(public_rows())
    return party


def public_rows() -> Public:
    """450 rows."""
    return Public(np.random.default_rng(9).normal(size=(450, 64)))


def site(federation: str, number: int, home: Path) -> PartySite:
    """One party of a federation that is named after its kind of model."""
    made: Callable[[], Party] = lambda: party_of(federation, number)  # noqa: E731
    return PartySite(made, home / federation, limits=EVERYTHING, wait=60)


def conduct(grid: Any, config: Mapping[str, Any]) -> None:
    """A round of the federation that has its turn, and what it exchanged."""
    folder = Path(str(config["folder"]))
    begun = {}
    for kind in OURS:
        network = FlowerNetwork(
            grid, nodes=PARTIES, wait=300, federation=kind, timeout=300, quorum=1.0
        )
        federation = federation_over(network, public_rows(), strict=False)
        rounds = federation.rounds(ensemble_distillation(aggregate=uwa(), rounds=REPEATS + 1))
        next(rounds), next(rounds)  # joining, and the first training
        begun[kind] = (network, rounds)
    (folder / "ready").touch()
    turn = folder / "ours.turn"
    while not (folder / "end").exists():
        if not turn.exists():
            time.sleep(0.1)
            continue
        network, rounds = begun[json.loads(turn.read_text())["how"]]
        turn.unlink()
        network.deliveries.clear()
        start = time.perf_counter()
        next(rounds)
        seconds = time.perf_counter() - start
        exchanges: dict[str, list[tuple[int, int]]] = {}
        for one in network.deliveries:
            assert one.status == "ok", one
            exchanges.setdefault(one.tasks, []).append((one.bytes_down, one.bytes_up))
        said = {"seconds": seconds, "exchanges": list(exchanges.values())}
        (folder / "ours.part").write_text(json.dumps(said))
        (folder / "ours.part").replace(folder / "ours.said")


client = site_app(lambda context: NodeSites(context, site))
server = coordinator_app(conduct)


def answer_messages() -> None:
    """Take the place of a party's program of this name, with the parties of this file."""
    answer_in_forks(client)


def main() -> None:
    """Start all, let both runs take turns, and write the page."""
    from page import write

    from helpers.flower_loopback import Loopback

    folder = Path(sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp()).resolve()
    places = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")])
    took: dict[str, list[float]] = {how: [] for how in (*OURS, *BARE)}
    with Loopback(folder / "of-ours") as our, Loopback(folder / "of-flower") as their:
        loopbacks = {"ours": our, "bare": their}
        programs = write_programs(our.folder / "bin")
        program = programs / "flower-superexec"
        text = program.read_text()
        program.write_text(
            text.replace("consilience.sites.transport.party_app", Path(__file__).stem)
        )
        for number in range(PARTIES):
            our.supernode(number, programs)
            their.supernode(number)
        runs = {}
        for name, module in (("ours", MODULE), ("bare", BARE_MODULE)):
            app = write_app(folder / name)
            (app / "deployed.py").write_text(module)
            project = (app / "pyproject.toml").read_text()
            (app / "pyproject.toml").write_text(project.replace("-federation", f"-{name}"))
            runs[name] = loopbacks[name].submit(app, f'folder="{folder}"')
        assert our.wait((folder / "ready").exists, runs["ours"])

        def said(name: str, asked: Mapping[str, Any]) -> Any:
            part, answer = folder / f"{name}.asked", folder / f"{name}.said"
            part.write_text(json.dumps(asked))
            part.replace(folder / f"{name}.turn")
            assert loopbacks[name].wait(answer.exists, runs[name])
            found = json.loads(answer.read_text())
            answer.unlink()
            return found

        for _ in range(REPEATS):
            for how in OURS:
                found = said("ours", {"how": how})
                took[how].append(found["seconds"])
            for how in BARE:
                asked = {"how": how, "every": Waits().poll, "exchanges": found["exchanges"]}
                took[how].append(said("bare", asked))
            print({how: round(seconds[-1], 1) for how, seconds in took.items()}, flush=True)
        (folder / "end").touch()
    middle = {how: statistics.median(seconds) for how, seconds in took.items()}
    exchanges = [
        [f"{down:,} B down, {up:,} B up" for down, up in one] for one in found["exchanges"]
    ]
    lines = [
        f"{PARTIES} parties, 450 public rows, 10 classes. A round is {len(exchanges)} exchanges, for each",
        f"party {' and '.join(one[0] for one in exchanges)}. {REPEATS} rounds of each kind in turns, on",
        "two grids (one SuperLink, two SuperNodes each, plain loopback); medians, and the extremes.",
        f"The load of the machine meanwhile: {os.getloadavg()[-1]:.0f} on {os.cpu_count()} cores.",
        "",
        "| a round of | seconds | from, to | over send_and_receive | over looking as often |",
        "|---|---|---|---|---|",
    ]
    for how, title in (OURS | BARE).items():
        ratios = " | ".join(f"{middle[how] / middle[bare]:.2f}" for bare in BARE)
        spread = f"{min(took[how]):.1f}, {max(took[how]):.1f}"
        lines.append(f"| {title} | {middle[how]:.1f} | {spread} | {ratios} |")
    write(__file__, lines)


if __name__ == "__main__":
    main()
