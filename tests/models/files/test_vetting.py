"""Files that hold more than a model: nothing of them is built, called or looked up by an index."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from consilience.core.errors import KnowledgeRefused
from consilience.core.learners import Learner, as_learner
from consilience.models import make
from consilience.models.files.transfer import pack, unpack
from consilience.models.files.vetting import refused, unsound

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
Y = X @ [[1.0], [2.0], [3.0]]


def trained(model: Any) -> Learner:
    learner = as_learner(model)
    learner.bind(1)
    learner.fit(X, Y, rng=np.random.default_rng(0), phase="first")
    return learner


def with_node(node: dict[str, Any]) -> tuple[str, Any]:
    """An honest ridge regression's file, with one more object in it."""
    about, data = pack(trained(Ridge()))
    described = json.loads(about)
    length = described["prototype"]
    blob = data.tobytes()
    old = zipfile.ZipFile(io.BytesIO(blob[:length]))
    schema = json.loads(old.read("schema.json"))
    schema["key_types"]["content"].append({**schema["key_types"]["content"][0], "__id__": 999_991})
    schema["content"]["more"] = {"__id__": 999_992, **node}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as new:
        for part in old.infolist():
            if part.filename != "schema.json":
                new.writestr(part.filename, old.read(part.filename))
        new.writestr("schema.json", json.dumps(schema))
    described["prototype"] = len(made.getvalue())
    whole = np.frombuffer(made.getvalue() + blob[length:], dtype=np.uint8)
    return json.dumps(described), whole


def plain(value: Any) -> dict[str, Any]:
    """A value as skops writes it."""
    with zipfile.ZipFile(io.BytesIO(skops.io.dumps(value))) as file:
        schema: dict[str, Any] = json.loads(file.read("schema.json"))
    return {k: v for k, v in schema.items() if k not in ("protocol", "_skops_version")}


def node(loader: str, name: str, content: Any = None) -> dict[str, Any]:
    module, _, kind = name.rpartition(".")
    return {"__class__": kind, "__module__": module, "__loader__": loader, "content": content}


def test_the_tool_of_these_tests_makes_files_that_are_otherwise_sound() -> None:
    about, data = with_node(plain({"a": [1, 2.5, "text"]}))
    assert np.isfinite(unpack(about, data).predict(X)).all()


@pytest.mark.parametrize("loader", ["ConstructorFromReduceNode", "ListNode", "TupleNode"])
@pytest.mark.parametrize(
    "name", ["numpy.memmap", "subprocess.Popen", "scipy.io._netcdf.netcdf_file"]
)
def test_no_class_is_called_with_what_a_file_says(name: str, loader: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    told = plain((str(victim), "uint8", "w+", 0, (4,)))
    about, data = with_node(
        node(loader, name, told if loader == "ConstructorFromReduceNode" else told["content"])
    )
    with pytest.raises(KnowledgeRefused, match=f"the model file holds {name}"):
        unpack(about, data)
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("loader", "name"),
    [
        ("TypeNode", "sklearn.linear_model._ridge.Ridge"),  # a class as a value may be called later
        ("FunctionNode", "sklearn.utils.extmath.fast_logdet"),
        ("ObjectNode", "sklearn.base.defaultdict"),  # imported there, not defined
        ("ObjectNode", "os.PathLike"),
        ("DictNode", "sklearn.linear_model._ridge.Ridge"),
        ("MethodNode", "sklearn.linear_model._ridge.Ridge"),
    ],
)
def test_other_things_that_are_no_state(loader: str, name: str) -> None:
    content = {} if loader == "DictNode" else plain({})
    given = node(loader, name, content) | {"key_types": plain([]), "is_json": False}
    if loader == "MethodNode":
        given["content"] = {"func": "fit", "obj": plain(Ridge())}
    about, data = with_node(given)
    with pytest.raises(KnowledgeRefused, match="the model file"):
        unpack(about, data)


def test_compressed_parts_are_refused_before_they_are_read() -> None:
    blob = skops.io.dumps({"zeros": np.zeros(10**6)}, compression=zipfile.ZIP_DEFLATED)
    assert len(blob) < 10**5
    assert refused(blob, known=set()) == ["compressed parts"]
    assert refused(skops.io.dumps({"zeros": np.zeros(3)}), known=set()) == []


def test_trust_reaches_into_a_model() -> None:
    xgboost = pytest.importorskip("xgboost")
    inner = xgboost.XGBRegressor(n_estimators=2, n_jobs=1)
    about, data = pack(trained(BaggingRegressor(inner, n_estimators=1)))
    assert unpack(about, data).predict(X).shape == (60, 1)
    with pytest.raises(KnowledgeRefused, match="xgboost"):
        unpack(about, data, trusted=("sklearn",))
    # Not even where the untrained model does not show it.
    bare = trained(BaggingRegressor(n_estimators=1))
    bare.trained.estimators_[0] = trained(inner).trained  # type: ignore[attr-defined]
    about, data = pack(bare)
    with pytest.raises(KnowledgeRefused, match="xgboost"):
        unpack(about, data, trusted=("sklearn",))


def test_a_model_is_what_it_is_called() -> None:
    about, data = pack(trained(Ridge()))
    described = json.loads(about) | {"model": "sklearn.linear_model._base:LinearRegression"}
    with pytest.raises(KnowledgeRefused, match="not what it is called"):
        unpack(json.dumps(described), data)


@pytest.mark.parametrize(
    "name",
    [
        "sklearn:set_config",  # a package that is trusted for its models
        "consilience.models.torch.networks:partial",  # imported there
        "consilience.models.torch.layers:ResidualBlock",  # a class
        "consilience.models.torch.transformer:_transformer",  # would load what it is told to
        "json:loads",
    ],
)
def test_only_functions_of_named_modules_build_networks(name: str) -> None:
    import sklearn

    learner = make("mlp", hidden=(4,), kind="regression", recipe={"first_epochs": 1})
    learner.bind(1)
    learner.fit(X, Y, rng=np.random.default_rng(0), phase="first")
    about, data = pack(learner)
    assert unpack(about, data).predict(X).shape == (60, 1)
    described = json.loads(about) | {"model": name, "parameters": {"transform_output": "pandas"}}
    with pytest.raises(KnowledgeRefused, match=r"not trusted|no function of that|not built from"):
        unpack(json.dumps(described), data)
    assert sklearn.get_config()["transform_output"] == "default"


@pytest.mark.parametrize(
    ("name", "declared", "said"),
    [
        ("mlp", {"hidden": (20_000, 20_000)}, "has shape"),
        ("cnn", {"hidden": (20_000, 20_000)}, "has shape"),
        ("cnn", {"channels": (20_000, 20_000)}, "has shape"),
        ("cnn", {"input_shape": (60_000, 60_000)}, "it takes inputs of shape"),
        ("cnn", {"input_shape": (4_000, 4_000)}, "has shape"),
    ],
)
def test_networks_whose_numbers_are_not_there_get_no_memory(
    name: str, declared: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.numpy import load, save

    from consilience.models.torch import modules

    learner = make(name, kind="regression", recipe={"first_epochs": 1})
    learner.bind(1)
    images = np.ones((6, 8, 8))
    learner.fit(images, np.ones((6, 1)), rng=np.random.default_rng(0), phase="first")
    about, data = pack(learner)
    taken: list[str] = []
    laid_out = modules.given_room

    def counted(module: Any, device: Any) -> Any:
        assert all(part.is_meta for part in module.parameters())
        taken.append(name)
        return laid_out(module, device)

    monkeypatch.setattr(modules, "given_room", counted)
    monkeypatch.setattr(modules.ModuleBuilder, "build", None)
    assert np.array_equal(unpack(about, data).predict(images), learner.predict(images))
    assert taken == [name]  # a model of that kind passes through there, and nowhere else
    described = json.loads(about)
    if shape := declared.get("input_shape"):
        said_of = {"input_shape": shape, "dtype": "<f8", "n_outputs": 1}
        data = np.frombuffer(
            save(load(data.tobytes()), {"consilience": json.dumps(said_of)}), dtype=np.uint8
        )
    else:
        described["parameters"] |= declared
    with pytest.raises(KnowledgeRefused, match=f"a model that cannot be used: .*{said}"):
        unpack(json.dumps(described), data)
    assert taken == [name]


def predictor(learner: Any) -> Any:
    return learner.trained._predictors[0][0].nodes


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("feature_idx", 3, "a column that its inputs do not have"),
        ("left", 10**6, "a branch that leads nowhere"),
        ("right", 0, "a branch that leads nowhere"),  # back to the root: a loop
    ],
)
def test_boosted_trees_point_into_themselves(field: str, value: int, said: str) -> None:
    learner = trained(HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=5))
    assert unpack(*pack(learner)).predict(X).shape == (60, 1)
    predictor(learner)[field][0] = value
    with pytest.raises(KnowledgeRefused, match=said):
        unpack(*pack(learner))


def test_categories_that_are_not_there() -> None:
    learner = trained(HistGradientBoostingRegressor(max_iter=1, min_samples_leaf=5))
    nodes = predictor(learner)
    nodes["is_categorical"][0] = 1
    nodes["bitset_idx"][0] = 7
    with pytest.raises(KnowledgeRefused, match="a category set that is not there"):
        unpack(*pack(learner))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("feature", 3, "a column that its inputs do not have"),
        ("feature", -1, "a column that its inputs do not have"),
        ("left_child", 10**6, "a branch that leads nowhere"),
        ("right_child", 0, "a branch that leads nowhere"),
    ],
)
def test_trees_point_into_themselves(field: str, value: int, said: str) -> None:
    learner: Any = trained(DecisionTreeRegressor(max_depth=3))
    tree = learner.trained.tree_
    state = tree.__getstate__()
    state["nodes"] = state["nodes"].copy()
    state["nodes"][field][0] = value
    tree.__setstate__(state)
    with pytest.raises(KnowledgeRefused, match=said):
        unpack(*pack(learner))


def test_a_tree_whose_owner_does_not_say_its_columns() -> None:
    learner: Any = trained(DecisionTreeRegressor(max_depth=3))
    del learner.trained.n_features_in_
    with pytest.raises(KnowledgeRefused, match="a column that its inputs do not have"):
        unpack(*pack(learner))


@pytest.mark.parametrize(
    "model",
    [
        VotingRegressor([("a", Ridge()), ("b", DecisionTreeRegressor())]),
        StackingRegressor([("a", Ridge())], final_estimator=Ridge()),
        make_pipeline(SimpleImputer(), KBinsDiscretizer(), Ridge()),
        make_pipeline(PolynomialFeatures(), PCA(2), SGDRegressor()),
        GradientBoostingRegressor(n_estimators=2),
        BaggingRegressor(n_estimators=2),
        TransformedTargetRegressor(Ridge(), func=np.arcsinh, inverse_func=np.sinh),
    ],
    ids=lambda model: type(model).__name__,
)
def test_usual_models_travel(model: Any) -> None:
    learner = trained(model)
    assert np.array_equal(unpack(*pack(learner)).predict(X), learner.predict(X))


def test_sound_models_are_sound() -> None:
    y = (Y[:, 0] > 0).astype(int)
    forest = RandomForestClassifier(5).fit(X, y)
    pipeline = make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=2)).fit(
        X, Y[:, 0]
    )
    assert unsound({"models": [forest, pipeline]}) is None
