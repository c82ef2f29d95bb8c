"""Secure sums between processes over TLS: every rule that hospitals may be asked for, and kills.

    python tests/deploy/sums.py FOLDER [RULE …] [kills] [back]

Four hospitals as processes of their own, with a roster each and answers in sums alone; their SuperNodes look
for messages four times a second. Of each rule a run of one round: its models are compared with those of one
process under masks, bit for bit, and its teacher, or parameters, with those of one process without masks,
which may differ by the fixed point that docs/howto/secure-sums.md states. Where parties add noise, they add
in one process what they have released.

``kills``: a hospital is killed by SIGKILL right after it has answered each of the four steps, which is before
the next one; then the coordinator. Models are compared afterwards. ``back``: a hospital comes back with the
state of an earlier round, and the run ends. Three of four open a sum, and all sums are over the hospitals of
the first one: a run whose hospital is too late for a step ends with its name, and is resumed with it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parents[1]))

from consilience.core.messages.wire import decode
from consilience.core.protocols.rounds import SECURE
from consilience.lab.config.methods import PROTOCOLS
from consilience.sites.coordinator.configuration import read_coordinator
from consilience.sites.party.privacy_limits import spending
from helpers.deployed_example import Deployed, kill, look_often, read_party

STEPS = ("OpenSum", "ShareSecrets", "SumMasked", "OpenMasks")
LOOKS = 0.25
MILLIONTH = 2.0**-20


@dataclass(frozen=True)
class Hospitals:
    """Hospitals that some rules are for.

    Attributes:
        rules: aggregator or protocol to how far its teacher may be off.
        models: of the hospitals.
        kind: of their targets.
        limits: of the hospitals, beside the masks.
        settings: lines of the secure sums.
        options: of the protocol.
    """

    rules: dict[str, float]
    models: tuple[str, ...] = ("naive-bayes", "logistic-regression", "decision-tree", "knn")
    kind: str = "classification"
    limits: str = ""
    settings: str = ""
    options: str = ""


HOSPITALS = {
    "classes": Hospitals(
        {
            **dict.fromkeys(("avg", "vote"), 0.0),
            **dict.fromkeys(("count-weighted", "coarse-density-ratio"), 2.0**-23),
            **dict.fromkeys(("era", "enhanced-era", "entropy", "mean-logits"), MILLIONTH),
            **dict.fromkeys(("certainty", "selective", "uwa", "suwa"), MILLIONTH),
        },
        limits="\n[limits.density_ratios]\n",
    ),
    "values": Hospitals(
        {"mean": MILLIONTH, "weighted-mean": MILLIONTH},
        models=("ridge", "tree-regressor", "knn-regressor"),
        kind="regression",
    ),
    "parameters": Hospitals(
        {
            "federated_averaging": MILLIONTH,
            "federated_proximal": MILLIONTH,
            "federated_adagrad": MILLIONTH,
            "federated_yogi": MILLIONTH,
            "federated_adam": MILLIONTH,
        },
        models=("mlp",),
        limits='allow = ["predictions", "parameters"]\n',
        options='initial = "initial.safetensors"\n',
    ),
    "own-noise": Hospitals({"private_sums": 0.0}, limits="epsilon = 5.0\n"),
    "shared-noise": Hospitals(
        {"private_sums": 0.0},
        limits='epsilon = 1.0\nnoise = "shared"\n',
        settings="epsilon = 1.0\n",
    ),
}


def prepared(folder: Path, hospitals: Hospitals) -> Deployed:
    """Four hospitals, with a roster each, and a coordinator that asks for sums."""
    deployed = Deployed(folder, rounds=1)
    limits = f"masks = true\nrequests = 100\n{hospitals.limits}"
    deployed.simplify(*hospitals.models, kind=hospitals.kind, limits=limits)
    center = deployed.center / "coordinator.toml"
    text = center.read_text()
    roster = text[text.index("[parties]") :].replace("[parties]", "[roster]")
    sums = f"[protocol.secure_aggregation]\n{hospitals.settings}\n[parties]"
    text = text.replace("[parties]", sums).replace("metrics = 2", "metrics = 0")
    text = text.replace("rounds = 1", f"rounds = 1\n{hospitals.options}")
    center.write_text(text)
    for name in deployed.names:
        own = deployed.party(name)
        own.write_text(f"{own.read_text()}\n{roster}")
    return deployed


def ask_for(deployed: Deployed, rule: str, seed: int, rounds: int = 1) -> None:
    """Have the coordinator run a rule."""
    kind = "protocol" if rule in PROTOCOLS else "aggregate"
    path = deployed.center / "coordinator.toml"
    section = f'[method]\n{kind} = "{rule}"\n\n[protocol]\n'
    text = re.sub(r"\[method\]\n.*?\[protocol\]\n", section, path.read_text(), flags=re.DOTALL)
    name = rule if rule in PROTOCOLS else "ensemble_distillation"
    path.write_text(re.sub(r"(\[protocol\]\nname = )\S+", rf'\1"{name}"', text))
    deployed.changed(seed=str(seed), rounds=str(rounds))
    shutil.rmtree(deployed.center / "run", ignore_errors=True)


def draw_initial(deployed: Deployed) -> None:
    """Write first parameters, which no hospital sends, from a run in this process."""
    spec = read_coordinator(deployed.center)
    protocol = spec.make_protocol().with_options(**{SECURE: None, "initial": None, "rounds": 1})
    for name in deployed.names:
        read_party(deployed.party(name)).state.mkdir(mode=0o700, exist_ok=True)
    members, _ = deployed.in_one_process(protocol)
    parameters = members[deployed.names[0]].trainer.learner.parameters()
    save_file(parameters, deployed.center / "initial.safetensors")


def off_without_masks(deployed: Deployed) -> tuple[float, float]:
    """How far the teacher, or the parameters, and the models' answers are from those without masks."""
    spec = read_coordinator(deployed.center)
    protocol = spec.make_protocol().with_options(**{SECURE: None})
    members, last = deployed.in_one_process(protocol)
    with deployed.ledger() as ledger:
        _, written = ledger.last_checkpoint(spec.method.label, spec.seed)
    (state,) = decode(written)
    teacher = 0.0
    for here, there in (
        (last.state.consensus, state.consensus),
        (last.state.memory.get("parameters"), state.memory.get("parameters")),
    ):
        if here is not None:
            teacher = max(teacher, float(np.abs(here - there).max()))
    rows = spec.rows().X
    answers = [
        np.abs(
            here.trainer.learner.predict(rows) - deployed.answers_of(name, rows)["predict"]
        ).max()
        for name, here in members.items()
    ]
    return teacher, float(max(answers))


def by_rules(deployed: Deployed, hospitals: Hospitals, rules: Sequence[str]) -> bool:
    """A run of one round for each rule; by hospitals made anew, for all sums of a party are of one rule."""
    wrong = False
    for seed, rule in enumerate(rules):
        begun = time.monotonic()
        for name in deployed.names:
            shutil.rmtree(deployed.folder / name / "state", ignore_errors=True)
        ask_for(deployed, rule, seed)
        if hospitals.options and not (deployed.center / "initial.safetensors").exists():
            draw_initial(deployed)
        deployed.start()
        deployed.said("coordinator", "start", deployed.center, "--detach")
        deployed.wait(seconds=900)
        spent = time.monotonic() - begun
        deployed.said("coordinator", "stop", deployed.center)
        deployed.stop()
        left, differ = deployed.left_out(), deployed.different()
        off, said = "", ""
        if "shared" in hospitals.limits:  # without masks they release nothing
            for name in deployed.names:
                own = read_party(deployed.party(name))
                charged = spending(own.state, own.limits)["spent"]
                wrong |= charged != "epsilon 1, add-remove of one row"
                said = f"every hospital is charged {charged}"
        else:
            teacher, answers = off_without_masks(deployed)
            wrong |= teacher > hospitals.rules[rule]
            off, said = f"{teacher:.1e}", f"{answers:.1e}"
        wrong |= bool(left or differ)
        noise = "own noise" if hospitals.limits.startswith("epsilon = 5") else "shared noise"
        shown = f"{rule}, {noise}" if "epsilon" in hospitals.limits else rule
        same = ", ".join(differ) or "none"
        print(f"| {shown} | {spent:.0f} | {len(left)} | {same} | {off} | {said} |", flush=True)
    return wrong


def logged(deployed: Deployed, name: str) -> list[tuple[int, str]]:
    """Round and tasks of all answers that a party has logged."""
    lines = (deployed.folder / name / "state" / "audit.jsonl").read_text().splitlines()
    said = [json.loads(line) for line in lines]
    return [(one["round"], one["tasks"]) for one in said if one.get("status") in ("ok", "repeated")]


def after(deployed: Deployed, name: str, step: str, seconds: float = 600) -> None:
    """Wait until a party's next answer to a step is in its log."""
    begun, until = len(logged(deployed, name)), time.monotonic() + seconds
    while not (new := logged(deployed, name)[begun:]) or step not in new[-1][1].split("+"):
        assert time.monotonic() < until, f"no {step} of {name}"
        time.sleep(0.02)


def begun(deployed: Deployed, seed: int) -> None:
    """A run of many rounds, of which one is kept."""
    ask_for(deployed, "avg", seed, rounds=1000)
    deployed.start()
    deployed.said("coordinator", "start", deployed.center, "--detach")
    deployed.wait(round=0, seconds=900)


def compared(deployed: Deployed) -> bool:
    """End the run, and compare models; says who was left out."""
    deployed.ended()
    for (party, number, tasks), why in sorted(deployed.left_out().items()):
        print(f"  left out: {party}, round {number}, {tasks}: {why}")
    differ = deployed.different()
    print(f"models that differ from those of one process: {', '.join(differ) or 'none'}")
    deployed.stop()
    return bool(differ)


def by_kills(deployed: Deployed, say: Callable[[str], None]) -> bool:
    """Kills after each step, and of the coordinator."""
    begun(deployed, 98)
    names = list(deployed.names)
    for name, step in zip(names, STEPS, strict=True):
        after(deployed, name, step)
        kill(*deployed.of_party(name))
        kept = deployed.kept()
        deployed.start(name)
        deployed.wait(round=kept + 2, seconds=900)
        say(f"{name} was killed after {step}; round {deployed.kept()} is kept")
    owner, *_ = deployed.of_coordinator()
    after(deployed, names[0], "SumMasked")
    kill(owner)
    kept = deployed.kept()
    deployed.said("coordinator", "resume", deployed.center, "--detach")
    deployed.wait(round=kept + 2, seconds=900)
    say(f"the coordinator was killed after SumMasked; round {deployed.kept()} is kept")
    return compared(deployed)


def by_return(deployed: Deployed, say: Callable[[str], None]) -> bool:
    """A hospital that comes back with the state of an earlier round: the run ends with its name."""
    begun(deployed, 99)
    name = deployed.names[1]
    state, old = deployed.folder / name / "state", deployed.folder / "old"
    after(deployed, name, "Distill")
    deployed.stop(name)
    shutil.copytree(state, old, ignore=shutil.ignore_patterns("flower"), symlinks=True)
    deployed.start(name)
    deployed.wait(round=deployed.kept() + 2, seconds=900)
    after(deployed, name, "ShareSecrets")
    deployed.stop(name)
    shutil.rmtree(state)
    shutil.copytree(old, state, symlinks=True)
    deployed.start(name)
    outcome, until = deployed.center / "run" / "outcome.json", time.monotonic() + 900
    while not outcome.exists():
        assert time.monotonic() < until, "the run goes on"
        time.sleep(1)
    what = json.loads(outcome.read_text())["what"]
    say(f"{name} came back with an old state; the run ended: {what}")
    deployed.stop()
    return f"{name} of the parties of the first sum" not in what


def main() -> None:
    """The command line."""
    rules = {rule: group for group, one in HOSPITALS.items() for rule in one.rules}
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("parts", nargs="*", metavar="part", help=f"kills; back; {', '.join(rules)}")
    given = asked.parse_args()
    if unknown := {*given.parts}.difference(("kills", "back", *HOSPITALS, *rules)):
        asked.error(f"there is no {min(unknown)}")
    start, wrong = time.monotonic(), False

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {line}", flush=True)

    given.folder.mkdir()
    look_often(given.folder / "often", LOOKS)
    parts = given.parts or [*HOSPITALS, "kills", "back"]
    for group, hospitals in HOSPITALS.items():
        if some := [one for one in hospitals.rules if {one, group} & {*parts}]:
            with prepared(given.folder / group, hospitals) as deployed:
                wrong |= by_rules(deployed, hospitals, some)
    for part, hurt in {"kills": by_kills, "back": by_return}.items():
        if part in parts:
            with prepared(given.folder / part, HOSPITALS["classes"]) as deployed:
                wrong |= hurt(deployed, say)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
