"""The coordinator as a Flower ServerApp, and Flower's simulation engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from consilience.core.errors import MissingExtra, RunFailed
from consilience.sites.transport.flower.internals import flwr

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp


def coordinator_app(main: Callable[[Grid, Mapping[str, Any]], None]) -> ServerApp:
    """Make the Flower ServerApp that calls ``main`` with the grid and the run's configuration.

    Args:
        main: the coordinator's main function.

    Returns:
        The ServerApp.

    Raises:
        MissingExtra: flwr is not installed.
    """
    flwr()
    from flwr.serverapp import ServerApp

    server = ServerApp()

    @server.main()
    def run(grid: Grid, context: Context) -> None:
        main(grid, context.run_config)

    return server


def simulate(main: Callable[[Grid], None], client: ClientApp, *, nodes: int) -> None:
    """Call ``main`` with a grid of nodes that Flower's simulation engine runs on Ray.

    Only one simulation can run at a time in a process: Flower keeps its identity in a global variable.

    Args:
        main: the coordinator's main function; the engine is stopped when it returns.
        client: ClientApp of every node; its ``node_config`` has the node's number as ``partition-id``.
        nodes: number of nodes.

    Raises:
        MissingExtra: flwr's extra ``simulation`` is not installed.
        RunFailed: the engine ended with an error.
    """
    flwr()
    if find_spec("ray") is None:  # Flower would end the process
        raise MissingExtra("ray", extra="ray", where="network")
    from flwr.simulation import run_simulation

    server = coordinator_app(lambda grid, config: main(grid))
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    before = os.environ.get("PYTHONPATH")
    try:
        run_simulation(server, client, nodes, backend_config=resources)  # type: ignore[arg-type]
    except Exception as error:
        raise RunFailed(
            f"Flower's simulation engine ended: {type(error).__name__}: {error}", where="network"
        ) from error
    finally:  # the engine writes its own into it
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before
