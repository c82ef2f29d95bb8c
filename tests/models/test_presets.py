"""Learners by name: each works on flat rows and images; mistakes meet the nearest name."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from consilience.core.errors import InvalidInput
from consilience.core.learners import Learner, as_learner
from consilience.core.learners.sklearn.learner import SklearnLearner
from consilience.models import LEARNERS, make

DIGITS, LABELS = load_digits(return_X_y=True)
IMAGES = DIGITS.reshape(-1, 8, 8) / 16
KNOWN = np.array([1, 4, 7])
ROWS = np.flatnonzero(np.isin(LABELS, KNOWN))[:150]
TEST = np.flatnonzero(np.isin(LABELS, KNOWN))[150:]
TARGETS = 0.9 * np.eye(10)[LABELS[ROWS]] + 0.1 / 10

# Small, for speed only.
SMALL: dict[str, dict[str, Any]] = {
    "gradient-boosting": {"max_iter": 4, "min_samples_leaf": 5},
    "gradient-boosting-regressor": {"max_iter": 20},
    "xgboost": {"n_estimators": 8},
    "xgboost-regressor": {"n_estimators": 10},
    "lightgbm": {"n_estimators": 6},
    "lightgbm-regressor": {"n_estimators": 20},
    "catboost": {"iterations": 20},
    "catboost-regressor": {"iterations": 60},
    "random-forest": {"n_estimators": 20},
    "extra-trees": {"n_estimators": 20},
    "mlp-sklearn": {"hidden_layer_sizes": (20,)},
    "mlp": {"hidden": (32, 16), "recipe": {"learning_rate": 0.01}},
    "cnn": {"recipe": {"learning_rate": 0.01}},
    "lenet5": {"recipe": {"learning_rate": 0.003, "first_epochs": 40}},
    "resnet8": {"width": 4, "recipe": {"learning_rate": 0.02, "first_epochs": 6}},
    "resnet18": {"width": 2, "recipe": {"learning_rate": 0.02, "first_epochs": 6}},
    "text-embedding": {"buckets": 512, "recipe": {"learning_rate": 0.05}},
}


def trained(name: str, X: np.ndarray, targets: np.ndarray) -> Learner:
    if name.startswith("catboost"):
        pytest.importorskip("catboost")
    learner = make(name, **SMALL.get(name, {}))
    learner.bind(targets.shape[1])
    learner.check(X)
    learner.fit(X, targets, rng=np.random.default_rng(1), phase="first")
    return learner


CLASSIFIERS = [name for name, entry in LEARNERS.items() if entry.kind != "regression"]
CLASSIFIERS.remove("vgg16")  # takes larger images: test_torch.py
CLASSIFIERS.remove("transformer")  # loads a folder: test_torch_transformer.py
CLASSIFIERS.remove("static-logistic")  # read files of packages: test_encoders.py
CLASSIFIERS.remove("encoded-logistic")
CLASSIFIERS.remove("frozen")  # is not trained: tests/core/party/test_roles.py
CLASSIFIERS.remove("survival-forest")  # learn bins in their order: test_survival.py
CLASSIFIERS.remove("cox")


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name: str, tmp_path: Any) -> None:
    if name in ("tfidf-logistic", "text-embedding"):
        X = test = np.array([f"word{label} and" for label in LABELS[ROWS]])
        labels = LABELS[ROWS]
        learner = trained(name, X, TARGETS)
    else:
        X, test, labels = IMAGES[ROWS], IMAGES[TEST], LABELS[TEST]
        learner = trained(name, X, TARGETS)
        flat = trained(name, X.reshape(-1, 64), TARGETS).predict(test.reshape(-1, 64))
        np.testing.assert_array_equal(learner.predict(test), flat)
    answer = learner.predict(test)
    assert (answer.argmax(axis=1) == labels).mean() > 0.8
    np.testing.assert_allclose(answer.sum(axis=1), 1, rtol=1e-12)
    assert learner.logits(test).shape == answer.shape
    assert learner.abilities.how
    file = tmp_path / f"model{learner.suffix}"
    learner.save(file)
    again = make(name, **SMALL.get(name, {}))
    again.load(file)
    np.testing.assert_array_equal(again.predict(test), answer)


@pytest.mark.parametrize("name", [n for n, entry in LEARNERS.items() if entry.kind == "regression"])
def test_regressors(name: str, tmp_path: Any) -> None:
    values = np.stack([IMAGES[ROWS, 2, 3] * 2, IMAGES[ROWS, 4, 4]], axis=1)
    learner = trained(name, IMAGES[ROWS], values)
    answer = learner.predict(IMAGES[ROWS])
    assert np.square(answer - values).mean() < 0.3 * values.var(axis=0).mean()
    learner.save(tmp_path / "model.skops")
    again = make(name, **SMALL.get(name, {}))
    again.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(IMAGES[ROWS]), answer)


def test_a_network_for_regression() -> None:
    learner = make("mlp", kind="regression", recipe={"first_epochs": 40})
    values = IMAGES[ROWS, 2, 3, None]
    learner.fit(IMAGES[ROWS], values, rng=np.random.default_rng(0), phase="first")
    assert np.square(learner.predict(IMAGES[ROWS]) - values).mean() < 0.5 * values.var()


def test_import_paths() -> None:
    learner = make("sklearn.linear_model:RidgeClassifier", alpha=2.0)
    assert isinstance(learner, SklearnLearner) and learner.model.alpha == 2.0
    assert as_learner("knn", kind="classification").abilities.kind == "classification"
    assert as_learner(learner) is learner


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("random-forrest", {}, "Did you mean 'random-forest'"),
        ("transformer-xl", {}, "unknown learner"),
        ("random-forest", {"n_estimator": 5}, "Did you mean 'n_estimators'"),
        ("logistic-regression", {"c": 5}, "unknown parameter 'c'"),
        ("xgboost", {"n_estimatrs": 5}, "Did you mean 'n_estimators'"),
        ("lightgbm", {"num_leafs": 5}, "Did you mean 'num_leaves'"),
        ("mlp", {"epochs": 5}, "recipe = {epochs"),
        ("mlp", {"hiden": [5]}, "Did you mean 'hidden'"),
        ("mlp", {"hidden": [0]}, "whole number above 0"),
        ("mlp", {"hidden": 64}, "Give a list of numbers"),
        ("lenet5", {"activation": "tan"}, "Known: relu, tanh"),
        ("resnet18", {"norm": "grup"}, "resnet18: norm is 'grup'\n  Known: batch, group"),
        ("resnet8", {"width": 0}, "whole number above 0"),
        ("text-embedding", {"buckets": 2.5}, "buckets is 2.5\n  Give a whole number above 0"),
        ("text-embedding", {"hidden": 5}, "hidden is 5\n  Give a list of numbers"),
        ("transformer", {}, "pretrained"),
        ("mlp", {"recipe": {"epoch": 5}}, "Did you mean 'epochs'"),
        ("ridge", {"kind": "classification"}, "is a regressor"),
        ("random-forest", {"max_depth": "deep"}, "max_depth"),
        ("sklearn.no_such_module:Model", {}, "cannot import 'sklearn.no_such_module'"),
        ("sklearn.svm:SVCC", {}, "Did you mean"),
        ("sklearn.svm:", {}, "package.module:Class"),
        ("sklearn:__version__", {}, "not a class or function"),
        ("sklearn.svm:SVC", {"gama": 1}, "Did you mean 'gamma'"),
        ("sklearn.ensemble:VotingClassifier", {}, "cannot be made"),
    ],
)
def test_mistakes(name: str, parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make(name, **parameters)


def test_a_learner_is_not_turned_into_another_kind() -> None:
    with pytest.raises(InvalidInput, match="for classification"):
        as_learner(make("knn"), kind="regression")


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match=r"consilience\[xgboost\]"):
        make("xgboost")


def test_every_preset_lists_its_parameters() -> None:
    for entry in LEARNERS.values():
        if entry.extra in ("catboost", "survival") and not find_spec(
            entry.target.split(".")[0].split(":")[0]
        ):
            continue
        assert entry.parameters() and set(entry.defaults) <= set(entry.parameters())
        assert entry.summary


def test_importing_learners_imports_no_library() -> None:
    heavy = "{'torch', 'transformers', 'sklearn', 'skops', 'xgboost', 'lightgbm'}"
    code = f"import consilience.core.learners, sys; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_whether_a_preset_can_be_saved_is_known_without_the_library_that_does_it() -> None:
    """It imports all of scikit-learn, which nobody should wait for before the first round."""
    names = [
        "random-forest",
        "logistic-regression",
        "knn",
        "gradient-boosting",
        "svc",
        "mlp-sklearn",
    ]
    code = (
        "import sys; from consilience.models import make;"
        f"[make(name).check_saving() for name in {names}]; assert 'skops' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_saving_a_model_imports_no_other_library() -> None:
    """skops by itself would import PyTorch; nothing that it was kept from stays out of reach."""
    code = (
        "import sys; from consilience.models import make; "
        "from consilience.models.files.store import blob_of; "
        "model = make('naive-bayes').model; blob_of({'models': [model]}, given=model, where='');"
        "assert 'skops.io' in sys.modules and not {'torch', 'xgboost', 'lightgbm'} & set(sys.modules);"
        "assert 'sklearn.externals.array_api_compat.torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
