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
from pathlib import Path
from types import TracebackType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from consilience import Federation, Party, mean, suwa, uwa
from consilience.checks import agents, classifiers, regressors
from consilience.checks.example_parties import Cohort, same_bits
from consilience.checks.protocol import ProtocolCase
from consilience.deployment.coordinator.superlink import write_app
from consilience.messages.replies import Public
from consilience.networks import LocalNetwork
from consilience.networks.flower.network import FlowerNetwork, coordinator_app, site_app
from consilience.protocols import (
    PROTOCOLS,
    Protocol,
    Round,
    alternating_distillation,
    averaged_distillation,
    conjugate_distillation,
    ensemble_distillation,
    federated_adagrad,
    federated_adam,
    federated_averaging,
    federated_dynamics,
    federated_fusion,
    federated_proximal,
    federated_yogi,
    functional_gradient_boosting,
    iterative_distillation,
    local_only,
    parallel_distillation,
    scaffold,
)
from consilience.site import EVERYTHING, PartySite, own_secret
from consilience.transforms.compression import (
    cached_rows,
    chain,
    changed_rows,
    quantized,
    top_k,
    zstd,
)
from helpers.loopback import Loopback
from helpers.parametric import networks

# Every message starts a process that imports this file: what few need is imported where it is needed.

CODEC = chain(top_k(2), quantized(4), cached_rows(0.02, rounds=2), changed_rows(0.01), zstd())


def few(cohort: Cohort, number: int = 3) -> Cohort:
    """The first parties of a cohort."""

    def smaller() -> tuple[list[Party], Public]:
        parties, public = cohort()
        return parties[:number], public

    return smaller


def boosters(public: bool) -> Cohort:
    """Agents that boost small trees."""

    def cohort() -> tuple[list[Party], Public]:
        from consilience.learners.boosting.boosted import Boosted

        given, none = agents()
        weak = {"name": "sklearn.tree:DecisionTreeRegressor", "max_depth": 2}
        parties = [Party(p.name, Boosted(weak), p.X, p.y, test=p.test) for p in given]
        return parties, classifiers()[1] if public else none

    return few(cohort)


def kernels() -> tuple[list[Party], Public]:
    """Kernel ridge regressions, whose rows may be sent."""
    from consilience import KernelRidge

    given, _ = few(regressors)()
    model = KernelRidge(regularization=1.0)
    return [Party(p.name, model, p.X, p.y, sends_rows=True) for p in given], Public.none()


CASES: dict[str, tuple[Protocol, Cohort]] = {
    # In a ring of two; the third SuperNode is started when this is done.
    "alternating_distillation": (alternating_distillation(rounds=2), few(agents, 2)),
    "averaged_distillation": (averaged_distillation(rounds=2), few(agents)),
    "parallel_distillation": (parallel_distillation(rounds=2), few(agents)),
    "conjugate_distillation": (conjugate_distillation(rounds=2), kernels),
    "ensemble_distillation": (ensemble_distillation(aggregate=uwa(), rounds=2), few(classifiers)),
    "ensemble_distillation, by density, coded, by some": (
        ensemble_distillation(aggregate=suwa(), rounds=2, codec=CODEC, participation=2),
        few(classifiers),
    ),
    "iterative_distillation": (iterative_distillation(aggregate=mean(), rounds=2), few(regressors)),
    "local_only": (local_only(rounds=2), few(classifiers)),
    "federated_averaging": (federated_averaging(rounds=2), few(networks)),
    "federated_adagrad": (federated_adagrad(rounds=2), few(networks)),
    "federated_adam": (federated_adam(rounds=2, participation=2), few(networks)),
    "federated_yogi": (federated_yogi(rounds=2), few(networks)),
    "federated_proximal": (federated_proximal(rounds=2, strength=0.5), few(networks)),
    "federated_fusion": (federated_fusion(rounds=2), few(networks)),
    "federated_dynamics": (federated_dynamics(rounds=2, strength=1.0), few(networks)),
    "scaffold": (scaffold(rounds=2, participation=2), few(networks)),
    "functional_gradient_boosting": (
        functional_gradient_boosting(rounds=2, local_steps=2, step_size="heterogeneous", ridge=1.0),
        boosters(False),
    ),
    "functional_gradient_boosting, distilled": (
        functional_gradient_boosting(rounds=2, distill=True, step_size=4.0),
        boosters(True),
    ),
}

# --- what runs in Flower's processes --------------------------------------------------------------


class Sites:
    """The party that a node is in whatever federation asks it."""

    def __init__(self, context: Any) -> None:
        self.number = int(context.node_config["number"])
        self.home = Path(str(context.node_config["home"]))

    def __enter__(self) -> Sites:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def answer(self, request: bytes, *, federation: str, to: str | None) -> bytes:
        with site(federation, self.number, self.home) as one:
            return one.answer(request, federation=federation, to=to)


def site(name: str, number: int, home: Path) -> PartySite:
    """One party of a protocol's cohort."""

    def made() -> Party:
        parties, public = CASES[name][1]()
        parties[number].public = public
        return parties[number]

    limits = EVERYTHING.model_copy(update={"secret": True})
    return PartySite(made, home / name, limits=limits, wait=60)


def conduct(grid: Any, config: Mapping[str, Any]) -> None:
    """Run the protocols that are asked for, and write what came of each."""
    folder = Path(str(config["folder"]))
    for name in json.loads((folder / "names.json").read_text()):
        protocol, cohort = CASES[name]
        parties, public = cohort()
        network = FlowerNetwork(
            grid, nodes=len(parties), wait=300, federation=name, timeout=300, quorum=1.0
        )
        begun = time.perf_counter()
        rounds = list(Federation.over(network, public, strict=False).rounds(protocol))
        found = {
            "said": said(ProtocolCase(protocol, cohort), rounds, network),
            "rounds": rounds[-1].number,
            "exchanges": len({(d.round, d.tasks) for d in network.deliveries}),
            "left out": sum(delivery.status != "ok" for delivery in network.deliveries),
            "seconds": time.perf_counter() - begun,
        }
        part = folder / "results" / f"{name}.part"
        part.write_text(json.dumps(found))
        part.replace(folder / "results" / f"{name}.json")


client = site_app(Sites)
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
    protocol, cohort = CASES[name]
    case, (parties, public) = ProtocolCase(protocol, cohort), cohort()
    for number, party in enumerate(parties):
        party.secret = own_secret(homes(number) / name)
    network = LocalNetwork(parties, public)
    rounds = list(Federation.over(network, public, strict=False).rounds(protocol))
    differ = [] if said(case, rounds, network) == found["said"] else ["states or teachers"]
    here = network.models()
    for number, party in enumerate(parties):
        with site(name, number, homes(number)) as one:
            there = one.party()
            assert there is not None
            ours, theirs = here[party.name].learner, there.learner
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
            for number in range(started, len(CASES[name][1]()[0])):
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
    asked.add_argument("names", nargs="*", metavar="protocol", help=", ".join(CASES))
    given = asked.parse_intermixed_args()
    if unknown := set(given.names).difference(CASES):
        asked.error(f"there is no {min(unknown)}")
    if absent := set(PROTOCOLS).difference(name.partition(",")[0] for name in CASES):
        sys.exit(f"not among those that are run: {', '.join(sorted(absent))}")
    folder, start = given.folder.resolve(), time.monotonic()
    names = [name for name in CASES if not given.names or name in given.names]
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
