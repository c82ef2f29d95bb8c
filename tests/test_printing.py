"""No public object prints private rows: not as text, not as HTML, and not in a traceback's names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier

import consilience
from consilience import (
    Classes,
    FederatedClassifier,
    FederatedRegressor,
    Federation,
    Frozen,
    KernelFederation,
    KernelRidge,
    LocalNetwork,
    Party,
    PartyRules,
    Population,
    PrivateTable,
    ProcessNetwork,
    as_learner,
    avg,
    ensemble_distillation,
)
from consilience.core.messages.message import REGISTRY
from consilience.core.messages.schema import Public
from consilience.core.party.rules import Keys
from consilience.core.validation.printing import described
from consilience.tables.dataset import Dataset

MARK = 86_753
"""Begins every private number; no public row and no other figure of a run has it."""
SECRET = "quixotry"
"""Every private text."""


def rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Private rows, shape (12, 2), and their labels."""
    X = MARK + np.random.default_rng(seed).uniform(0, 0.5, (12, 2))
    return X, np.where(X[:, 0] > np.median(X[:, 0]), "yes", "no")


def parties() -> list[Party]:
    return [
        Party(name, KNeighborsClassifier(2), *rows(seed), test=rows(seed + 9))
        for seed, name in enumerate(("north", "south"))
    ]


def tables() -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    found = {}
    for seed, name in enumerate(("north", "south")):
        X, y = rows(seed)
        found[name] = pd.DataFrame({"age": X[:, 0], "note": [SECRET] * 12}), y
    return found


PUBLIC = np.random.default_rng(5).uniform(MARK - 1, MARK, (20, 2))
PUBLIC[::2] += 2  # of the scale of private rows, and with other digits
PUBLIC_TABLE = pd.DataFrame({"age": PUBLIC[:, 0], "note": ["plain", "other"] * 10})


def of_classes() -> FederatedClassifier:
    given = {name: rows(seed) for seed, name in enumerate(("north", "south"))}
    return FederatedClassifier(given, model=KNeighborsClassifier(2), rounds=1).fit(PUBLIC)


def of_tables() -> FederatedClassifier:
    return FederatedClassifier(tables(), rounds=1, model=DummyClassifier(strategy="prior"))


def of_values() -> FederatedRegressor:
    given = {name: (rows(seed)[0], rows(seed)[0][:, 1]) for seed, name in enumerate("ab")}
    return FederatedRegressor(
        given, model=KernelRidge(kernel="rbf", regularization=0.1), rounds=1
    ).fit(PUBLIC)


def federation() -> Federation:
    return Federation(parties(), PUBLIC)


MADE: dict[str, Callable[[], Any]] = {
    "FederatedClassifier": of_classes,
    "FederatedRegressor": of_values,
    "Federation": federation,
    "History": lambda: federation().run(ensemble_distillation(aggregate=avg(), rounds=1)),
    "Party": lambda: [*parties(), Party("t", DummyClassifier(), *tables()["north"])],
    "Model": lambda: of_classes().models_["north"],
    "as_learner": lambda: fitted(as_learner(KNeighborsClassifier(2))),
    "KernelRidge": lambda: KernelRidge(kernel="rbf", regularization=0.1).fit(
        *(part := rows(0)[0], part[:, 1])
    ),
    "KernelFederation": lambda: KernelFederation(
        "rbf", [(rows(i)[0], rows(i)[0][:, 0]) for i in range(2)], PUBLIC, regularization=0.1
    ),
    "Frozen": lambda: Party(
        "f", Frozen(lambda X: np.full(len(X), MARK), classes=["no", "yes"]), rows(0)[0]
    ),
    "LocalNetwork": lambda: LocalNetwork(parties(), Public(PUBLIC)),
    "ProcessNetwork": lambda: ProcessNetwork(parties(), Public(PUBLIC)),
    "Population": lambda: Population(["north"], lambda name: parties()[0]),
    "PrivateTable": lambda: PrivateTable(tables()["north"][0]),
    "PartyRules": lambda: PartyRules(keys=Keys(secret=SECRET.encode())),
    "Classes": lambda: Classes(["no", "yes"]),
}
"""How an object of each public class that may hold rows is made."""

RULES = sorted(
    set(consilience.__all__)
    - MADE.keys()
    - {"ConsilienceError", "InvalidInput", "Deregularization"}
)
"""Functions that make aggregators and protocols, which hold settings."""


def fitted(learner: Any) -> Any:
    learner.bind(2)
    learner.fit(rows(0)[0], np.eye(2)[[0, 1] * 6], rng=np.random.default_rng(0))
    return learner


def printed(value: object) -> Iterator[str]:
    """All that a notebook, a tracker or a log prints of an object."""
    yield repr(value)
    yield str(value)
    yield from (f"{value}",)
    for way in ("_repr_html_", "_repr_mimebundle_", "_repr_markdown_", "_repr_latex_"):
        if callable(shown := getattr(value, way, None)):
            yield str(shown())


def tells(text: str) -> bool:
    """Tell whether a text holds a private value; addresses and digests are not looked at."""
    plain = re.sub(r"0x[0-9a-f]+|\b[0-9a-f]{16,}\b", "", text.replace(",", ""))
    return any(mark in plain for mark in (str(MARK), "8.6753", SECRET))


def reachable(value: object, path: str, seen: set[int], depth: int) -> Iterator[tuple[str, object]]:
    """Objects of consilience that are reached from one by attributes, sequences and mappings."""
    if id(value) in seen or depth < 0:
        return
    seen.add(id(value))
    inside: list[tuple[str, object]] = []
    if isinstance(value, Mapping):
        inside = [(f"[{key!r}]", one) for key, one in list(value.items())[:5]]
    elif isinstance(value, list | tuple | set | frozenset):
        inside = [(f"[{place}]", one) for place, one in enumerate(list(value)[:5])]
    elif type(value).__module__.partition(".")[0] == "consilience":
        yield path, value
        inside = [(f".{name}", one) for name, one in getattr(value, "__dict__", {}).items()]
    for name, one in inside:
        yield from reachable(one, path + name, seen, depth - 1)


def test_every_public_name_is_walked() -> None:
    """A new name stands in ``MADE``, or is a function that makes a rule of its settings."""
    for name in RULES:
        assert callable(getattr(consilience, name)) and not isinstance(
            getattr(consilience, name), type
        )


@pytest.mark.parametrize("name", sorted(MADE))
def test_nothing_public_prints_private_rows(name: str) -> None:
    """As it is, and all of consilience that it holds."""
    made = MADE[name]()
    kept: list[object] = []  # so that no number of an object comes twice
    places = list(reachable(made, name, set(), 8))
    assert places
    for path, value in places:
        kept.append(value)
        for text in printed(value):
            assert not tells(text), path


def test_an_estimator_prints_names_of_its_parties() -> None:
    """Its parameters are what trackers keep, and an estimator around it prints them too."""
    for made in (of_classes(), of_tables(), clone(of_tables()), of_values()):
        around = GridSearchCV(made, {"rounds": [1]})
        params = {**made.get_params(), **around.get_params()}
        for text in (*printed(made), *printed(around), *map(str, params.values()), str(params)):
            assert not tells(text)
    assert "'north': <2 × ndarray>" in repr(of_classes())
    changed = FederatedClassifier().set_params(parties=tables())
    assert not tells(repr(changed)) and "north" in repr(changed)
    changed.parties = tables()
    assert not tells(repr(changed))


def test_kernel_ridge_shows_no_rows_inside_of_others() -> None:
    X = rows(0)[0]
    search = GridSearchCV(
        KernelRidge(kernel="rbf", regularization=0.1), {"regularization": [0.1]}, cv=2
    ).fit(X, X[:, 1])
    for text in printed(search):
        assert not tells(text)


def test_data_sets_print_their_shapes() -> None:
    X, y = rows(0)
    text = repr(Dataset("patients", X, (y == "yes").astype(int), X, [0, 1] * 6, ("no", "yes")))
    assert "X=<float64 of shape (12, 2)>" in text and "86753" not in text
    assert "classes=('no', 'yes')" in text


def test_every_dataclass_with_rows_prints_their_shapes_alone() -> None:
    """Whatever module it is of: messages do, and any other that has arrays or tables says so."""
    wanting, found = [], 0
    for path in sorted(Path(consilience.__file__).parent.rglob("*.py")):
        for cls in ast.walk(ast.parse(path.read_text())):
            marks = [ast.unparse(mark) for mark in getattr(cls, "decorator_list", ())]
            if not isinstance(cls, ast.ClassDef) or not any("dataclass" in one for one in marks):
                continue
            kinds = [
                ast.unparse(one.annotation)
                for one in cls.body
                if isinstance(one, ast.AnnAssign)
                and (one.value is None or "repr=False" not in ast.unparse(one.value))
            ]
            if any(word in kind for kind in kinds for word in ("Array", "ndarray", "Table")):
                found += 1
                if "prints_no_rows" not in marks:
                    wanting.append(f"{path.name}: {cls.name}")
    assert found > 40 and not wanting


def test_every_message_prints_its_shapes_alone() -> None:
    assert len(REGISTRY) > 30
    for cls in REGISTRY.values():
        assert "prints_no_rows" in cls.__repr__.__qualname__


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.full((2, 3), MARK), "<int64 of shape (2, 3)>"),
        (pd.DataFrame({"a": [MARK]}), "<DataFrame of shape (1, 1)>"),
        ([MARK, MARK], "<2 × int>"),
        ({"north": MARK, "south": [SECRET]}, "{'north': <int>, 'south': <1 × str>}"),
        (("no", "yes"), "('no', 'yes')"),
        (b"abc", "<3 bytes>"),
        (None, "None"),
        (0.5, "0.5"),
        ("x" * 200, repr("x" * 100 + "…")),
    ],
)
def test_what_is_said_of_a_value(value: object, said: str) -> None:
    assert described(value) == said
