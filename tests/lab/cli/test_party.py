"""consilience party init, check and audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from consilience.core import (
    networks,  # noqa: F401 (as the command does)
    protocols,  # noqa: F401 (as the command does)
)
from consilience.core.federation.forming import negotiate
from consilience.core.files import FORMAT
from consilience.core.messages.wire import encode
from consilience.core.tasks.lifecycle import Describe, Join
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.sites.party import read_party
from helpers.command_line import Call


@pytest.fixture
def party(folder: Path, call: Call) -> Path:
    """A party.toml, filled in; its rows are those of both clinics."""
    assert call("party", "init", "north").output.startswith("north/party.toml")
    path = folder / "north" / "party.toml"
    text = path.read_text()
    for was, now in (
        ("public.csv", "../public.csv"),
        ("data.csv", "../clinics.csv"),
        ("label", "ill"),
        ("random-forest", "decision-tree"),
    ):
        text = text.replace(f'"{was}"', f'"{now}"')
    path.write_text(text.replace("n_estimators = 100", "max_depth = 2"))
    header, *rows = (line.split(",")[:2] for line in (folder / "clinics.csv").read_text().split())
    others = [
        f"{age},{pressure}" for (age, _), (_, pressure) in zip(rows[:20], rows[20:40], strict=True)
    ]
    (folder / "public.csv").write_text("\n".join([",".join(header), *others]) + "\n")
    return path


def answered(path: Path) -> None:
    """The party joins a federation of its own, and answers one round's questions."""
    spec = read_party(path)
    with spec.site() as site:
        made = spec.party()
        agreed = negotiate([Describe().run(made)], made.public)
        for tasks in (
            [Join(agreement=agreed)],
            [FitPrivate(round=1), PredictPublic(round=1)],
            [FitPrivate(round=999), FitPrivate(round=2)],
        ):
            site.answer(encode(tasks))


def test_check_takes_gaps_that_the_public_rows_lack(folder: Path, call: Call, party: Path) -> None:
    header, *rows = (folder / "clinics.csv").read_text().splitlines()
    holed = [row if i % 4 else ",".join(["", *row.split(",")[1:]]) for i, row in enumerate(rows)]
    (folder / "clinics.csv").write_text("\n".join([header, *holed]) + "\n")
    done = call("party", "check", party)
    assert done.exit_code == 0, done.output


def test_init_refuses_to_overwrite(call: Call, party: Path) -> None:
    before = party.read_text()
    again = call("party", "init", "north")
    assert again.exit_code == 2 and "there is something already" in again.output
    assert party.read_text() == before


def test_check(call: Call, party: Path) -> None:
    done = call("party", "check", party, "--json", "found.json")
    assert done.exit_code == 0, done.output
    for said in ("ready to join", "no (", "yes (", "Predictions (PredictPublic)", "a round"):
        assert said in done.output
    found = json.loads(Path("found.json").read_text())
    assert (found["public_rows"], found["rows"], found["rounds"]) == (20, 64, 200)
    quiet = call("party", "check", party, "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")


def test_check_says_how_many_rows_are_public_ones_too(
    call: Call, party: Path, folder: Path
) -> None:
    own = (folder / "clinics.csv").read_text().split()[1:]
    with (folder / "public.csv").open("a") as file:
        file.writelines(",".join(line.split(",")[:2]) + "\n" for line in own[:5])
    done = call("party", "check", party, "--json", "found.json")
    shared = json.loads(Path("found.json").read_text())["shared_rows"]
    assert shared >= 3 and f"{shared} of your rows are among them, and are left out" in done.output


def test_check_without_a_file_of_public_rows(call: Call, party: Path) -> None:
    text = party.read_text().replace('public = "../public.csv"', "")
    party.write_text(text.replace('# columns = ["age"', 'columns = ["age"'))
    done = call("party", "check", party, "--json", "found.json")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert (
        "the coordinator sends them, if there are any, at most 1,073,741,824 bytes; tried with own rows"
        in said
    )
    assert "learn from the teacher" in said and "and as many public ones come" in said
    found = json.loads(Path("found.json").read_text())
    assert (found["public_from"], found["public_rows"]) == ("coordinator", 0)
    party.write_text(
        party.read_text().replace("# public_bytes = 1_000_000_000", "public_bytes = 0")
    )
    done = call("party", "check", party, "--json", "found.json")
    assert done.exit_code == 0, done.output
    assert json.loads(Path("found.json").read_text())["public_from"] == "none"


def test_check_warns_of_limits_that_are_laxer_than_usual(call: Call, party: Path) -> None:
    assert "warning" not in call("party", "check", party).output
    text = party.read_text().replace("# overlap = false", "overlap = true")
    party.write_text(text.replace("# metrics = 1", "metrics = 0"))
    done = call("party", "check", party)
    assert done.exit_code == 0
    assert "warning: limits.overlap is true, and usually false: a person" in done.output
    assert "Metrics" not in done.output, "none leave"
    assert call("party", "check", party, "--quiet").output == ""


def test_check_names_what_is_wrong(call: Call, party: Path) -> None:
    party.write_text(party.read_text().replace('"decision-tree"', '"decision-three"'))
    done = call("party", "check", party)
    assert done.exit_code == 2
    assert "unknown learner 'decision-three'\n  Did you mean 'decision-tree'?" in done.output


def test_a_state_of_another_format_is_found_before_the_party_starts(
    call: Call, party: Path
) -> None:
    answered(party)
    (about,) = party.parent.glob("state/state-*/state.json")
    about.write_text(json.dumps({**json.loads(about.read_text()), "format": FORMAT + 1}))
    for command in ("check", "audit", "budget"):
        done = call("party", command, party)
        assert done.exit_code == 1
        assert f"its format number is {FORMAT + 1}, and this version" in done.output
        assert f"move {party.parent / 'state'} away and start anew" in done.output


def test_audit(call: Call, party: Path) -> None:
    answered(party)
    done = call("party", "audit", party, "--json", "audit.json")
    assert done.exit_code == 0, done.output
    assert "FitPrivate+PredictPublic" in done.output
    assert "Predictions.values float32 20×2" in done.output
    head, refused = (
        done.output.splitlines()[0],
        next(line for line in done.output.splitlines() if "refused" in line),
    )
    assert not refused[head.index("left") : head.index("bytes")].strip(), "a reason does not leave"
    assert "3 lines (2 ok, 1 refused)" in done.output and "the chain is whole" in done.output
    entries = json.loads(Path("audit.json").read_text())["entries"]
    assert [entry["status"] for entry in entries] == ["ok", "ok", "refused"]
    quiet = call("party", "audit", party, "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")


def test_a_broken_chain_fails(call: Call, party: Path) -> None:
    answered(party)
    log = party.parent / "state" / "audit.jsonl"
    log.write_text(log.read_text().replace('"float32"', '"float64"'))
    done = call("party", "audit", party)
    assert done.exit_code == 1
    assert "tampered with or damaged" in done.output and "line 3" in done.output
    assert "Before the break line 1 still holds; the next may be" in done.output


def test_of_a_log_that_breaks_at_once_nothing_holds(call: Call, party: Path) -> None:
    answered(party)
    log = party.parent / "state" / "audit.jsonl"
    log.write_text(log.read_text().replace('"Join"', '"Jion"'))
    assert "Nothing that it says before the break holds." in call("party", "audit", party).output


def test_a_party_that_never_answered(call: Call, party: Path) -> None:
    done = call("party", "audit", party)
    assert done.exit_code == 0 and "0 lines (none)" in done.output
    assert not (party.parent / "state").exists()


def test_predict_with_the_model_that_it_holds(call: Call, party: Path, folder: Path) -> None:
    rows = folder / "clinics.csv"
    none = call("party", "predict", party, rows)
    assert none.exit_code == 2 and "it has no trained model yet" in none.output
    answered(party)
    with read_party(party).site() as site:
        held = site.party()
        expected = held.trainer.model().predict_proba(held.rows.X)
    alone = call("party", "predict", party, rows, "--alone")
    assert alone.exit_code == 2 and "was not kept" in alone.output  # nobody has taught it
    done = call("party", "predict", party, rows, "--out", "answers.csv")
    assert done.exit_code == 0, done.output
    head, *lines = (folder / "answers.csv").read_text().splitlines()
    assert head.split(",")[1:] == list(held.trainer.model().classes)
    assert len(lines) == len(rows.read_text().splitlines()) - 1
    found = [list(map(float, line.split(",")[1:])) for line in lines]
    assert all(any(abs(a - b[0]) < 1e-5 for b in expected) for a, _ in found)
    wrong = call("party", "predict", party, folder / "public.csv")
    assert wrong.exit_code == 0  # the inputs alone are enough
    (folder / "bad.csv").write_text("height\n1\n")
    bad = call("party", "predict", party, folder / "bad.csv")
    assert bad.exit_code == 2 and "bad.csv" in bad.output
