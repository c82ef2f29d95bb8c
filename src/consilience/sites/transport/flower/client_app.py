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

    Flower runs every message in a new process and keeps no state over a restart. The party is therefore made
    for each message, and its state and audit log are stored in a folder on its disk
    (:class:`~consilience.sites.party.PartySite`). The state is written before the answer is sent. The
    coordinator sends the public rows, and the party stores them in that folder.

    Args:
        make_party: called with the node's context for every message; the context's ``node_config``
            identifies the party. A protocol with special tasks must be imported in the module of this
            function.
        home: called with the node's context; returns the folder of the party's state. By default
            ``node_config["home"]``.
        threads: number of threads for numerical work.
        limits: limits on the requests that the party answers; none by default.

    Returns:
        The ClientApp.

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
    """Make the Flower ClientApp of a party from its site; see :func:`party_app`.

    Args:
        make_site: called with the node's context for every message; make the site with ``wait``, because
            the process of a killed node may outlive the node by some seconds.

    Returns:
        The ClientApp.

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
    """Run Flower's ``flwr-clientapp`` with this ClientApp in place of the received one.

    A SuperNode runs the code that the SuperLink sends. A party whose ``flwr-clientapp`` is this function runs
    only installed code, so that its limits hold even against a malicious coordinator.

    Raises:
        RunFailed: the internals of the installed flwr version are not supported.
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
