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
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from typer.testing import CliRunner

from consilience.lab.cli.main import app
from consilience.sites.party import Limits
from consilience.sites.transport.gate import MOST, SPARE

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


# --- figures beside a command are that command's ---------------------------------------------------

RESULTS = ROOT / "docs" / "results"
AGAIN = "measured again? python benchmarks/results.py writes the pages of runs, and this page quotes them"


def lines_of(page: str, *, having: str) -> dict[str, dict[str, str]]:
    """The first table of a page of results with such a column: a line's name to column to cell."""
    tables = re.findall(r"(?:^\|.*\n)+", (RESULTS / f"{page}.md").read_text("utf-8"), re.MULTILINE)
    for text in tables:
        heads, _, *body = (
            [cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines()
        )
        if having in heads:
            return {cells[0]: dict(zip(heads, cells, strict=True)) for cells in body}
    raise AssertionError(f"{page} has no table with a column {having!r}")


def mean_of(cell: str) -> str:
    return cell.partition(" ± ")[0].strip("*")


def document(name: str) -> str:
    """A document with its lines joined."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".ipynb"):
        text = "".join("".join(cell["source"]) + "\n" for cell in json.loads(text)["cells"])
    return " ".join(text.split())


def test_the_first_table_is_that_of_its_command_and_leaves_out_nothing_that_hurts() -> None:
    """``make demo`` runs examples/digits.toml, whose tables are on a page of results."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    head, *shown = re.findall(r"^method +accuracy.*\n(?:.+\n)+?(?=```)", readme, re.MULTILINE)[
        0
    ].splitlines()
    assert head.split("  ")[-1] == "worse off"
    measured = lines_of("digits", having="worse off")
    assert [line.split()[0] for line in shown] == list(measured)
    for line, cells in zip(shown, measured.values(), strict=True):
        quoted = re.findall(
            r"[\d.]+ ± [\d.]+|\d+ of \d+|[\d.]+|–", line.partition(" ")[2].partition("   ")[2]
        )
        everyones = cells["accuracy, everyone's rows"]
        of_own = [mean_of(cells[f"{name}, own rows"]) for name in ("accuracy", "log loss")]
        loss = mean_of(cells["log loss, everyone's rows"])
        assert quoted[:5] == [*of_own, everyones, loss, cells["worse off"]], AGAIN


def test_the_first_page_says_what_exchange_costs_own_rows() -> None:
    readme = document("README.md")
    run, default = (lines_of(page, having="worse off") for page in ("digits", "digits-own"))
    alone, after = ({k: mean_of(v) for k, v in run[name].items()} for name in ("local", "auto"))
    own = {name: mean_of(cell) for name, cell in default["auto"].items()}
    loss, accuracy, everyones = (
        "log loss, own rows",
        "accuracy, own rows",
        "accuracy, everyone's rows",
    )
    assert f"({alone[loss]} → {after[loss]})" in readme, AGAIN
    assert f"from {alone[accuracy]} to {after[accuracy]}" in readme, AGAIN
    assert (
        run["auto"]["worse off"] == "10 of 10" and "all ten parties are [**worse off**]" in readme
    ), AGAIN
    said = f"{own[accuracy]} on own rows with a log loss of {own[loss]}, {own[everyones]} on everyone's"
    assert f"`auto` has {said}, and {own['worse off']} parties is worse off" in readme, AGAIN
    said = "reaches {coarse-density-ratio}, the exact one {density-ratio}, `auto` {auto}, the mean {avg}"
    quoted = said.format(**{name: cells[everyones] for name, cells in run.items()})
    assert quoted in document("docs/howto/who-to-trust.md"), AGAIN


def test_figures_of_four_hospitals_are_those_of_the_table_that_they_stand_beside() -> None:
    """A run of the configuration has the reduced table; every patient and column are on another page."""
    text = (RESULTS / "heart.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\| mean \| all columns \| (0\.\d{3} \|.*) \|$", text, re.MULTILINE)[:1]
    alone, avg, ratio, auto, central = line.split(" | ")
    readme, notebook = document("README.md"), document("examples/notebooks/four-hospitals.ipynb")
    assert f"**{alone} → {auto}** |" in readme and f"all patients pooled {central}" in readme
    quoted = (
        f"alone {alone}, AVG {avg}, density ratio {ratio}, auto **{auto}**, data pooled {central}"
    )
    assert quoted in document("docs/results/index.md")
    run = lines_of("hospitals", having="worse off")
    names = ("AUC, own rows", "log loss, own rows")
    auc, loss = ((mean_of(run["local"][name]), mean_of(run["auto"][name])) for name in names)
    said = f"goes from {auc[0]} alone to {auc[1]}, log loss from {loss[0]} to {loss[1]}"
    assert "`consilience run examples/heart.toml`" in notebook and said in notebook, AGAIN
    assert f"with every patient and column it is {alone} and {auto}" in notebook


@pytest.mark.parametrize(
    ("name", "page", "columns", "labels"),
    [
        (
            "regression",
            "own-regression",
            ["MSE, own rows", "MSE, everyone's rows"],
            ["local", "mean", "value-median", "auto", "central"],
        ),
        ("regression", "diabetes", ["MSE"], ["local: every site alone", "one-shot: one exchange",
            "iterated: 20 rounds", "de-regularised: 20 rounds", "accelerated: de-regularised, 6 rounds",
            "central: the rows pooled"]),
        ("regression", "diabetes-mixed", ["MSE"], ["local", "mean", "value-median", "central"]),
        ("no-public-data", "no-public-data",
            ["accuracy, everyone's rows", "log loss, everyone's rows", "accuracy, own rows",
                "log loss, own rows", "worse off"],
            ["local: every site alone", "AvgKD", "PKD", "AKD", "central: the rows pooled"]),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_a_table_of_a_guide_is_that_of_the_run_beside_it(
    name: str, page: str, columns: list[str], labels: list[str]
) -> None:
    """Rounded as the guide has it."""
    guide = (ROOT / "docs" / "howto" / f"{name}.md").read_text(encoding="utf-8")
    after = guide.partition(
        "consilience run examples/" + {"diabetes-mixed": "diabetes"}.get(page, page)
    )[2]
    if page == "diabetes-mixed":
        after = after.partition("consilience run examples/diabetes.toml --set protocol.rounds=5")[2]
    measured = lines_of(page, having=columns[0])
    for label in labels:
        (line,) = re.findall(rf"^\| {re.escape(label)} \| (.+) \|$", after, re.MULTILINE)[:1]
        for quoted, column in zip(line.split(" | "), columns, strict=False):
            found = measured[label.partition(":")[0]][column]
            if column == "worse off":
                assert quoted == found, AGAIN
                continue
            for told, exact in zip(quoted.strip("*").split(" ± "), found.split(" ± "), strict=True):
                digits = len(told.partition(".")[2])
                near = abs(float(told.replace(",", "")) - float(exact.replace(",", "")))
                assert near <= 0.501 * 10**-digits, (
                    f"{label}, {column}: {quoted}, measured {found}. {AGAIN}"
                )


def test_rules_by_density_are_compared_by_the_pages_of_the_runs_that_are_named() -> None:
    """docs/howto/choosing-an-aggregator.md, in two decimals; networks as they are taught."""
    guide = (ROOT / "docs" / "howto" / "choosing-an-aggregator.md").read_text(encoding="utf-8")
    for page, named in (("digits-mlp", "examples/digits-mlp.toml"), ("digits", "make demo")):
        (line,) = re.findall(rf"^\|[^|]*\(`{named}`\) \| (.+) \|$", guide, re.MULTILINE)
        measured = lines_of(page, having="worse off")
        for rule, quoted in zip(
            ("avg", "uwa", "suwa"), line.replace("*", "").split(" | "), strict=True
        ):
            found = measured[rule]["accuracy, everyone's rows"]
            for told, exact in zip(quoted.split(" ± "), found.split(" ± "), strict=True):
                assert abs(float(told) - float(exact)) <= 0.00501, (
                    f"{rule}: {quoted}, measured {found}"
                )
    spec = tomllib.loads((ROOT / "examples" / "digits-mlp.toml").read_text(encoding="utf-8"))
    assert spec["purpose"] == "taught"


@pytest.mark.needs_data("heart-disease")
def test_what_a_command_printed_before_training_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/howto/how-different.md: the table, and the two sentences on public rows."""
    guide = (ROOT / "docs" / "howto" / "how-different.md").read_text(encoding="utf-8")
    command, _, table = CONSOLE.findall(guide)[0].partition("\n")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    words = shlex.split(command.removeprefix("$ consilience "))
    done = CliRunner().invoke(app, words[: words.index("--out")])
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert done.exit_code == 0 and set(table.splitlines()) <= set(printed)
    said = re.findall(r"^> (Your parties know .*(?:\n> .*)*)", guide, re.MULTILINE)[0]
    assert " ".join(said.replace("\n> ", " ").split()) in " ".join(done.stdout.split())


def test_the_page_of_rivals_is_its_tables_and_so_are_quotations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import rivals

    rows = list(rivals.stored().values())
    states = {code for row in rows for code in row["code"].split()}
    made = "\n".join(
        rivals.rivals_page.page(rows, [tuple(map(str, cell)) for cell in rivals.plan()])
    )
    assert (RESULTS / "rivals.md").read_text(encoding="utf-8").partition("\nOne line a cell")[
        2
    ] in f"{made}\n"
    assert f"the library's code went through {len(states)} states" in " ".join(made.split())
    cell = "digits, k = 2 of 10, 10 parties"
    taught = lines_of("rivals", having="ratios-alone")[cell]
    guide = document("docs/howto/choosing-an-aggregator.md")
    said = (
        "taught to {auto} by `auto`, of the {true-labels} of true labels; by `density-ratio` {density-ratio} "
        "and in its logistic form {density-ratio-logistic}, `fedgo` {fedgo}, `fedd3a` {fedd3a}, `dafkd` "
        "{dafkd}, `ratios-alone` {ratios-alone}, `analytic-federation` {analytic-federation} and `avg` {avg}."
    )
    assert said.format(**taught) in guide
    (errors, runs), (losses, _) = re.findall(r"([\d.]+)% of ([\d,]+) in", made)
    assert f"{errors} % of {runs} party-runs" in guide and f"{losses} % in log loss" in guide
    ((first, close), *_) = re.findall(r"first in (\d+) of 90 cells, first or close in (\d+)", made)
    assert f"everyone's rows in {first} cells" in guide and f"of first in {close};" in guide
    seeds = {row["data"]: row["seeds"] for row in rows if row["rule"] == "auto"}
    assert {*seeds.values()} == {"5", "3"} and seeds["cifar-10"] == seeds["trec"] == "3"
    assert "five seeds, three on features of encoders" in guide
    assert "five seeds, three on features of encoders" in document("docs/results/index.md")


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


def test_the_table_of_folders_is_that_of_their_docstrings() -> None:
    library, folders = ROOT / "src" / "consilience", []
    core = [f"core/{one.stem}" for one in (library / "core").iterdir() if one.stem[0] != "_"]
    packages = [*library.glob("*/__init__.py"), *library.glob("*/*/__init__.py")]
    for name in {*core, *(str(one.parent.relative_to(library)) for one in packages)}:
        file = library / name / "__init__.py"
        text = file if file.exists() else (library / name).with_suffix(".py")
        sentence = ast.get_docstring(ast.parse(text.read_text(encoding="utf-8"))) or ""
        folders.append((name, sentence.partition("\n")[0].replace("``", "`")))
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    written = re.findall(r"^\| `([\w/]+)` \| (.+) \|$", contributing, re.MULTILINE)
    assert sorted(written) == sorted(folders)
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
