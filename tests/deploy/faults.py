"""Kill what can be killed, at random moments, and see that nothing is lost.

    python tests/deploy/faults.py FOLDER [--seed S] [party|site|superlink|coordinator|all|cut …]

One deployed federation of four hospitals; each fault hits while another round goes on, at a random moment. At
the end the models are compared with those of an undisturbed federation in one process: they are the same bit
for bit where nobody was left out of a round.

    party        SIGKILL of a SuperNode; the party starts another
    site         SIGKILL of all that a party runs; it is started again by hand
    superlink    SIGKILL of the SuperLink; the coordinator starts another
    coordinator  SIGKILL of the coordinator's own process; resumed by hand
    all          SIGKILL of everything at once; all is started again by hand
    cut          the coordinator does not answer anyone for 30 s
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from command_line import shell
from deployed import Deployed, kill

FAULTS = ("party", "site", "superlink", "coordinator", "all", "cut")


def hurt(deployed: Deployed, fault: str, chance: random.Random) -> None:
    """One fault, and what somebody would do about it."""
    name = chance.choice(deployed.names)
    owner, *rest = deployed.of_coordinator()
    if fault == "party":
        kill(*deployed.of_party(name)[1:])
    elif fault == "site":
        kill(*deployed.of_party(name))
        deployed.start(name)
    elif fault == "superlink":
        kill(*rest)
    elif fault == "cut":
        os.kill(owner, signal.SIGSTOP)
        time.sleep(30)
        os.kill(owner, signal.SIGCONT)
    else:
        if fault == "all":
            kill(*(pid for one in deployed.names for pid in deployed.of_party(one)))
        kill(owner, *(rest if fault == "all" else ()))
        if fault == "all":
            deployed.start()
        deployed.said("coordinator", "resume", deployed.center, "--detach")


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("faults", nargs="*", default=FAULTS)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    chance, start = random.Random(given.seed), time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {line}", flush=True)

    with Deployed(given.folder, rounds=len(given.faults) + 1) as deployed:
        deployed.start()
        deployed.said("coordinator", "start", deployed.center, "--detach")
        for number, fault in enumerate(given.faults):
            found = deployed.wait(round=number)
            moment = chance.uniform(0, 20)
            time.sleep(moment)
            say(f"round {found['round']} is kept; {fault}, {moment:.0f} s into the next")
            hurt(deployed, fault, chance)
        found = deployed.wait()
        say(f"done, round {found['round']} of {found['rounds']}")
        left_out = {one["party"]: one["left_out"] for one in found["parties"] if one["left_out"]}
        for party in found["parties"]:
            if party["left_out"]:
                say(f"{party['party']} was left out {party['left_out']} times: {party['why']}")
        print(shell("coordinator", "status", deployed.center).stdout)
    different = deployed.different()
    say(f"models that differ from an undisturbed run: {different or 'none'}")
    sys.exit(1 if different and not left_out else 0)


if __name__ == "__main__":
    main()
