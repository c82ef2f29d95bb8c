"""What Flower is told to run: the coordinator's app, and a party's."""

from __future__ import annotations

from consilience.deployment.answering import client
from consilience.deployment.conducting import conduct
from consilience.network.flower import coordinator_app

__all__ = ["client", "server"]

server = coordinator_app(conduct)
