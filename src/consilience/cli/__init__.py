"""The command line: parse, call, print."""

import os
import sys

from consilience.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """What the shell's ``consilience`` starts; models may live in modules of the current folder."""
    sys.path.append(os.getcwd())
    app()
