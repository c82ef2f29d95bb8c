"""A stranger's files, and those of the current folder, are read; their code runs only after ``--trust``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.core.errors import InvalidInput
from consilience.lab.cli.main import app
from consilience.lab.experiments import gather, read_spec, start, stored_spec
from consilience.lab.report import read_results
from helpers.command_line import TABLE, Call, clinics

pytestmark = pytest.mark.usefixtures("sketched")

MARKING = """
from pathlib import Path
from sklearn.naive_bayes import GaussianNB
Path("mark").touch()
class Model(GaussianNB):
    pass
"""
BY_MAIL = TABLE.replace("naive-bayes", "marking:Model")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "clinics.csv").write_text("\n".join(clinics()) + "\n")
    (folder / "clinics.toml").write_text(TABLE)
    start(read_spec(folder / "clinics.toml"), folder / "run")
    return folder / "run"


@pytest.fixture
def marking(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that is there once the module ``marking`` was imported, which can be by now."""
    (folder / "marking.py").write_text(MARKING)
    monkeypatch.syspath_prepend(folder)
    yield folder / "mark"
    sys.modules.pop("marking", None)


@pytest.fixture
def sent(marking: Path, finished: Path) -> Path:
    """A run folder that names the module wherever a model is named, with a seed that is not done yet."""
    run = shutil.copytree(finished, "run")
    _reconfigure(lambda told: told["models"][0].update(name="marking:Model"))
    _reconfigure(lambda told: told.update(seeds=2))
    for path in Path("run/models").rglob("model.json"):
        _change(path, lambda told: told["model"].update(name="marking:Model"))
    return Path(run)


def _reconfigure(change: Callable[[dict], object]) -> None:
    """Change the configuration in the run folder."""
    _change(Path("run/config.json"), lambda told: change(told["configuration"]))


def _change(path: Path, change: Callable[[dict], object]) -> None:
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


def test_reading_a_run_imports_no_model(call: Call, sent: Path, marking: Path) -> None:
    assert call("report", sent).exit_code == 0
    compared = call("compare", sent, sent)
    assert compared.exit_code == 0 and "uwa" in compared.output
    assert read_results(sent).spec == stored_spec(sent)
    assert "marking:Model" in (sent / "report.html").read_text()
    assert "marking" not in sys.modules and not marking.exists()


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("resume", "run"), "run/config.json: models.0.name"),
        (
            ("predict", "run", "--party", "north", "clinics.csv"),
            "run/models/uwa/seed-0/north/model.json: model.name",
        ),
    ],
)
def test_a_run_folder_is_trusted_by_word_alone(
    call: Call, sent: Path, marking: Path, words: tuple[str, ...], where: str
) -> None:
    refused = call(*words)
    assert refused.exit_code == 2 and not marking.exists()
    assert refused.stderr.startswith(f"error: {where}: it would import and run 'marking:Model'")
    assert "--trust" in refused.stderr
    if words[0] == "predict":  # the model file is another class's
        for path in sent.rglob("model.skops"):
            path.unlink()
    done = call(*words, "--trust")
    assert "= 'marking:Model' (from" in done.stderr and marking.exists()
    assert "it would" not in done.stderr


def test_a_run_folder_cannot_trust_packages_itself(
    call: Call, marking: Path, finished: Path
) -> None:
    shutil.copytree(finished, "run")
    _reconfigure(lambda told: told.update(seeds=2, trusts=["marking"]))
    refused = call("resume", "run")
    assert refused.exit_code == 2 and "run/config.json: trusts:" in refused.stderr
    boosted = {"name": "boosted", "trusts": ["marking"]}
    for path in Path("run/models").rglob("model.json"):
        _change(path, lambda told: told.update(model=boosted))
    refused = call("predict", "run", "--party", "north", "clinics.csv")
    assert refused.exit_code == 2 and "model.json: model.trusts:" in refused.stderr
    assert not marking.exists()


@pytest.mark.parametrize("words", [("run", "mail.toml", "--out", "new"), ("parties", "mail.toml")])
def test_a_configuration_that_came_by_mail(
    call: Call, marking: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused off a terminal; on one it is shown and asked for, and yes is ``--trust``."""
    Path("mail.toml").write_text(BY_MAIL)
    refused = call(*words)
    assert refused.exit_code == 2 and "mail.toml: models.0.name: it would" in refused.stderr
    monkeypatch.setattr("consilience.lab.cli.trust.on_terminal", lambda: True)
    refused = CliRunner().invoke(app, list(words), input="n\n")
    assert refused.exit_code == 2 and not marking.exists() and not Path("new").exists()
    assert f"  models.0.name = 'marking:Model' (from {Path.cwd() / 'marking.py'})" in refused.stderr
    done = CliRunner().invoke(app, list(words), input="y\n")
    assert done.exit_code == 0, done.output
    assert marking.exists()


def test_what_is_known_asks_nothing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.lab.cli.trust.on_terminal", lambda: True)
    Path("known.toml").write_text(TABLE.replace("naive-bayes", "sklearn.naive_bayes:GaussianNB"))
    done = call("run", "known.toml", "--out", "new")
    assert done.exit_code == 0 and "trust" not in done.stderr


def test_in_python_a_file_is_trusted_by_word_too(call: Call, marking: Path) -> None:
    Path("mail.toml").write_text(BY_MAIL)
    spec = read_spec(Path("mail.toml"))
    for work in (lambda: gather(spec, 0), lambda: start(spec, Path("new"))):
        with pytest.raises(InvalidInput):
            work()
    assert not marking.exists() and not Path("new").exists()


LIBRARIES = ("pandas", "lz4", "cython", "psutil", "multiprocessing", "signal", "pickle", "typer")
"""What libraries import if it is there, and what Python's own processes import first."""

WITHOUT_PANDAS = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path

class NotInstalled:
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            places = [place for place in sys.path if "site-packages" not in place]
            if not (spec := PathFinder.find_spec(name, places)):
                raise ModuleNotFoundError(name, name=name)
            return spec

sys.meta_path.insert(0, NotInstalled)
from consilience.lab.cli.main import main
from consilience.lab.report import drawing
for words in (
    "report run",
    "compare run run",
    "predict run --party north clinics.csv",
    "resume run",
    "run clinics.toml --out new",
):
    sys.argv[1:] = words.split()
    try:
        main()
    except SystemExit as end:
        assert not end.code and not Path("mark").exists(), words
    blank = '<svg viewBox="0 0 1 1"/>', b""
    drawing.rendered = lambda figure, png: blank  # once is enough
"""


def test_modules_of_the_current_folder_are_not_imported(folder: Path, finished: Path) -> None:
    """Nor are settings of its matplotlibrc obeyed, which could have LaTeX started."""
    for name in LIBRARIES:
        Path(f"{name}.py").write_text("open('mark', 'a').write(__name__)\n")
    Path("matplotlibrc").write_text("text.usetex: True\n")
    shutil.copytree(finished, "run")
    command = [sys.executable, "-P", "-c", WITHOUT_PANDAS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_named_module_of_the_current_folder_reaches_worker_processes(folder: Path) -> None:
    """And they, too, import no other of its modules."""
    for name in LIBRARIES:
        Path(f"{name}.py").write_text("1 / 0\n")
    Path("marking.py").write_text(MARKING)
    Path("mail.toml").write_text(BY_MAIL.replace('"local", "uwa"', '"local"'))
    words = ["run", "mail.toml", "--trust", "--quiet"]
    words += ["--set", "network.kind=processes", "--set", "network.processes=1"]
    program = Path(sys.executable).with_name("consilience")  # as it is installed
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "runs/clinics-001\n"), done.stderr
