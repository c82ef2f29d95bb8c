"""Experiments: what to run, running it, and the record of what happened."""

from consilience.experiments.arm import Progress
from consilience.experiments.cohort import Cohort, gather
from consilience.experiments.configuration import parse_spec, read_spec
from consilience.experiments.known import public_known
from consilience.experiments.ledger import Ledger
from consilience.experiments.run import resume, start, stored_spec
from consilience.experiments.spec import Spec

__all__ = [
    "Cohort",
    "Ledger",
    "Progress",
    "Spec",
    "gather",
    "parse_spec",
    "public_known",
    "read_spec",
    "resume",
    "start",
    "stored_spec",
]
