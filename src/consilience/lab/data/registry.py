"""Every dataset by name, for the command line and for configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from consilience.core.errors import InvalidInput, nearest
from consilience.core.registry import Registry, named, registered_names, registered_object
from consilience.core.validation.arguments import check_arguments
from consilience.lab.data.sources.cifar import load_cifar_10, load_cifar_100
from consilience.lab.data.sources.diabetes import load_diabetes
from consilience.lab.data.sources.digits import load_digits
from consilience.lab.data.sources.heart import load_heart_disease
from consilience.lab.data.sources.mnist import load_emnist, load_fashion_mnist, load_mnist
from consilience.lab.data.sources.texts import load_newsgroups, load_trec, load_yahoo_answers
from consilience.tables.dataset import Dataset
from consilience.tables.load import load_table


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset as listed to users.

    Attributes:
        loader: makes the :class:`Dataset`.
        line: description in one line.
        citation: its source.
    """

    loader: Callable[..., Dataset]
    line: str
    citation: str


OWN = "your own data"

_OURS: dict[str, DatasetEntry] = {
    "digits": DatasetEntry(
        load_digits,
        "1,797 handwritten digits, 8x8, 10 classes; comes with scikit-learn",
        "Alpaydin & Kaynak (1998), Optical Recognition of Handwritten Digits, UCI",
    ),
    "mnist": DatasetEntry(
        load_mnist,
        "70,000 handwritten digits, 28x28, 10 classes",
        "LeCun, Bottou, Bengio & Haffner (1998), Proc. IEEE 86(11)",
    ),
    "fashion-mnist": DatasetEntry(
        load_fashion_mnist,
        "70,000 pieces of clothing, 28x28, 10 classes",
        "Xiao, Rasul & Vollgraf (2017), arXiv:1708.07747",
    ),
    "emnist": DatasetEntry(
        load_emnist,
        "handwritten letters (26 classes) or digits (10), 28x28; split=letters|digits",
        "Cohen, Afshar, Tapson & van Schaik (2017), arXiv:1702.05373",
    ),
    "cifar-10": DatasetEntry(
        load_cifar_10,
        "60,000 colour images, 3x32x32, 10 classes",
        "Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
    ),
    "cifar-100": DatasetEntry(
        load_cifar_100,
        "60,000 colour images, 3x32x32, 100 classes, or 20 with coarse=true",
        "Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
    ),
    "yahoo-answers": DatasetEntry(
        load_yahoo_answers,
        "1,460,000 questions with their best answers, text, 10 topics",
        "Zhang, Zhao & LeCun (2015), arXiv:1509.01626",
    ),
    "20newsgroups": DatasetEntry(
        load_newsgroups,
        "18,846 posts to newsgroups, text, 20 classes, split by date",
        "Lang (1995), NewsWeeder: Learning to Filter Netnews, ICML",
    ),
    "trec": DatasetEntry(
        load_trec,
        "5,952 questions by the kind of answer, text, 6 classes, or 50 with fine=true",
        "Li & Roth (2002), Learning Question Classifiers, COLING",
    ),
    "heart-disease": DatasetEntry(
        load_heart_disease,
        "740 patients of four hospitals, 13 columns, 2 classes; all 920 with gaps=true; group = hospital",
        "Janosi et al. (1988), Heart Disease, UCI; Ogier du Terrail et al. (2022), FLamby",
    ),
    "diabetes": DatasetEntry(
        load_diabetes,
        "442 patients, 10 columns, their disease after a year (values); comes with scikit-learn",
        "Efron, Hastie, Johnstone & Tibshirani (2004), Least Angle Regression, Ann. Statist. 32(2)",
    ),
    "csv": DatasetEntry(load_table, "your own table with a header line; path=, target=", OWN),
    "parquet": DatasetEntry(load_table, "your own Parquet table; path=, target=", OWN),
    "excel": DatasetEntry(load_table, "your own Excel sheet; path=, target=", OWN),
    "npz": DatasetEntry(load_table, "your own arrays X and y in an .npz file; path=", OWN),
}

_GROUP = "consilience.datasets"
"""Group of entry points of other packages, each a :class:`DatasetEntry` under its name."""


def _datasets() -> dict[str, DatasetEntry]:
    theirs = [(name, registered_object(_GROUP, name)) for name in registered_names(_GROUP)]
    return named([*_OURS.items(), *theirs], what="dataset")


DATASETS: Mapping[str, DatasetEntry] = Registry(_datasets)
"""Every dataset by name."""


def load(name: str, **options: Any) -> Dataset:
    """Load a dataset by name.

    Args:
        name: a key of ``DATASETS``.
        options: options of the dataset's loader, such as ``split="digits"`` for EMNIST.

    Returns:
        The dataset.

    Raises:
        InvalidInput: an unknown name or option (with the nearest known), or missing or damaged files.

    >>> load("digits").X.shape
    (1258, 64)
    """
    if name not in DATASETS:
        raise InvalidInput(f"unknown dataset {name!r}", mend=nearest(name, DATASETS))
    loader = DATASETS[name].loader
    check_arguments(loader, options, where=f"dataset {name}")
    return loader(**options)
