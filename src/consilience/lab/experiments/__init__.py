"""Experiments: a configuration, its seeds and its methods, run, recorded and resumed."""

from consilience.lab.config.experiment import Spec
from consilience.lab.config.reading import parse_spec, read_spec, stored_spec
from consilience.lab.experiments.late import spec_joined_by, spec_without
from consilience.lab.experiments.method_run import Progress
from consilience.lab.experiments.run import resume, start
from consilience.lab.experiments.setup import SimulatedParties, gather
from consilience.lab.runs.ledger import Ledger

__all__ = [
    "Ledger",
    "Progress",
    "SimulatedParties",
    "Spec",
    "gather",
    "parse_spec",
    "read_spec",
    "resume",
    "spec_joined_by",
    "spec_without",
    "start",
    "stored_spec",
]
