"""Experiments: a configuration, its seeds and its methods, run, recorded and resumed."""

from consilience.experiments.configuration import parse_spec, read_spec, stored_spec
from consilience.experiments.late import spec_joined_by, spec_without
from consilience.experiments.method_run import Progress
from consilience.experiments.run import resume, start
from consilience.experiments.setup import SimulatedParties, gather
from consilience.experiments.spec import Spec
from consilience.federation.ledger import Ledger

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
