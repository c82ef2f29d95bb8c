"""Program that a party's SuperNode starts for every message; it imports little for that reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience.networks.flower.client_app import run_installed_client, site_app
from consilience.networks.flower.internals import PATIENCE
from consilience.site import PartySite, read_party


def _site(context: Any) -> PartySite:
    """The site of the party whose configuration the SuperNode was started with."""
    return read_party(Path(str(context.node_config["party"]))).site(wait=PATIENCE)


client = site_app(_site)


def answer_once() -> None:
    """Answer one message, whatever app came with it."""
    run_installed_client(client)
