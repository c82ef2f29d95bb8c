"""Access to deployed federations for the commands on runs; the package that starts them registers here.

It registers a module as ``sites`` under ``consilience.deployment``, with the functions of
:class:`Deployment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from consilience.core.registry import registered_object
from consilience.lab.cli.output import CommandContext
from consilience.lab.runs.folder import RunSpec


class DeployedSpec(RunSpec, Protocol):
    """Configuration of a deployed run."""

    @property
    def parties(self) -> Mapping[str, str]:
        """Party to its public key."""


class Deployment(Protocol):
    """Functions of a package that deploys federations."""

    def deployed_spec(self, run: Path) -> DeployedSpec:
        """Read the configuration in the run folder of a deployed federation.

        Raises:
            RunFailed: it has another format, or is damaged.
        """

    def joining_party(self, path: Path) -> Mapping[str, Any]:
        """Read the part of a party's own configuration that counts in a simulated run.

        Returns:
            ``name``, ``data`` and ``model``, as JSON has them.

        Raises:
            InvalidInput: no such file, or it cannot be used.
        """

    def go_on_to_the_end(self, folder: Path, context: CommandContext, *, quiet: bool) -> None:
        """Resume the run in a coordinator's folder and complete it.

        Args:
            folder: the coordinator's folder.
            context: records which command resumes the run, if this one is stopped.
            quiet: report only errors.
        """

    def begin_without(
        self, folder: Path, names: Sequence[str], context: CommandContext, *, quiet: bool
    ) -> None:
        """Restart the run in a coordinator's folder without some parties, as if they had never taken part.

        Args:
            folder: the coordinator's folder.
            names: names of the parties to leave out.
            context: records which command resumes the run, if this one is stopped.
            quiet: report only errors.
        """


def deployment() -> Deployment:
    """Find the package that deploys federations.

    Raises:
        InvalidInput: none is installed.
    """
    return cast(Deployment, registered_object("consilience.deployment", "sites"))
