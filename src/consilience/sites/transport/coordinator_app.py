"""The two halves of the app that a coordinator gives to Flower.

Flower runs ``server`` at the coordinator. It also requires a ``client`` and sends it to the parties, which
run their installed client in its place (:mod:`consilience.sites.transport.party_app`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Thread
from time import sleep
from typing import Any

from consilience.sites.coordinator.rounds import serve_run
from consilience.sites.transport.flower.server_app import coordinator_app
from consilience.sites.transport.party_app import client

__all__ = ["client", "server"]


def watched(grid: Any, config: Mapping[str, Any]) -> None:
    """Run the rounds, and end this process when its parent process ends.

    When a SuperLink ends, the process of its run stays alive: it keeps calling the SuperLink and keeps the
    run folder locked, so that the run could not be resumed.
    """
    Thread(target=end_after, args=(os.getppid(),), name="watch", daemon=True).start()
    serve_run(grid, config)


def end_after(parent: int) -> None:
    """End this process, at once, when its parent is gone."""
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(1)


server = coordinator_app(watched)
