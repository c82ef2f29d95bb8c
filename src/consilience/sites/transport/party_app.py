"""Program of a party that answers messages, in a fork of it each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience.sites.party import PartySite, read_party
from consilience.sites.transport.flower.client_app import site_app
from consilience.sites.transport.flower.forks import answer_in_forks
from consilience.sites.transport.flower.internals import PATIENCE


def _site(context: Any) -> PartySite:
    """The site of the party whose configuration the SuperNode was started with."""
    return read_party(Path(str(context.node_config["party"]))).site(wait=PATIENCE)


client = site_app(_site)


def answer_messages() -> None:
    """Answer the messages of standard input, whatever app came with them."""
    answer_in_forks(client)
