"""What documents say that a machine can check: commands, files and tests are there, examples can be read."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from consilience.cli import app
from consilience.deployment.coordinator.gate import MOST, SPARE
from consilience.site import Limits

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "examples" / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))
THREATS = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")

CONSOLE = re.compile(r"```(?:console|sh)\n(.*?)```", re.DOTALL)
QUOTED = re.compile(r"`(consilience [^`]+)`")


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where each command of ours is written, and its words after the program."""
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        lines = [line for block in CONSOLE.findall(text) for line in block.splitlines()]
        for line in lines:
            yield from _ours(path, line.removeprefix("$ "))
    for path in UNITS:
        for call in re.findall(r"/bin/consilience ([^;\n]+)", path.read_text()):
            yield f"{path.name}: {call}", shlex.split(call)
    for name, service in _compose()["services"].items():
        if "consilience" in service["image"]:
            yield f"compose.yaml: {name}", service["command"]


def _ours(path: Path, line: str) -> Iterator[tuple[str, list[str]]]:
    call = re.match(r"\w+=\$\((.*)\)$", line)  # run=$(consilience …)
    try:
        words = shlex.split(call[1] if call else line, comments=True)
    except ValueError:  # a table's line, not a call
        return
    for i, word in enumerate(words):
        if (i == 0 and word == "consilience") or word.endswith("/bin/consilience"):
            yield f"{path.name}: {line.strip()}", words[i + 1 :]
            return


def _compose() -> Any:
    yaml = pytest.importorskip("yaml")  # comes with flwr
    return yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())


CALLS = dict(commands())
NAMED = {
    line
    for name in ("howto/between-sites.md", "threat-model.md")
    for line in QUOTED.findall((ROOT / "docs" / name).read_text(encoding="utf-8"))
}
"""What prose calls by name, with or without its arguments."""

COMMANDS = typer.main.get_command(app)


def found(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words begin with, and the rest of them."""
    command: click.Command = COMMANDS
    context = click.Context(command, info_name="consilience")
    while isinstance(command, click.Group):
        name, *words = words
        below = command.get_command(context, name)
        assert below is not None, f"there is no command {name!r}"
        command, context = below, click.Context(below, parent=context, info_name=name)
    return command, words


@pytest.mark.parametrize("where", CALLS)
def test_a_command_that_is_written_down_can_be_called(where: str) -> None:
    """It is parsed, options and arguments, and not run."""
    command, words = found(CALLS[where])
    if words != ["--help"]:
        command.make_context(command.name, list(words))


@pytest.mark.parametrize("line", sorted(NAMED))
def test_a_command_that_is_spoken_of_is_there(line: str) -> None:
    command, words = found(shlex.split(line)[1:])
    if words:
        command.make_context(command.name, list(words))


def test_there_are_commands_to_check() -> None:
    said = {words[0] for words in CALLS.values()}
    assert {"coordinator", "party", "run", "resume"} <= said


def imports() -> Iterator[tuple[str, str]]:
    """Modules and names of ours that examples in the documents import."""
    for path in DOCUMENTS:
        for block in re.findall(
            r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL
        ):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                    "consilience"
                ):
                    yield from ((str(node.module), alias.name) for alias in node.names)


@pytest.mark.parametrize(("module", "name"), sorted(set(imports())))
def test_an_import_of_an_example_is_there(module: str, name: str) -> None:
    if "torch" in module:
        pytest.importorskip("torch")
    assert hasattr(import_module(module), name)


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("first-federation", "accuracy[0].max() < 0.5 and accuracy[-1].min() > 0.8"),
        ("private-federation", "abs(spent.epsilon(1e-5) - 1) < 1e-6"),
        pytest.param(
            "four-hospitals",
            "history.metric('auc').shape == (4, 4)",
            marks=pytest.mark.needs_data("heart-disease"),
        ),
    ],
)
def test_a_notebook_runs_from_top_to_bottom(name: str, result: str) -> None:
    """And is kept without what it printed."""
    found = json.loads((ROOT / "examples" / "notebooks" / f"{name}.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {}
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            exec(compile("".join(cell["source"]), f"{name}, {cell['id']}", "exec"), names)
    assert eval(result, names)


def test_modules_that_moved_are_where_the_changelog_says() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    table = changes.partition("| before | now |")[2].partition("\n\n")[0]
    for now in re.findall(r"\| ([^|]+) \|$", table, re.MULTILINE):
        package = ""
        for name in re.findall(r"`((?:consilience\w*)?(?:\.\w+)+)`", now):
            whole = package + name if name.startswith(".") else name
            package = whole.rpartition(".")[0]
            assert find_spec(whole), whole


@pytest.mark.parametrize("name", re.findall(r"`((?:src|tests|examples)/[^`]+)`", THREATS))
def test_what_the_threat_model_rests_on_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    assert (ROOT / file).exists()
    assert not test or f"def {test}(" in (ROOT / file).read_text()


def test_tasks_that_a_party_may_allow_one_by_one() -> None:
    (written,) = re.findall(r'`(\["Describe".*?\])`', THREATS)
    allow = tuple(tomllib.loads(f"allow = {written}")["allow"])
    limits = Limits(allow=allow)
    limits.check_names()
    assert set(limits.allowed_replies()) == set(allow)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_units_are_understood(unit: Path, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not here")
    copy = tmp_path / unit.name.replace("@", "@north")
    program = "/opt/consilience/bin/consilience"  # which need not be here
    copy.write_text(unit.read_text().replace(program, "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_units_open_as_many_files_as_the_gate_needs(unit: Path) -> None:
    (limit,) = re.findall(r"^LimitNOFILE=(\d+)$", unit.read_text(), re.MULTILINE)
    assert int(limit) >= 2 * MOST + SPARE


def test_the_picture_of_the_house_is_that_of_the_contract_and_the_rooms() -> None:
    """Floors are those of the import contract, and sentences those at the top of each room."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    library = ROOT / "src" / "consilience"
    house = []
    for floor, layer in zip(range(len(layers), 0, -1), layers, strict=True):
        for room in layer.split(" | "):
            file = library / room / "__init__.py"
            text = file if file.exists() else library / f"{room}.py"
            sentence = ast.get_docstring(ast.parse(text.read_text(encoding="utf-8"))) or ""
            house.append((str(floor), room, sentence.partition("\n")[0].replace("``", "`")))
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^\| (\d+) \| `(\w+)` \| (.+) \|$", contributing, re.MULTILINE)
    assert drawn == house
    first_hour = re.findall(r"^\| `([\w/]+\.py)` \|", contributing, re.MULTILINE)
    assert first_hour and all((library / file).exists() for file in first_hour)


def test_everything_that_is_started_is_quiet() -> None:
    quiet = ["FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK", "RAY_USAGE_STATS_ENABLED"]
    for path in (*UNITS, DEPLOY / "compose" / "Dockerfile", DEPLOY / "compose" / "compose.yaml"):
        assert all(name in path.read_text() for name in quiet), path.name


def test_the_image_is_pinned() -> None:
    dockerfile = (DEPLOY / "compose" / "Dockerfile").read_text()
    assert "--require-hashes -r requirements.txt" in dockerfile and ":latest" not in dockerfile
    assert "-c constraints.txt" in dockerfile  # what further extras bring
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for service in _compose()["services"].values():
        image, _, tag = service["image"].partition(":")
        assert tag == version if image == "consilience" else tag not in ("", "latest")
