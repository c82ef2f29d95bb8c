"""The two halves of the app that a coordinator hands to Flower.

Flower runs ``server`` at the coordinator. It asks for a ``client`` too, and sends it to the parties, which
run their own, installed one in its place (:mod:`consilience.sites.transport.party_app`).
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
    """Do the rounds, and end with whoever started this process.

    A SuperLink that ends leaves the process of a run behind, which calls it again and again and holds the
    run: nobody could go on with it.
    """
    Thread(target=end_after, args=(os.getppid(),), name="watch", daemon=True).start()
    serve_run(grid, config)


def end_after(parent: int) -> None:
    """End this process, at once, when its parent is gone."""
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(1)


server = coordinator_app(watched)
