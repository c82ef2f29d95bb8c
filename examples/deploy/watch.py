"""A federation that grows and shrinks, followed on its live page from before the start to the last round.

    python examples/deploy/watch.py FOLDER [PICTURES]

prepares what ``run.py`` beside it prepares, for three hospitals, one of whom does not take part yet. With the
page of the coordinator open in Chromium it starts the coordinator and two hospitals, invites the third after
round 1, and removes the second once the third takes part; the run goes on in the processes it began with.
It waits until all of that was seen on the page, takes pictures of it and of a hospital's, on a desktop and on
a phone, light and dark, into PICTURES (by default FOLDER), and says what the pages cost. It takes a Chromium
on the path and playwright.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import psutil
from playwright.sync_api import Browser, sync_playwright
from run import COMMAND, consilience, prepare

ROUNDS = 12
STAYS, LEAVES, COMES = "hungarian", "cleveland", "switzerland"
SIZES = {"desktop": (1120, 800), "phone": (390, 800)}
PATIENCE = 600_000
"""Milliseconds that a round may take."""


def main() -> None:
    """The command line."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder, pictures = Path(sys.argv[1]), Path(sys.argv[-1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is stopped then too
    prepare(folder, hospitals=(STAYS, LEAVES, COMES), rounds=ROUNDS)
    center, own = folder / "coordinator", folder / STAYS / "party.toml"
    consilience("coordinator", "remove", center, COMES)
    often = f"metrics = {ROUNDS + 1}"
    replace(center / "coordinator.toml", r"^metrics = .*", often)
    for name in (STAYS, LEAVES, COMES):
        limits = f"[limits]\n{often}\nmetrics_in_all = {ROUNDS + 1}"
        replace(folder / name / "party.toml", r"^\[limits\]", limits)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with ExitStack() as stack:
        pages = {
            "coordinator": serve(stack, "coordinator", center),
            "party": serve(stack, "party", own),
        }
        made = stack.enter_context(sync_playwright())
        browser = made.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        stack.callback(browser.close)
        page = browser.new_page()
        page.goto(pages["coordinator"][1])
        begun = time.monotonic()

        def see(text: str) -> None:
            page.get_by_text(text).first.wait_for(state="attached", timeout=PATIENCE)
            print(f"{time.monotonic() - begun:6.1f} s  on the page: {text}", flush=True)

        see("no run")
        start_party(stack, folder, STAYS)
        start_party(stack, folder, LEAVES)
        stack.callback(consilience, "coordinator", "stop", center, check=False)
        consilience("coordinator", "start", center, "--detach")
        processes = pids(folder)
        for text in ("running", "Asked now", *(f"Round {n} of {ROUNDS} is kept" for n in range(2))):
            see(text)
        invite(folder, COMES)
        start_party(stack, folder, COMES)
        see(f"{COMES} was added after round")
        page.get_by_text(re.compile(r"accuracy [\d.]+ after")).nth(2).wait_for(timeout=PATIENCE)
        see("Asked now, in round")
        take(browser, "coordinator", pages["coordinator"][1], pictures)
        consilience("coordinator", "remove", center, LEAVES)
        see(f"{LEAVES} was removed after round")
        see(f"Round {ROUNDS} of {ROUNDS} is kept")
        see("done")
        assert pids(folder) == processes, "something was started anew"
        print(f"the processes of the coordinator and {STAYS} are those of the start: {processes}")
        take(browser, "party", pages["party"][1], pictures)
        for name, (process, address) in pages.items():
            changed = {"coordinator": center / "run" / "ledger.sqlite"}.get(name)
            print(f"the {name}'s page: {cost(process, address)}")
            if changed is not None:
                print(f"  where something has changed: {cost(process, address, changed=changed)}")


def start_party(stack: ExitStack, folder: Path, name: str) -> None:
    """Have a hospital take part, until all ends."""
    file = folder / name / "party.toml"
    stack.callback(consilience, "party", "stop", file, check=False)
    consilience("party", "start", file, "--detach")


def invite(folder: Path, name: str) -> None:
    """Invite a hospital, have it make its key, and add the line that it answers with."""
    file, center = folder / "invitation.json", folder / "coordinator"
    consilience("coordinator", "invite", center, name, "--out", file)
    join = [*COMMAND, "party", "join", str(file), "--folder", str(folder / name)]
    answer = subprocess.run(join, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    consilience("coordinator", "add", center, answer)


def pids(folder: Path) -> list[int]:
    """The processes of the coordinator and of the hospital that stays."""
    homes = (folder / "coordinator" / "run", folder / STAYS / "state")
    noted = [json.loads((home / "flower" / "processes.json").read_text()) for home in homes]
    return [pid for processes in noted for pid, _ in processes]


def replace(path: Path, old: str, new: str) -> None:
    """Replace a line of a configuration."""
    text, times = re.subn(old, new, path.read_text(), flags=re.MULTILINE)
    assert times == 1
    path.write_text(text)


def serve(stack: ExitStack, who: str, folder: Path) -> tuple[psutil.Process, str]:
    """Start a page; gives its process and its address."""
    command = [*COMMAND, who, "page", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stderr is not None
    return psutil.Process(process.pid), process.stderr.readline().split(": ")[-1].strip()


def take(browser: Browser, name: str, address: str, pictures: Path) -> None:
    """Take pictures of a page, in both schemes and sizes."""
    for scheme in ("light", "dark"):
        for size, (width, height) in SIZES.items():
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.goto(address)
            page.locator("#tiles").wait_for(timeout=PATIENCE)
            page.wait_for_timeout(300)
            pictures.mkdir(exist_ok=True)
            page.screenshot(path=pictures / f"{name}-{size}-{scheme}.png", full_page=True)
            page.close()


def cost(
    process: psutil.Process, address: str, *, changed: Path | None = None, scrapes: int = 100
) -> str:
    """Scrape a page's figures, and say what that took.

    Args:
        process: serves the page.
        address: of the page.
        changed: a file that it reads, and that changes before each scrape; ``None`` for none.
        scrapes: their number, one a second where something changes, else ten.
    """
    before = sum(process.cpu_times()[:2])
    for _ in range(scrapes):
        if changed is not None:
            changed.touch()
        urlopen(f"{address}/metrics").read()
        time.sleep(0.1 if changed is None else 1.0)
    took = (sum(process.cpu_times()[:2]) - before) / scrapes
    memory = process.memory_info().rss / 1e6
    return f"{1000 * took:.1f} ms of processor for a scrape, {memory:.0f} MB"


if __name__ == "__main__":
    main()
