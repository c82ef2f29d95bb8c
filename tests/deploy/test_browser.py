"""Live pages in a real browser: a run followed from its start to its end, with markup in every name."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from consilience.sites.operations.processes import Processes
from consilience.sites.pages import server
from consilience.sites.pages.coordinator import CoordinatorPage, Nodes
from consilience.sites.pages.party import PartyPage
from helpers.deployed_run import begun, grid, started
from helpers.flower_grid import Message, Node, in_a_run
from helpers.served_pages import CHROMIUM, served_page

pytest.importorskip("prometheus_client")
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: make test-browser"
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the path")

MARKUP = "<img src=x onerror=alert(1)>"
HERE = "http://127.0.0.1:"
PHONE, DESKTOP = (390, 844), (1280, 900)


def slow(node: Node) -> Node:
    """A party that takes its time, so that there is something to see."""

    def answer(message: Message) -> list[Message]:
        time.sleep(0.3)
        return node(message)

    return answer


def test_a_run_followed_in_a_browser(center: Path, monkeypatch: pytest.MonkeyPatch):
    in_a_run(monkeypatch)
    monkeypatch.setattr(server, "LOOK", 0.05)
    for path, old, new in (
        (center.parent / "north" / "patients.csv", "yes", MARKUP),
        (center.parent / "south" / "patients.csv", "yes", MARKUP),
        (center.parent / "north" / "party.toml", 'name = "north"', f'name = "{MARKUP}"'),
        (center / "coordinator.toml", '"north" =', f'"{MARKUP}" ='),
    ):
        path.write_text(path.read_text().replace(old, new))
    nodes = grid(center)
    nodes.infos[100].name = MARKUP
    nodes.nodes = {number: slow(node) for number, node in nodes.nodes.items()}
    faults: list[str] = []
    with (
        served_page(CoordinatorPage(center, nodes=Nodes(lambda home: {}))) as address,
        served_page(PartyPage(center.parent / "north" / "party.toml")) as party_address,
        playwright.sync_playwright() as made,
        made.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
        page.on("dialog", lambda dialog: faults.append(dialog.message))
        page.on("console", lambda line: faults.append(line.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda one: HERE in one.url or faults.append(one.url))
        page.goto(address)
        page.get_by_text("no run", exact=True).wait_for()
        with Processes(started(center) / "run" / "flower", "a test") as processes:
            processes.ready()
            run = threading.Thread(target=begun, args=(center, nodes))
            run.start()
            page.get_by_text("Asked now, in round 1").wait_for()
            page.get_by_text("Round 1 of 2 is kept").wait_for()
            page.get_by_text("Rounds", exact=True).click()  # stays open when news come
            page.get_by_text("Round 2 of 2 is kept").wait_for()
            run.join()
        page.get_by_text("done", exact=True).wait_for()
        assert page.locator("#log details").first.get_attribute("open") is not None
        for where in (address, party_address):
            page.goto(where)
            page.locator("#tiles").wait_for()
            assert MARKUP in page.locator("main").inner_text()
            assert page.locator("img").count() == 0
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                for width, height in (PHONE, DESKTOP):
                    page.set_viewport_size({"width": width, "height": height})
                    assert page.evaluate("document.documentElement.scrollWidth") <= width
                    page.screenshot(
                        path=center / f"{where[-5:]}-{scheme}-{width}.png", full_page=True
                    )
    assert faults == []
