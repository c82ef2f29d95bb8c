"""Live pages: contents, refusals of other origins, news, and figures, over a run that was really done."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import time
import warnings
from collections.abc import Mapping
from html import escape
from pathlib import Path

import httpx
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.rounds import STAGE
from consilience.sites.pages import coordinator as coordinator_page
from consilience.sites.pages import server
from consilience.sites.pages.chart import line_chart
from consilience.sites.pages.coordinator import CoordinatorPage, Nodes, read_facts
from consilience.sites.pages.open_metrics import Sample, open_metrics
from consilience.sites.pages.party import PartyPage
from consilience.sites.pages.server import Page, View, application, refused, serve
from consilience.sites.party import AUDIT, AuditLog, read_log
from helpers.deployed_run import begun, grid, started
from helpers.flower_grid import Message, in_a_run
from helpers.served_pages import served_page

pytest.importorskip("prometheus_client")
with warnings.catch_warnings():  # without httpx2 it warns, and takes httpx
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LOOK", 0.0)


class Counted:
    """A page that counts how often it is read."""

    title = "counted"
    version = 1

    def __init__(self) -> None:
        self.reads = 0

    def changed(self) -> int:
        return self.version

    def read(self) -> View:
        self.reads += 1
        return View(f"<section>{self.reads}</section>", (Sample("reads", self.reads, "Reads."),))


def browser(page: Page) -> TestClient:
    return TestClient(application(page), base_url="http://127.0.0.1:9190")


# --- what they show -------------------------------------------------------------------------------


def test_a_finished_run_is_shown(finished: Path):
    page = browser(CoordinatorPage(finished)).get("/").text
    for said in ("center", "done", "Round 2 of 2", "2 of 2", "Accuracy over rounds", "north"):
        assert said in page
    assert "Who is trusted on which classes" in page and "No party failed" in page
    assert "Asked now" not in page and "style=" not in page


def test_an_excluded_party_is_shown_as_such(finished: Path, tmp_path: Path):
    """As long as the teacher of the last round leaves its answers out."""
    center = Path(shutil.copytree(finished, tmp_path / finished.name))

    def page_with(round: int) -> str:
        ledger = Ledger(center / "run" / "ledger.sqlite")
        ((label,),) = ledger.read("SELECT DISTINCT method FROM rounds")
        ledger.write("notes", [(label, 0, round, "north is excluded since round 1: evidence")])
        ledger.close()
        return browser(CoordinatorPage(center)).get("/").text

    before, now = page_with(1), page_with(2)
    assert "Without a part" not in before
    assert "Without a part in the teacher: north." in now and "No party failed" not in now
    assert '<h3>north <span class="chip excluded">excluded</span></h3>' in now
    assert '<p class="why">north is excluded since round 1: evidence</p>' in now


def test_trust_is_that_of_the_teacher_by_its_own_classes(finished: Path):
    facts = read_facts(finished / "run" / "ledger.sqlite")
    assert facts.trusted == 2 and facts.trust.keys() == {"no", "yes"}
    for weights in facts.trust.values():
        assert sum(weights.values()) == pytest.approx(1.0)


def test_before_a_run_and_after_a_mistake(center: Path):
    page = browser(CoordinatorPage(center))
    assert "no run" in page.get("/").text
    (center / "coordinator.toml").write_text("name = '<script>'")
    assert "coordinator.toml cannot be used" in page.get("/").text
    with pytest.raises(InvalidInput, match="no such folder"):
        CoordinatorPage(center / "none")


def test_a_damaged_ledger_is_said_and_the_page_goes_on(finished: Path, tmp_path: Path):
    center = shutil.copytree(finished, tmp_path / "center")
    ledger = center / "run" / "ledger.sqlite"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[:100] + b"\0" * 8000 + whole[8100:])
    page = browser(CoordinatorPage(center))
    assert "the ledger is damaged" in page.get("/").text
    ledger.write_bytes(whole)
    assert "Round 2 of 2" in page.get("/").text


def test_parties_that_are_late_left_out_or_asked_now(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    center = shutil.copytree(finished, tmp_path / "center")
    monkeypatch.setattr("consilience.sites.coordinator.status.running", lambda folder: 7)
    ledger = Ledger(center / "run" / "ledger.sqlite")
    ledger.note(excluded={"south": ["it has not joined: <i>no</i>", True]})
    for round, text in ((1, "a <remark>"), (2, "a <remark>"), (2, "privacy: it keeps a budget")):
        ledger.write("notes", [("uwa", 0, round, text)])
    with ledger.transaction():
        ledger._connection.execute("UPDATE method_runs SET status = 'running'")
    ledger.close()
    stage = {"round": 2, "tasks": "Distill", "since": 0.0, "awaited": ["north"]}
    (center / "run" / STAGE).write_text(json.dumps(stage))
    nodes = Nodes(lambda home: {"north": "online"})
    nodes.states = {"north": "online"}
    text = CoordinatorPage(center, nodes=nodes).read().main
    states = re.findall(r'<h3>(\w+) <span class="chip [\w-]+">([\w ]+)</span>', text)
    assert states == [("north", "asked now"), ("south", "not joined")]
    assert "it has not joined: &lt;i&gt;no&lt;/i&gt;" in text and "node online" in text
    assert '<td>1 to 2</td><td class="prose">a &lt;remark&gt;</td>' in text
    assert "<p>It keeps a budget.</p>" in text and "keeps a budget. What" not in text
    assert "Asked now, in round 2" in text and "Train towards the teacher" in text
    (center / "run" / STAGE).write_text(json.dumps({**stage, "round": 0, "tasks": "Join"}))
    assert "Asked now, between rounds" in CoordinatorPage(center, nodes=nodes).read().main


def test_a_run_is_followed_and_markup_in_every_name_is_text(
    center: Path, monkeypatch: pytest.MonkeyPatch
):
    in_a_run(monkeypatch)
    for home in ("north", "south"):
        renamed(center.parent / home / "patients.csv", "yes", MARKUP)
    renamed(center.parent / "north" / "party.toml", 'name = "north"', f'name = "{MARKUP}"')
    renamed(center / "coordinator.toml", '"north" =', f'"{MARKUP}" =')
    started(center)
    (center / "run" / "log").write_text(f"{MARKUP}\x1b[2J")
    nodes, asked = grid(center), list[Mapping[str, object]]()
    answer = nodes.nodes[100]

    def watched(message: Message) -> list[Message]:
        asked.append(json.loads((center / "run" / STAGE).read_text()))
        return answer(message)

    nodes.nodes[100], nodes.infos[100].name = watched, MARKUP
    begun(center, nodes)
    assert [one["tasks"] for one in asked][:2] == ["Describe", "Join"]
    assert {"Distill", "Evaluate"} <= {one["tasks"] for one in asked}
    assert all(one["awaited"] == [MARKUP, "south"] for one in asked)
    assert not (center / "run" / STAGE).exists()
    for page in (CoordinatorPage(center), PartyPage(center.parent / "north" / "party.toml")):
        text = browser(page).get("/").text
        assert escape(MARKUP) in text and "<img" not in text and "\x1b" not in text


def renamed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_means_of_a_tile_are_of_the_same_parties(finished: Path, tmp_path: Path):
    """North had 0.9 and has 0.8; south had 0.5 and was not measured again."""
    center = shutil.copytree(finished, tmp_path / "center")
    ledger = Ledger(center / "run" / "ledger.sqlite")
    with ledger.transaction():
        ledger._connection.execute("DELETE FROM metrics")
        for round, party, value in ((0, "north", 0.9), (0, "south", 0.5), (2, "north", 0.8)):
            ledger.write("metrics", [("uwa", 0, round, party, "accuracy", value)])
    ledger.close()
    said = "0.800</strong>.*after round 2; 0.900 after round 0; of 1 party measured after both<"
    assert re.search(said, CoordinatorPage(center).read().main)


def test_a_partys_page_of_refusals_and_of_odd_lines(finished: Path, tmp_path: Path):
    shutil.copytree(finished.parent, tmp_path / "all")
    home = tmp_path / "all" / "north"
    answers = len(read_log(home / "state" / AUDIT).entries)
    log = AuditLog(home / "state" / AUDIT)
    for more in ({"detail": "no", "bytes": 7}, {}):
        log.append(tasks="Train", status="refused", **more)
    page = browser(PartyPage(home / "party.toml"))
    text, figures = page.get("/").text, page.get("/metrics").text
    for name, count in (("answered", answers), ("said no to", 2)):
        assert f"{name}</span><strong>{count}</strong>" in text
    assert "audit log is broken" not in text
    log.append(tasks="Train", status="ok", bytes="many")
    log.append(tasks="Train", status="ok")
    assert "audit log is broken" in page.get("/").text
    assert f"party_answered_total {answers}.0" in figures and "party_refusals_total 2.0" in figures


def test_a_partys_page(finished: Path):
    text = browser(PartyPage(finished.parent / "north" / "party.toml")).get("/").text
    for said in ("north", "stopped", "Nothing was refused", "PredictPublic", "alone", "none"):
        assert said in text
    north = finished.parent / "north" / "state"
    assert "Start the page with party.toml" in PartyPage(north).read().main


# --- who may read them ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {}, 405),
        ("HEAD", {}, 405),
        ("GET", {"host": "evil.example"}, 421),  # whose name leads here: DNS rebinding
        ("GET", {"host": "127.0.0.1.evil.example:9190"}, 421),
        ("GET", {"host": "evil@127.0.0.1"}, 421),
        ("GET", {"host": ""}, 421),
        ("GET", {"origin": "http://evil.example"}, 403),
        ("GET", {"origin": "null"}, 403),
        ("GET", {"origin": "http://127.0.0.1:8000"}, 403),
        ("GET", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", {"sec-fetch-site": "same-site"}, 403),
        ("GET", {"sec-fetch-site": "none"}, 200),
        ("GET", {"origin": "http://127.0.0.1:9190", "sec-fetch-site": "same-origin"}, 200),
        ("GET", {"host": "localhost:1"}, 200),  # a tunnel ends at another port
        ("GET", {"host": "[::1]:9190"}, 200),
    ],
)
@pytest.mark.parametrize("path", ["/", "/metrics"])
def test_others_are_refused(method: str, headers: dict[str, str], status: int, path: str):
    page = Counted()
    answer = browser(page).request(method, path, headers=headers)
    assert answer.status_code == status
    assert page.reads == (status == 200)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers


def test_two_hosts_are_refused():
    assert refused("GET", {"host": ["127.0.0.1", "evil.example"]}) is not None


def test_a_page_has_no_script_of_its_own_and_nothing_from_elsewhere(finished: Path):
    page = browser(CoordinatorPage(finished))
    text = page.get("/").text
    assert re.findall(r"<script[^>]*>", text) == ['<script src="page.js" defer>']
    assert not re.search(r"\son\w+=|https?://", text)
    for path, kind in {"page.js": "javascript", "page.css": "css", "mark.svg": "svg"}.items():
        answer = page.get(f"/{path}")
        assert kind in answer.headers["content-type"]
        assert not re.search(r"https?://(?!www\.w3\.org)", answer.text)
    assert page.get("/../server.py").status_code == 404


# --- news and figures -----------------------------------------------------------------------------


def test_news_come_once_when_something_has_changed():
    page, told = Counted(), iter([False, False, False, True])

    def ended() -> bool:
        page.version = 2
        return next(told)

    client = TestClient(application(page, ended=ended), base_url="http://localhost")
    assert client.get("/").status_code == 200  # it is read
    lines = [line for line in client.get("/events").text.split("\n\n") if line]
    assert [json.loads(line.removeprefix("data: "))["main"] for line in lines] == [
        "<section>2</section>"
    ]


def test_many_scrapes_look_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "LOOK", 60.0)
    page = Counted()
    page.changed = lambda: object()  # type: ignore[method-assign]
    client = browser(page)
    answers = [client.get("/metrics") for _ in range(20)]
    assert page.reads == 1
    assert "openmetrics-text; version=1.0.0" in answers[0].headers["content-type"]


def test_open_metrics_by_hand():
    labels = {"party": 'a"b\n'}
    text = open_metrics(
        [Sample("left_bytes", 3, "Bytes.", counter=True, labels=labels), Sample("round", -1, "R.")]
    )
    assert text.decode() == (
        "# HELP consilience_left_bytes Bytes.\n# TYPE consilience_left_bytes counter\n"
        'consilience_left_bytes_total{party="a\\"b\\n"} 3.0\n'
        "# HELP consilience_round R.\n# TYPE consilience_round gauge\nconsilience_round -1.0\n# EOF\n"
    )


def test_figures_of_a_run_and_of_a_party(finished: Path):
    text = browser(CoordinatorPage(finished)).get("/metrics").text
    for line in ("run_done 1.0", "run_round 2.0", 'party_joined{party="north"} 1.0'):
        assert f"consilience_{line}\n" in text
    assert 'consilience_party_metric{metric="accuracy",party="south"}' in text.replace(
        'party="south",metric="accuracy"', 'metric="accuracy",party="south"'
    )
    party = browser(PartyPage(finished.parent / "south" / "party.toml")).get("/metrics").text
    assert "consilience_party_refusals_total 0.0\n" in party and "model=" in party


def test_nodes_are_asked_now_and_then(tmp_path: Path):
    asked = threading.Semaphore(0)

    def ask(home: Path) -> dict[str, str]:
        asked.release()
        return {"north": "online"}

    nodes = Nodes(ask, every=3600)
    nodes(tmp_path)
    assert asked.acquire(timeout=5)
    for _ in range(100):
        if nodes(tmp_path):
            break
        time.sleep(0.01)
    assert nodes(tmp_path) == {"north": "online"} and not asked.acquire(blocking=False)


def test_a_chart_by_hand():
    chart = line_chart({"a": [(0, 0.0), (2, 1.0)], "b": []}, 2, main=["a"])
    assert chart is not None
    # 566 across from 60; of 198 up from 210 for 0 to 1.08.
    assert chart.lines[0].path == "60.0,210.0 626.0,26.7"
    assert [text for _, text in chart.across] == ["0", "1", "2"]
    assert [text for _, text in chart.up] == ["0.0", "0.5", "1.0"]
    assert line_chart({}, 2, main=[]) is None


def test_a_chart_of_one_point_at_the_most_that_can_be():
    chart = line_chart({"a": [(0, 1.0)]}, 0, main=[], most=1.0)
    assert chart is not None and chart.lines[0].points == ((60.0, 12.0),)
    assert [text for _, text in chart.up] == ["0.990", "0.992", "0.994", "0.996", "0.998", "1.000"]


def test_great_numbers_are_drawn_and_what_is_none_is_not():
    line = [(0, 4e16), (1, 4e16), (2, float("inf")), (3, float("nan"))]
    chart = line_chart({"a": line}, 3, main=[])
    assert chart is not None and len(chart.lines[0].points) == 2
    assert line_chart({"a": line[2:]}, 3, main=[]) is None


def test_a_server_on_this_machine_alone():
    with served_page(Counted()) as address:
        port = int(address.rpartition(":")[2])
        assert address == f"http://127.0.0.1:{port}"
        with pytest.raises(InvalidInput, match="cannot be listened at"):
            serve(Counted(), port)
        events = httpx.Client().send(httpx.Request("GET", f"{address}/events"), stream=True)
        assert "<section>1" in next(events.iter_lines())
    events.close()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        pass


def test_how_a_task_is_called():
    assert coordinator_page._asks("Distill") == (
        "Distill: Train towards the teacher on the public rows."
    )
    assert coordinator_page._asks("Unknown") == "Unknown"
