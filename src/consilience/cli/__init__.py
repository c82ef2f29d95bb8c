"""The command line: parse, call, print."""

import gc
import os
from importlib.metadata import entry_points

from consilience.cli.commands import app

__all__ = ["app", "main"]

for _point in entry_points(group="consilience.commands"):  # of packages that are installed
    _point.load()(app)


def main() -> None:
    """Run the command of the shell's ``consilience``; the current folder is nowhere searched for modules."""
    os.environ["PYTHONSAFEPATH"] = "1"  # nor by the processes that are started
    # What is imported is no garbage, and looking for it takes time.
    gc.set_threshold(100_000, 20, 100)
    app()
