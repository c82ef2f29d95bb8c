"""Parties on a Ray cluster, through Flower's simulation engine: the same ClientApp as between machines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import Any

from consilience.core.errors import ConsilienceError
from consilience.core.importers import importers
from consilience.core.learners import Model
from consilience.core.messages.message import REGISTRY
from consilience.core.messages.schema import Public
from consilience.core.networks.local import by_name
from consilience.core.party.party import Party
from consilience.sites.party import EVERYTHING, PartySite
from consilience.sites.transport.flower.client_app import site_app
from consilience.sites.transport.flower.internals import PATIENCE, QUIET, START
from consilience.sites.transport.flower.network import FlowerNetwork
from consilience.sites.transport.flower.server_app import simulate


class RayNetwork(FlowerNetwork):
    """Parties that Flower's simulation engine runs on Ray: here, or on the cluster at ``RAY_ADDRESS``.

    A party is sent to a worker with every request, and its state stays in its ``home`` in between
    (:class:`~consilience.sites.party.PartySite`): on a cluster, a folder shared by all machines. Ray itself
    transfers the party with its data, which is acceptable in a simulation. Between sites, whose data must
    stay local, use :class:`~consilience.sites.transport.flower.network.FlowerNetwork`. Only one such network
    can run at a time in a process.

    Args:
        members: the parties; those without a ``home`` get a folder with the lifetime of the network.
        public: the public data, which each of them will hold.
        threads: number of threads for the numerical work of a party.
        timeout: maximum seconds of an exchange; ten minutes if ``None``.
        quorum: minimum number (int) or share (float in (0, 1]) of answering parties.

    Raises:
        InvalidInput: no parties, or two with the same name.
        RunFailed: the engine does not start.
        MissingExtra: Ray or flwr is not installed.
    """

    def __init__(
        self,
        members: Iterable[Party],
        public: Public,
        *,
        threads: int = 1,
        timeout: float | None = None,
        quorum: int | float = 0.5,
    ) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        self._members = by_name(members, public)
        self._folder = tempfile.TemporaryDirectory(prefix="consilience-")
        for number, member in enumerate(self._members.values()):
            if member.home is None:
                member.keep_states_in(Path(self._folder.name) / str(number))
        # A protocol may define messages in its own file; the workers must know them too.
        modules = sorted({made.__module__ for made in REGISTRY.values()} - {"__main__"})
        given = (importers(), tuple(self._members.values()), threads, tuple(modules))
        app = site_app(partial(_site_of, *given))
        self._done = Event()
        begun: Queue[Any] = Queue()

        def main(grid: Any) -> None:
            begun.put(grid)
            self._done.wait()

        def engine() -> None:
            try:
                simulate(main, app, nodes=len(self._members))
            except ConsilienceError as error:
                begun.put(error)

        self._engine = Thread(target=engine, name="simulation", daemon=True)
        self._engine.start()
        found = begun.get()
        try:
            if isinstance(found, ConsilienceError):
                raise found
            nodes = len(self._members)
            super().__init__(found, nodes=nodes, wait=START, timeout=timeout, quorum=quorum)
        except BaseException:
            self.close()
            raise

    def models(self) -> Mapping[str, Model]:
        """Every party's trained model as it stands, read from its state."""
        found = {}
        for name, member in self._members.items():
            with _site(member, 1) as site:
                party = site.party()
                if party is not None and party.trainer.learner.fitted:
                    found[name] = party.trainer.model()
        return found

    def close(self) -> None:
        """Stop the engine."""
        self._done.set()
        self._engine.join()
        self._folder.cleanup()


def _site_of(
    _importers: object,  # which serve since they were received, before the parties
    members: Sequence[Party],
    threads: int,
    modules: Iterable[str],
    context: Any,
) -> PartySite:
    for module in modules:
        with suppress(ImportError):  # a message that stays unknown is refused when it comes
            import_module(module)
    return _site(members[int(context.node_config["partition-id"])], threads)


def _site(member: Party, threads: int) -> PartySite:
    home = member.home
    assert home is not None
    return PartySite(
        lambda: member, home, name=member.name, limits=EVERYTHING, threads=threads, wait=PATIENCE
    )
