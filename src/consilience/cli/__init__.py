"""The command line: parse, call, print."""

from consilience.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """What the shell's ``consilience`` starts."""
    app()
