"""A party as a Flower ClientApp."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InvalidInput
from consilience.core.messages.wire import encode
from consilience.core.party.party import Party
from consilience.core.tasks.outgoing import failure_of
from consilience.sites.party import EVERYTHING, Limits, PartySite
from consilience.sites.transport.flower.internals import (
    PATIENCE,
    START,
    envelope_of,
    flwr,
    replaced,
    unwrap,
    wrap,
)

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp


def party_app(
    make_party: Callable[[Context], Party],
    *,
    home: Callable[[Context], Path] | None = None,
    threads: int = 1,
    limits: Limits = EVERYTHING,
) -> ClientApp:
    """Make the Flower ClientApp of a party.

    Flower runs every message in a new process and keeps no state over a restart, so the party is made
    anew each time and its state and audit log live in a folder of its disk
    (:class:`~consilience.sites.party.PartySite`). The state is written before the answer leaves. The
    coordinator sends the public rows, and the party keeps them in that folder.

    Args:
        make_party: called with the node's context (its ``node_config`` says which party it is) for every
            message. A protocol with tasks of its own must be imported where this function is.
        home: called with the node's context; gives the folder of the party's state. By default
            ``node_config["home"]``.
        threads: numerical threads while the party works.
        limits: what the party lets itself be asked.

    Raises:
        MissingExtra: flwr is not installed.

    Example:
        >>> def make_party(context):
        ...     return Party(context.node_config["party"], LogisticRegression(), X, y)
        >>> app = party_app(make_party)  # doctest: +SKIP
    """

    def make_site(context: Context) -> PartySite:
        party = make_party(context)
        if home is None and "home" not in context.node_config:
            raise InvalidInput(
                "it has no folder to keep its state in",
                where=f"party {party.name!r}",
                mend="Name it when the SuperNode starts, --node-config 'home=\"…\"'; "
                "or give party_app(home=…).",
            )
        folder = Path(str(context.node_config["home"])) if home is None else home(context)
        return PartySite(
            lambda: party,
            folder,
            name=party.name,
            limits=limits,
            threads=threads,
            wait=PATIENCE,
        )

    return site_app(make_site)


def site_app(make_site: Callable[[Context], PartySite]) -> ClientApp:
    """Make the Flower ClientApp of a party that is given as its site; see :func:`party_app`.

    Args:
        make_site: called with the node's context for every message; make the site with ``wait``, as the
            process of a node that was killed may outlive it by some seconds.

    Raises:
        MissingExtra: flwr is not installed.
    """
    app = flwr()
    from flwr.clientapp import ClientApp

    client = ClientApp()

    @client.query()
    def respond(message: Message, context: Context) -> Message:
        # The name is there to report by when the party itself cannot be made.
        name = str(context.node_config.get("party", f"node {context.node_id}"))
        try:
            with make_site(context) as site:
                reply = site.answer(unwrap(message), **envelope_of(message))
        except Exception as error:  # of a user's function; the coordinator waits for an answer
            traceback.print_exception(error)  # its words stay in the log of this process
            reply = encode([failure_of(name, error)])
        answered: Message = app.Message(wrap(reply), reply_to=message)
        return answered

    return client


def run_installed_client(client: ClientApp) -> None:
    """Do what Flower's ``flwr-clientapp`` does, with this ClientApp in place of the one that was sent.

    A SuperNode runs the code that the SuperLink sends. A party whose ``flwr-clientapp`` is this function
    runs only what is installed: its limits hold whatever the coordinator sends.

    Raises:
        RunFailed: this is another flwr than the one whose insides are known here.
    """
    flwr()
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    # Of a run that was broken off a message may never come, and Flower waits for it for ever.
    given_up = Timer(START, os._exit, (1,))
    given_up.daemon = True

    def loaded(*_: Any) -> ClientApp:
        given_up.cancel()
        return client

    replaced(
        "flwr.supernode.runtime.run_clientapp",
        install_from_fab=lambda *_, **__: None,
        get_project_dir=lambda *_, **__: None,
        get_load_client_app_fn=lambda **_: loaded,
    )
    given_up.start()
    flwr_clientapp()
