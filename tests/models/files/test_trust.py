"""An import path that a file names is followed to estimators of trusted packages, and no further."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sklearn.tree import DecisionTreeRegressor

from consilience.core.errors import InvalidInput
from consilience.core.importers import importers
from consilience.methods.functional_boosting.boosted import Boosted
from consilience.models import LEARNERS, ForeignCode, foreign_code, make, trusting
from consilience.models.files.vetting import PACKAGES

MARKING = """
from pathlib import Path
from sklearn.tree import DecisionTreeRegressor
Path(__file__).with_suffix(".mark").touch()
class Model(DecisionTreeRegressor):
    pass
"""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that is there once the module ``marking``, which is on the search path, was imported."""
    (tmp_path / "marking.py").write_text(MARKING)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "marking.mark"
    sys.modules.pop("marking", None)


@pytest.mark.parametrize(
    "name",
    [
        "sklearn.linear_model:RidgeClassifier",
        "sklearn.ensemble._forest:RandomForestClassifier",
        "xgboost:XGBRegressor",
        "lightgbm:LGBMClassifier",
        "consilience.models.kernel_ridge:KernelRidge",
        "consilience.models.torch.networks:mlp",
    ],
)
def test_estimators_of_trusted_packages_need_no_word(name: str) -> None:
    assert make(name).abilities.kind in ("classification", "regression")


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "posix:system",
        "subprocess:Popen",
        "marking:Model",
        "sklearn.datasets:load_digits",
        "sklearn.datasets:fetch_openml",
        "sklearn.datasets._base:Path",
        "sklearn.preprocessing:StandardScaler",
        "consilience.lab.cli.main:main",
        "consilience.models.files.trust:import_module",
        "consilience.models.torch.words:hashed_words",
    ],
)
def test_being_importable_from_a_trusted_package_is_not_enough(name: str, mark: Path) -> None:
    with pytest.raises(ForeignCode, match=r"import and run '.*(\n.*)*--trust") as caught:
        make(name)
    assert caught.value.path == name and caught.value.exit_code == 2
    assert "marking" not in sys.modules and not mark.exists()


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"weak": {"name": "marking:Model"}}, "weak.name"),
        ({"weak": "marking:Model"}, "weak.name"),
        ({"weak": {"name": "boosted", "weak": {"name": "marking:Model"}}}, "weak.weak.name"),
        ({"trusts": ["sklearn", "marking"]}, "trusts"),
        ({"trusts": {"marking": 1}}, "trusts"),
        ({"trusts": "marking"}, "trusts"),
        ({"weak": {"name": "boosted", "trusts": ["marking"]}}, "weak.trusts"),
    ],
)
def test_names_within_a_model_are_held_to_the_same(
    parameters: dict[str, Any], field: str, mark: Path
) -> None:
    with pytest.raises(ForeignCode) as caught:
        make("boosted", **parameters)
    assert caught.value.field == field and "marking" in caught.value.path
    assert not mark.exists()


def test_whoever_trusts_a_file_has_its_code_run(mark: Path) -> None:
    with trusting():
        assert type(make("marking:Model").model).__name__ == "Model" and mark.exists()
        assert make("boosted", weak="marking:Model", trusts=["marking"]).trusts
        with trusting(False), pytest.raises(ForeignCode):
            make("marking:Model")
    with pytest.raises(ForeignCode):
        make("marking:Model")


def test_in_python_packages_are_trusted_by_whoever_writes_their_names() -> None:
    assert "marking" in Boosted(DecisionTreeRegressor(), trusts=["marking"]).trusts


def test_presets_stay_within_the_trusted_packages() -> None:
    for name, entry in LEARNERS.items():
        paths = (entry.target, *entry.before)
        assert all(p.partition(".")[0].partition(":")[0] in PACKAGES for p in paths), name


def test_a_folder_gives_the_modules_that_are_named_and_no_others(tmp_path: Path) -> None:
    """Not in ``sys.path``, where libraries would find what they try to import on their own."""
    (tmp_path / "in_folder.py").write_text(MARKING)
    (tmp_path / "in_folder_too.py").write_text(MARKING)
    searched = list(sys.path)
    try:
        with trusting(folders=(tmp_path,)):
            assert make("in_folder:Model").abilities.kind == "regression"
        with trusting(), pytest.raises(InvalidInput, match="cannot import 'in_folder_too'"):
            make("in_folder_too:Model")
        assert sys.path == searched and not (tmp_path / "in_folder_too.mark").exists()
        sent = pickle.dumps(importers())
        sys.meta_path[:] = [one for one in sys.meta_path if one not in importers()]
        assert len(pickle.loads(sent)) == 1 and len(importers()) == 1
    finally:
        sys.meta_path[:] = [one for one in sys.meta_path if one not in importers()]
        sys.modules.pop("in_folder", None)


@pytest.mark.parametrize("name", ["..os:system", "a/b:c", "os:", ":system", "sklearn..svm:SVC"])
def test_what_is_no_import_path(name: str) -> None:
    with trusting(), pytest.raises(InvalidInput, match="no import path"):
        make(name)


def test_where_code_would_come_from_is_told_without_importing_it(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("1 / 0")
    (tmp_path / "package" / "models.py").write_text("1 / 0")
    where = {
        "package.models:Model": str(tmp_path / "package" / "models.py"),
        "package.others:Model": "not found",
        "posix:system": "built-in",
        "no_such_package.at_all:Model": "not found",
    }
    assert {path: ForeignCode(path).source(tmp_path) for path in where} == where


def test_an_error_crosses_processes() -> None:
    error = ForeignCode("a:b", "name").within("models.0").said_in(Path("c.json"))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error).startswith("c.json: models.0.name: it would import and run 'a:b'")


def test_every_name_is_shown_and_no_other_is_trusted(mark: Path) -> None:
    trusts, weak = ["harmless", "more"], {"name": "marking:Model"}
    found = foreign_code("boosted", {"trusts": trusts, "weak": weak})
    assert [(one.field, one.path) for one in found] == [
        ("trusts", "harmless"),
        ("trusts", "more"),
        ("weak.name", "marking:Model"),
    ]
    with trusting(names=trusts), pytest.raises(ForeignCode, match="marking:Model"):
        make("boosted", trusts=trusts, weak=weak)
    assert not mark.exists()
