"""Data sets, user tables (``load``), and their division among parties (``partition``)."""

from consilience.lab.data.holdings import Holdings, draw, who_holds_what
from consilience.lab.data.partition import PARTITIONS, partition
from consilience.lab.data.party_sizes import unequal
from consilience.lab.data.registry import DATASETS, DatasetEntry, load
from consilience.tables.dataset import Dataset
from consilience.tables.load import load_table, read_rows
from consilience.tables.splits import take_public

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Dataset",
    "DatasetEntry",
    "Holdings",
    "draw",
    "load",
    "load_table",
    "partition",
    "read_rows",
    "take_public",
    "unequal",
    "who_holds_what",
]
