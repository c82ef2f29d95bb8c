"""Split of the classes over clients, and their models (Kovalchuk et al. 2026, section 5.1 and Table 2).

Ten clients hold a share of the classes each, in equal numbers. The paper gives architectures, sizes, epochs
and batches (:data:`SIZES`, ``"full"``); our copy of its text has lost the learning rates and the temperature
of sUWA: Adam's usual 1e-3 stands here, and :data:`TEMPERATURE`.

20 newsgroups take the place of Yahoo Answers where that is not at hand; with 20 classes in the place of ten,
shares of them are what is kept. Its network is a mean of word vectors, learned from nothing, in the place of
BERT-tiny. CIFAR-100 has its 20 coarse classes at the sizes for one core, and its networks are not pretrained
at any size. Clients hold different rows: where the paper's numbers of rows do not allow that, rows are dealt
out to the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.core.aggregation import AGGREGATORS, Aggregator, suwa
from consilience.lab.experiments import SimulatedParties, gather, parse_spec
from consilience.lab.experiments.oracles import class_holders

PARTIES = 10

SHARES = (0.2, 0.3, 0.4, 0.5, 0.7, 0.9, 1.0)
"""k, as a share of all classes."""

FEWER = {
    ("cifar-10", "cpu"): (0.2, 0.3, 0.5, 1.0),
    ("cifar-100", "cpu"): (0.3, 0.9),
}
"""Data set and size to shares, where a core has no time for all."""

TEMPERATURE = 0.1
"""T of sUWA."""

NAMES = {
    "cifar-10": "CIFAR-10",
    "cifar-100": "CIFAR-100",
    "20newsgroups": "20 newsgroups",
    "yahoo-answers": "Yahoo Answers",
}

RULES = ("AVG", "UWA", "sUWA")
"""The paper's."""

OURS = "density ratio"
HOLDERS = "class-holders"
"""A teacher that knows the true class of every public row, and who was trained on it."""


@dataclass(frozen=True)
class Size:
    """Amount of data and training.

    Attributes:
        title: as notes call it.
        options: of the data set's loader.
        samples: a client's private rows, a fifth of them for calibration; ``None`` for all there are.
        public: unlabelled rows.
        test: test rows at most.
        rounds: of distillation.
        model: a network with its recipe, as a configuration has it.
        averaging: what is different in SCAFFOLD's recipe.
        rates: SCAFFOLD's, of which one is chosen on rows that it does not train on.
        exchanges: SCAFFOLD's rounds.
    """

    title: str
    options: Mapping[str, Any]
    samples: int | None
    public: int
    test: int
    rounds: int
    model: Mapping[str, Any]
    averaging: Mapping[str, Any]
    rates: tuple[float, ...]
    exchanges: int


def _recipe(batch: int, first: int, later: int, **other: Any) -> dict[str, Any]:
    return {
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "batch_size": batch,
        "first_epochs": first,
        "epochs": later,
        "distill_epochs": later,
        **other,
    }


def _averaging(epochs: int) -> dict[str, Any]:
    """Recipe of plain gradient descent, which SCAFFOLD's control variates are made for."""
    return {"optimizer": "sgd", "first_epochs": epochs, "epochs": epochs, "gradient_clip": 5.0}


_RESNET = {"name": "resnet18", "norm": "group"}
_FULL_RATES = (0.01, 0.03, 0.1)
_AUGMENT = {"crop": 4, "flip": True}

SIZES: Mapping[str, Mapping[str, Size]] = {
    "cifar-10": {
        "full": Size(
            "full", {}, None, 5000, 10000, 50,
            {**_RESNET, "recipe": _recipe(128, 20, 2, augment=_AUGMENT)}, _averaging(2), _FULL_RATES, 20,
        ),
        "cpu": Size(
            "CPU", {}, 500, 1000, 1000, 4,
            {
                "name": "cnn",
                "channels": [8, 16],
                "recipe": _recipe(16, 10, 1, learning_rate=2e-3, distill_epochs=4),
            },
            _averaging(3), (0.03, 0.1, 0.3), 10,
        ),
        "quick": Size(
            "quick", {}, 60, 40, 100, 2,
            {"name": "mlp", "hidden": [8], "recipe": _recipe(16, 2, 1)}, _averaging(1), (0.1,), 2,
        ),
    },
    "20newsgroups": {
        "cpu": Size(
            "CPU", {}, 400, 1500, 2000, 6,
            {"name": "text-embedding", "recipe": _recipe(64, 10, 2, learning_rate=2e-2, distill_epochs=4)},
            {**_averaging(10), "gradient_clip": 1000.0}, (50.0, 150.0), 12,
        ),
        "quick": Size(
            "quick", {}, 60, 40, 100, 2,
            {"name": "text-embedding", "buckets": 256, "width": 8, "recipe": _recipe(16, 2, 1)},
            _averaging(1), (1.0,), 2,
        ),
    },
    "yahoo-answers": {
        "full": Size(
            "full", {}, 1500, 2000, 10000, 50,
            {
                "name": "transformer",
                "pretrained": "google/bert_uncased_L-2_H-128_A-2",
                "recipe": _recipe(32, 3, 1, optimizer="adamw"),
            },
            _averaging(1), _FULL_RATES, 20,
        ),
    },
    "cifar-100": {
        "full": Size(
            "full", {}, None, 5000, 10000, 50,
            {**_RESNET, "recipe": _recipe(128, 1, 1, augment=_AUGMENT)}, _averaging(1), _FULL_RATES, 20,
        ),
        "cpu": Size(
            "CPU", {"coarse": True}, 500, 1000, 1000, 3,
            {
                "name": "cnn",
                "channels": [8, 16],
                "recipe": _recipe(16, 10, 1, learning_rate=2e-3, distill_epochs=4),
            },
            _averaging(3), (0.03, 0.1, 0.3), 10,
        ),
        "quick": Size(
            "quick", {"coarse": True}, 60, 40, 100, 2,
            {"name": "mlp", "hidden": [8], "recipe": _recipe(16, 2, 1)}, _averaging(1), (0.1,), 2,
        ),
    },
}  # fmt: skip
"""Data set to size, by name: the paper's, what one core trains in a minute a run, and less than that."""


def data_of(size: str) -> tuple[str, ...]:
    """The data sets that come in this size.

    >>> data_of("cpu"), data_of("full")
    (('cifar-10', '20newsgroups', 'cifar-100'), ('cifar-10', 'yahoo-answers', 'cifar-100'))
    """
    return tuple(name for name, sizes in SIZES.items() if size in sizes)


TEXTS = {"full": "yahoo-answers", "cpu": "20newsgroups", "quick": "20newsgroups"}
"""Size to the data set with texts."""


def cohort(
    data: str, share: float, size: Size, repetition: int, *, model: Mapping[str, Any] | None = None
) -> SimulatedParties:
    """The clients of a repetition.

    Args:
        data: a key of :data:`SIZES`.
        share: of the classes that a client holds, rounded.
        size: how many rows.
        repetition: which draw.
        model: in the place of the size's.
    """
    document = {
        "name": data,
        "purpose": "taught",
        "data": {"name": data, "public": size.public, "test_rows": size.test, **size.options},
        "partition": {
            "name": "classes",
            "parties": PARTIES,
            "per_party": classes_of(data, share, size),
            **({} if size.samples is None else {"samples": size.samples}),
        },
        "models": [size.model if model is None else model],
    }
    return gather(parse_spec(document, where=data), repetition)


def classes_of(data: str, share: float, size: Size) -> int:
    """Number of classes that a share comes to, at least one.

    >>> classes_of("cifar-10", 0.3, SIZES["cifar-10"]["cpu"])
    3
    """
    return max(1, round(share * _CLASSES[data, bool(size.options.get("coarse"))]))


_CLASSES = {
    ("cifar-10", False): 10, ("20newsgroups", False): 20, ("yahoo-answers", False): 10,
    ("cifar-100", False): 100, ("cifar-100", True): 20, ("fashion-mnist", False): 10,
}  # fmt: skip


def rule(name: str, given: SimulatedParties) -> Aggregator:
    """A rule by its name in tables; the mean of a class's holders is told who holds what."""
    if name == HOLDERS:
        assert given.public_labels is not None
        return class_holders(given.public_labels, given.holders)
    if name == "sUWA":
        return suwa(TEMPERATURE)
    return AGGREGATORS["density-ratio" if name == OURS else name.lower()]()


def averaged(
    data: str, share: float, size: Size, repetition: int, rate: float, *, held: bool
) -> SimulatedParties:
    """Clients with the same rows for SCAFFOLD.

    Args:
        data: as in :func:`cohort`.
        share: as there.
        size: as there.
        repetition: as there.
        rate: of gradient descent.
        held: whether clients are tested on the public rows, which SCAFFOLD does not use: by these, and not by
            test rows, its rate is chosen.
    """
    recipe = {**size.model["recipe"], **size.averaging, "learning_rate": rate}
    given = cohort(data, share, size, repetition, model={**size.model, "recipe": recipe})
    if not held:
        return given
    classes, labels = given.dataset.classes, given.public_labels
    assert classes is not None and labels is not None
    order = np.argsort(classes)
    codes = order[np.searchsorted(np.asarray(classes)[order], labels)]
    return replace(given, dataset=replace(given.dataset, X_test=given.public.X, y_test=codes))
