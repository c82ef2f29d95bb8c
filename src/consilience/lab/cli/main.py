"""The program of the shell's ``consilience``."""

import codecs
import gc
import io
import os
import sys

from consilience.core.errors import ConsilienceError
from consilience.core.registry import registered_names, registered_object
from consilience.lab.cli.commands import app
from consilience.lab.cli.console import spelt_out

__all__ = ["app", "main"]

_COMMANDS = "consilience.commands"

for _name in registered_names(_COMMANDS):  # of packages that are installed
    try:
        registered_object(_COMMANDS, _name)(app)
    except ConsilienceError as _error:  # the other commands work without it
        print(f"warning: {_error}", file=sys.stderr)

codecs.register_error("consilience.spelt", spelt_out)


def main() -> None:
    """Run the command of the shell's ``consilience``; the current folder is nowhere searched for modules."""
    os.environ["PYTHONSAFEPATH"] = "1"  # nor by the processes that are started
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="consilience.spelt")
    # What is imported is no garbage, and looking for it takes time.
    gc.set_threshold(100_000, 20, 100)
    app()
