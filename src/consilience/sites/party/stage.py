"""Stage of a deployed party: completes its descriptions, and rounds its metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from consilience.core.messages.replies import Description, Metrics
from consilience.core.party.outbox import OutgoingStage
from consilience.sites.party.limits import Limits
from consilience.sites.party.public_rows import kept_public
from consilience.sites.party.session import read_session


@dataclass(frozen=True)
class SiteStage(OutgoingStage):
    """Add facts about the site to descriptions, and round metrics.

    Attributes:
        limits: limits of the party.
        home: folder of its state, with the public rows received from a coordinator.
    """

    limits: Limits
    home: Path

    def outgoing(self, task: Any, agreement: Any, run: Callable[[], Any]) -> Any:
        """Compute the reply to a task, and complete or round it."""
        reply = run()
        if isinstance(reply, Description):
            session = read_session(self.home)
            most = self.limits.most_measurements(0 if session is None else session.measured)
            public = kept_public(self.home) if reply.takes_public else reply.public
            return replace(reply, metrics=most, public=public)
        if isinstance(reply, Metrics) and self.limits.digits is not None:
            rounded = {
                name: float(f"{value:.{self.limits.digits}g}")
                for name, value in reply.values.items()
            }
            return replace(reply, values=rounded)
        return reply
