"""A party joins by a file and a line; a file that was changed, or is used twice, gets nobody in."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.core.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.core.files import FORMAT
from consilience.lab.cli.main import app
from consilience.sites.coordinator import parties as coordinator
from consilience.sites.coordinator.configuration import read_coordinator, store_coordinator
from consilience.sites.coordinator.parties import add, invite, remove
from consilience.sites.coordinator.process import _Members
from consilience.sites.coordinator.template import write_coordinator
from consilience.sites.operations.invitation import Answer, Invitation, read_invitation
from consilience.sites.operations.processes import Processes
from consilience.sites.party import joining, read_party
from consilience.sites.party.joining import join
from consilience.sites.transport import superlink
from consilience.sites.transport.superlink import SuperLink


class Killed(Exception):
    """The process ends here."""


def parties(center: Path) -> dict[str, str]:
    return dict(tomllib.loads((center / "coordinator.toml").read_text())["parties"])


def invited(center: Path, name: str = "east") -> Path:
    out = center.parent / f"{name}.invitation.json"
    invite(center, name, out)
    return out


def test_one_file_and_one_line(center: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(center.parent)

    def said(*words: object) -> str:
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout

    before = (center / "coordinator.toml").read_text()
    file = said("coordinator", "invite", center, "east").strip()
    assert Path(file).stat().st_mode & 0o077 == 0
    line = said("party", "join", file).strip()
    assert said("party", "join", file).strip() == line  # the mail was lost
    said("coordinator", "add", center, line)
    spec = read_party(Path("east/party.toml"))
    assert spec.name == "east" and spec.limits.federation == "center" and spec.public is None
    assert spec.coordinator is not None and spec.coordinator.address == "127.0.0.1:9092"
    assert spec.coordinator.certificate.read_text() == (center / "tls" / "ca.pem").read_text()
    assert spec.model.name == "random-forest"  # as the template has it
    public = Path("east/party.key.pub").read_text().strip()
    assert read_coordinator(center).parties["east"] == public and public.split()[1] in line
    said("coordinator", "remove", center, "east")
    assert (center / "coordinator.toml").read_text() == before


def test_used_twice_it_gets_nobody_in(center: Path, tmp_path: Path) -> None:
    file = invited(center)
    _, mine = join(file, tmp_path / "east")
    _, other = join(file, tmp_path / "elsewhere")  # the same file, another key
    assert add(center, mine) == "east"
    with pytest.raises(
        InvalidInput, match=r"'east' was added with this key on .*: there is nothing"
    ):
        add(center, mine)
    with pytest.raises(InvalidInput, match=r"was used on .* and counts once"):
        add(center, other)
    assert mine.split()[3] in parties(center)["east"]


def test_killed_while_it_is_added_the_same_line_goes_on_and_no_other(
    center: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = invited(center)
    (_, mine), (_, other) = join(file, tmp_path / "east"), join(file, tmp_path / "elsewhere")
    usual, written = coordinator.write_whole, []

    def killed(path: Path, text: str) -> None:
        if written:
            usual(path, text)
        written.append(path)
        raise Killed

    monkeypatch.setattr(coordinator, "write_whole", killed)
    for _ in range(2):  # before coordinator.toml is written, and after
        with pytest.raises(Killed):
            add(center, mine)
        with pytest.raises(InvalidInput, match="another key was given for 'east' before"):
            add(center, other)
    monkeypatch.setattr(coordinator, "write_whole", usual)
    assert add(center, mine) == "east" and mine.split()[3] in parties(center)["east"]
    with pytest.raises(InvalidInput, match="was added with this key"):
        add(center, mine)


def test_a_key_that_was_written_by_hand_meanwhile_stays(center: Path, tmp_path: Path) -> None:
    _, line = join(invited(center), tmp_path / "east")
    with (center / "coordinator.toml").open("a") as file:
        file.write('east = "ecdsa-sha2-nistp384 AAAA"\n')
    with pytest.raises(InvalidInput, match="another key was given for 'east' before"):
        add(center, line)
    assert parties(center)["east"] == "ecdsa-sha2-nistp384 AAAA"


@pytest.mark.parametrize(
    "change", [{"until": "2999-01-01T00:00:00"}, {"certificate": "another"}], ids=["zone", "PEM"]
)
def test_what_is_wrong_with_a_file_leaves_no_trace_and_the_next_joins(
    center: Path, tmp_path: Path, change: dict[str, str]
) -> None:
    file = invited(center)
    invitation, home = read_invitation(file)[0], tmp_path / "east"
    bad = invitation.model_dump(mode="json") | change
    printed = Invitation.model_construct(**bad).model_dump_json(warnings=False).encode()
    wrong = tmp_path / "wrong.json"
    wrong.write_text(
        json.dumps(bad | {"format": FORMAT, "fingerprint": sha256(printed).hexdigest()})
    )
    with pytest.raises(InvalidInput, match=r"wrong\.json"):
        join(wrong, home)
    assert not home.exists()
    join(file, home)


def test_killed_at_any_step_of_joining_it_joins_again(
    center: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, usual = invited(center), joining.write_whole

    def killed(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr(joining, "write_whole", killed)
    with pytest.raises(Killed):
        join(file, tmp_path / "elsewhere")
    monkeypatch.setattr(joining, "write_whole", usual)
    assert join(file, tmp_path / "elsewhere")[1].startswith("consilience-answer east")


def test_a_federation_that_no_invitation_could_name(center: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="'Herz Zentrum' is no name of a federation"):
        write_coordinator(tmp_path / "Herz Zentrum", ["a"], "127.0.0.1:9092")
    assert not (tmp_path / "Herz Zentrum").exists()
    path = center / "coordinator.toml"
    path.write_text(path.read_text().replace('"center"', f'"{"a" * 101}"'))
    with pytest.raises(InvalidInput, match="name: "):
        read_coordinator(center)
    with pytest.raises(InvalidInput, match="federation: string should match"):
        invited(center)


@pytest.mark.parametrize(
    "change",
    [
        {"address": "evil.example.org:9092"},
        {"certificate": "another"},
        {"until": "2999-01-01T00:00:00Z"},
        {"token": "0" * 64},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_file_that_was_changed_is_refused(
    center: Path, tmp_path: Path, change: dict[str, str]
) -> None:
    """By its fingerprint at the party; and by the coordinator, where that was made to fit."""
    file = invited(center)
    document = json.loads(file.read_text()) | change
    file.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="was changed since it was written"):
        join(file, tmp_path / "east")
    assert not (tmp_path / "east").exists()
    right = read_invitation(center / "invitations" / "east.json")[0]
    forged = type(right).model_validate(right.model_dump() | change)
    line = forged.answer(parties(center)["north"])
    with pytest.raises(InvalidInput, match="changed on its way"):
        add(center, line)
    assert "east" not in parties(center)


def test_the_telephone_tells_a_file_that_was_replaced(center: Path, tmp_path: Path) -> None:
    file = invited(center)
    spoken = read_invitation(file)[0].spoken
    file.unlink()
    newer = invited(center)
    with pytest.raises(InvalidInput, match="do not join"):
        join(newer, tmp_path / "east", fingerprint=spoken)
    with pytest.raises(InvalidInput, match="16 digits"):
        join(newer, tmp_path / "east", fingerprint=read_invitation(newer)[0].spoken[:9])
    join(newer, tmp_path / "east", fingerprint=read_invitation(newer)[0].spoken.upper())


def test_an_invitation_that_is_over_or_void(center: Path, tmp_path: Path) -> None:
    file = invited(center)
    _, line = join(file, tmp_path / "east")
    file.unlink()
    invited(center)  # the first is void now
    with pytest.raises(InvalidInput, match="there is a newer one"):
        add(center, line)
    old = read_invitation(file)[0].model_copy(update={"until": datetime.now(UTC) - timedelta(1)})
    for path in (file, center / "invitations" / "east.json"):
        old.write(path)
    with pytest.raises(InvalidInput, match="counted until"):
        join(file, tmp_path / "other")
    with pytest.raises(InvalidInput, match="counted until"):
        add(center, old.answer(parties(center)["north"]))


@pytest.mark.parametrize("name", ["../north", "<b>x</b>", "", "a/b", "x\ny", "é", "a" * 101, ".."])
def test_names_with_markup_or_parts_of_a_path(center: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="is no name of a party"):
        invite(center, name, tmp_path / "out.json")
    document = json.loads(invited(center).read_text())
    (tmp_path / "bad.json").write_text(json.dumps(document | {"party": name}))
    with pytest.raises(InvalidInput, match="party"):
        join(tmp_path / "bad.json", tmp_path / "bad")
    assert not (tmp_path / "out.json").exists() and not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"\xff", b'{"format": %d}' % FORMAT, b"[" * 99_999, b" " * 200_000],
)
def test_a_file_that_is_no_invitation(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InvalidInput):
        join(tmp_path / "file", tmp_path / "east")
    assert not (tmp_path / "east").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "no answer to an invitation"),
        ("consilience-answer east", "no answer"),
        ("consilience-answer ../east a b c", "no name of a party"),
        ("consilience-answer west a b c", "nobody called 'west' was invited"),
        ("consilience-answer north a b c", "nobody called 'north' was invited"),
        ("consilience-answer east a b \u00e9", "no answer"),
        ("consilience-answer east a b c", "changed on its way"),
    ],
)
def test_lines_that_are_no_answers(center: Path, line: str, said: str) -> None:
    invited(center)
    before = (center / "coordinator.toml").read_text()
    with pytest.raises(InvalidInput, match=said):
        add(center, line)
    assert (center / "coordinator.toml").read_text() == before


def test_who_takes_part_already_and_another_party_in_the_folder(center: Path) -> None:
    with pytest.raises(InvalidInput, match="'north' takes part already"):
        invited(center, "north")
    file = invited(center)
    with pytest.raises(InvalidInput, match="name is 'south', and the invitation says 'east'"):
        join(file, center.parent / "south")
    with pytest.raises(InvalidInput, match="something already"):
        invited(center)


def test_a_key_of_another_party_and_a_protocol_that_takes_in_nobody(center: Path) -> None:
    invitation, _ = read_invitation(invited(center))
    with pytest.raises(InvalidInput, match="have the same key"):
        add(center, invitation.answer(parties(center)["north"]))
    path = center / "coordinator.toml"
    text = path.read_text().replace('aggregate = "uwa"', 'protocol = "averaged_distillation"')
    path.write_text(text.replace('name = "ensemble_distillation"\n', ""))
    (center / "run").mkdir()
    store_coordinator(read_coordinator(center), center)
    _, line = join(center.parent / "east.invitation.json", center.parent / "east")
    with pytest.raises(InvalidInput, match="cannot join a run of 'averaged_distillation'"):
        add(center, line)


def test_the_last_party_stays_and_so_does_a_quorum(center: Path) -> None:
    path = center / "coordinator.toml"
    path.write_text(path.read_text().replace("quorum = 0.5", "quorum = 2"))
    with pytest.raises(InvalidInput, match="quorum is 2, and there are 1 parties"):
        remove(center, "north")
    path.write_text(path.read_text().replace("quorum = 2", "quorum = 1"))
    remove(center, "north")
    with pytest.raises(ConsilienceError, match="parties"):
        remove(center, "south")
    with pytest.raises(InvalidInput, match="no party is called"):
        remove(center, "nroth")


def test_a_file_that_lists_parties_in_another_way_is_left_alone(center: Path) -> None:
    path = center / "coordinator.toml"
    head, _, _ = path.read_text().partition("[parties]")
    inline = ", ".join(f'{name} = "{key}"' for name, key in parties(center).items())
    path.write_text(f"parties = {{ {inline} }}\n{head}")
    before = path.read_text()
    with pytest.raises(InvalidInput, match="written in a way that is not changed here"):
        remove(center, "north")
    assert path.read_text() == before


class Link:
    """A SuperLink that knows the parties that it was told of, once it can be told."""

    def __init__(self, *failures: RunFailed) -> None:
        self.known: list[set[str]] = []
        self.failures = list(failures)

    def register(self, wanted: dict[str, str]) -> None:
        if self.failures:
            raise self.failures.pop()
        self.known.append(set(wanted))


def test_a_coordinator_that_runs_follows_its_file(center: Path, tmp_path: Path) -> None:
    (center / "run").mkdir()
    store_coordinator(spec := read_coordinator(center), center)
    link, told, members = Link(), list[str](), _Members(center)
    assert members.followed(spec, link, told.append) is spec and not link.known
    _, line = join(invited(center), tmp_path / "east")
    add(center, line)
    remove(center, "south")
    now = members.followed(spec, link, told.append)
    assert set(now.parties) == {"north", "east"} == link.known[-1]
    assert told[0].startswith("east was added") and told[1].startswith("south was removed")
    (center / "coordinator.toml").write_text("parties = 7")
    assert members.followed(now, link, told.append) is now and len(link.known) == 1
    assert "[parties] stay as they are" in told[2]


def test_one_that_is_removed_is_cut_off_once_the_superlink_can_be_told(center: Path) -> None:
    (center / "run").mkdir()
    store_coordinator(spec := read_coordinator(center), center)
    told: list[str] = []
    link, members = Link(RunFailed("flwr supernode failed")), _Members(center, pause=0.0)
    remove(center, "south")
    assert members.followed(spec, link, told.append) is spec
    assert told == [
        "[parties] stay as they are until the SuperLink can be told: flwr supernode failed"
    ]
    path, away = center / "coordinator.toml", center / "coordinator.toml~"
    path.rename(away)  # as some editors do before they write it
    assert members.followed(spec, link, told.append) is spec and len(told) == 1
    away.rename(path)
    assert set(members.followed(spec, link, told.append).parties) == {"north"} == link.known[-1]
    assert told[1:] == ["south was removed, and is cut off"]


def test_flower_is_told_of_new_keys_and_gone_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, ...]] = []

    def flwr(home: Path, *words: object) -> dict[str, object]:
        told.append(tuple(map(str, words)))
        return {"node-id": len(told)}

    monkeypatch.setattr(superlink, "flwr", flwr)
    (tmp_path / "user").mkdir()
    link = SuperLink(tmp_path, Processes(tmp_path, "the test"), 1)
    link.register({"a": "key a", "b": "key b"})
    link.register({"a": "key a", "b": "another", "c": "key c"})
    assert [words[1] for words in told] == [
        *("register", "register"),
        *("unregister", "register", "register"),
    ]
    assert told[2][2] == "2" and told[3][-1] == "b"
    assert json.loads((tmp_path / "nodes.json").read_text())["nodes"] == {
        "a": "1",
        "b": "4",
        "c": "5",
    }


def test_an_answer_is_read_as_it_was_written(center: Path) -> None:
    invitation, _ = read_invitation(invited(center))
    answer = Answer.read(invitation.answer(parties(center)["north"]))
    assert invitation.proves(answer) and answer.party == "east"
    assert parties(center)["north"] == f"{answer.key} north"


def test_an_answer_that_a_mail_broke_into_lines_counts(center: Path, tmp_path: Path) -> None:
    _, line = join(invited(center), tmp_path / "east")
    quoted = "\n".join(f"> {line[start : start + 76]}" for start in range(0, len(line), 76))
    with pytest.raises(InvalidInput, match="no answer"):
        add(center, quoted.partition("> ")[0] + quoted[:40])
    done = CliRunner().invoke(app, ["coordinator", "add", str(center), *quoted.split()])
    assert done.exit_code == 0, done.output
    kept = (tmp_path / "east" / "party.key.pub").read_text().split()[:2]
    assert parties(center)["east"].split()[:2] == kept


def test_a_fingerprint_that_is_empty_compares_nothing(center: Path, tmp_path: Path) -> None:
    """As of a variable of a shell that was not set."""
    words = ["party", "join", str(invited(center)), "--folder", str(tmp_path / "east")]
    done = CliRunner().invoke(app, [*words, "--fingerprint", ""])
    assert done.exit_code == 2 and "0 were given, and it takes 16 digits" in done.output
    assert not (tmp_path / "east").exists()
