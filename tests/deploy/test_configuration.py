"""A coordinator's configuration, and what is wrong with it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from consilience.core.errors import InvalidInput, RunFailed
from consilience.sites.coordinator.configuration import read_coordinator
from consilience.sites.coordinator.parties import invite, remove
from consilience.sites.coordinator.template import write_coordinator
from consilience.sites.party import read_party
from consilience.sites.transport.superlink import connected, flwr, write_app


def test_what_init_writes_is_read_once_the_keys_are_in(center: Path) -> None:
    spec = read_coordinator(center)
    assert (spec.name, spec.host, spec.listens) == ("center", "127.0.0.1", ("127.0.0.1", 9092))
    for listen, where in (("0.0.0.0", ("0.0.0.0", 9092)), ("127.0.0.1:7", ("127.0.0.1", 7))):
        assert spec.model_copy(update={"listen": listen}).listens == where
    assert list(spec.parties) == ["north", "south"]
    assert len(spec.rows()) == 20
    assert spec.make_protocol().options["rounds"] == 2
    coordinator = read_party(center.parent / "north" / "party.toml").coordinator
    assert coordinator.key == center.parent / "north" / "party.key"


def test_a_rule_that_is_no_sum_is_refused_before_the_parties_are_waited_for(center: Path) -> None:
    path = center / "coordinator.toml"
    text = path.read_text().replace("rounds = 2", "rounds = 2\n[protocol.secure_aggregation]")
    path.write_text(text.replace('"uwa"', '"auto"'))
    with pytest.raises(InvalidInput, match=r"(?s)'auto' looks at single parties.*Sums are avg"):
        read_coordinator(center)
    path.write_text(text)
    read_coordinator(center)


def test_first_parameters_are_a_file_beside_the_configuration(center: Path) -> None:
    path = center / "coordinator.toml"
    text = path.read_text().replace('aggregate = "uwa"', 'protocol = "federated_averaging"')
    text = text.replace("rounds = 2", 'rounds = 2\ninitial = "first.safetensors"')
    path.write_text(text.replace('name = "ensemble_distillation"', 'name = "federated_averaging"'))
    options = read_coordinator(center).make_protocol().options
    assert options["initial"] == str(center / "first.safetensors")


def test_a_key_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    write_coordinator(tmp_path / "c", ["a"], "example.org:9092")
    with pytest.raises(InvalidInput, match=r"parties\.a: the public key is missing\n.*party key"):
        read_coordinator(tmp_path / "c")


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("rounds = 2", "rounds = 0", r"protocol\.rounds"),
        ("rounds = 2", "rounds = 2\nround = 3", "unknown option 'round'"),
        ('"uwa"', '"uwaa"', "Did you mean 'uwa'"),
        ('"uwa"', '"central"', "'central' needs what no coordinator has"),
        ('"uwa"', '"ratios-alone"', "every party refuses: rows"),
        ('"uwa"', '"true-labels"', "'true-labels' needs what no coordinator has"),
        ('"uwa"', '"density-ratio"', "every party refuses: rows .*\n.*coarse-density-ratio"),
        ("seed = 0", "sed = 0", "unknown key 'sed'"),
        ("[method]", "[metod]", "unknown section 'metod'\n.*Did you mean 'method'"),
        ("quorum = 0.5", "quorum = 0.0", r"quorum is 0\.0"),
        (
            "quorum = 0.5",
            "quorum = true",
            "quorum: it should be a number of parties or a share, not True$",
        ),
        ("quorum = 0.5", "quorum = 3", "quorum is 3, and there are 2 parties"),
        ('"127.0.0.1:9092"', '"127.0.0.1"', r"address: '127\.0\.0\.1' is not HOST:PORT.* a port$"),
        ('"127.0.0.1:9092"', '"127.0.0.1:99999"', "not HOST:PORT"),
        ("timeout = 600", "timeout = 1", "timeout: "),
        ("[method]", "[method", "not TOML"),
        ("ecdsa-sha2-nistp384 AAAA", "ssh-ed25519 AAAA", "no public key"),
    ],
)
def test_mistakes_are_named(center: Path, was: str, now: str, said: str) -> None:
    path = center / "coordinator.toml"
    assert was in path.read_text()
    path.write_text(path.read_text().replace(was, now))
    with pytest.raises(InvalidInput, match=said) as caught:
        read_coordinator(center)
    assert str(path) in str(caught.value.where)


def test_two_parties_with_one_key(center: Path) -> None:
    path = center / "coordinator.toml"
    keys = read_coordinator(center).parties
    path.write_text(path.read_text().replace(keys["south"], keys["north"]))
    with pytest.raises(InvalidInput, match="'north' and 'south' have the same key"):
        read_coordinator(center)


def test_init_refuses_to_overwrite_and_wants_names_and_a_port(center: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="something already"):
        write_coordinator(center, ["a"], "127.0.0.1:1")
    with pytest.raises(InvalidInput, match="two parties are called 'a'"):
        write_coordinator(tmp_path / "new", ["a", "a"], "127.0.0.1:1")
    for address in ("127.0.0.1", "a:0", "https://a:1", "a b:1"):
        with pytest.raises(InvalidInput, match="not HOST:PORT"):
            write_coordinator(tmp_path / "new", ["a"], address)
    with pytest.raises(InvalidInput, match="no name of a party"):
        write_coordinator(tmp_path / "new", ["../a"], "127.0.0.1:1")
    assert not (tmp_path / "new").exists()


def test_without_a_folder_init_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="consilience coordinator init"):
        read_coordinator(tmp_path)


def test_the_app_holds_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (
        tmp_path / "app" / "pandas.py"
    ).touch()  # Flower would send it, and find it before what is installed
    app = write_app(tmp_path / "app")
    assert sorted(path.name for path in app.iterdir()) == ["deployed.py", "pyproject.toml"]
    shutil.rmtree(app)
    assert "[tool.flwr.app.components]" in (write_app(app) / "pyproject.toml").read_text()


def test_without_a_superlink_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's command line would start a SuperLink of its own, which nobody stops."""
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("it was called"))
    with pytest.raises(RunFailed, match="no SuperLink was started"):
        flwr(tmp_path, "supernode", "ls")
    assert connected(tmp_path) == {}


@pytest.mark.parametrize(
    "edit",
    [
        lambda center: remove(center, "south"),
        lambda center: invite(center, "west", center / "west.json"),
    ],
)
def test_one_edit_at_a_time(center: Path, edit: Callable[[Path], object]) -> None:
    """Each is of what the one before it has written."""
    held = os.open(center, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(edit, center)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.2)
        path = center / "coordinator.toml"
        path.write_text(path.read_text().replace('name = "center"', 'name = "other"'))
        os.close(held)
        waiting.result(timeout=20)
    assert read_coordinator(center).name == "other"
