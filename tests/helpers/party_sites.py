"""A network of parties that each start from nothing but their folder for every request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from consilience import Party
from consilience.core.checks import classifiers
from consilience.core.learners import Model
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.networks.base import Network
from consilience.core.networks.incoming import Arrival, decode_reply
from consilience.core.networks.local import by_name
from consilience.core.tasks.base import Task
from consilience.core.tasks.lifecycle import Checkpoint, Describe, Join
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from consilience.core.tasks.scores import CountRows
from consilience.sites.party import EVERYTHING, PartySite, PartySpec, own_secret
from helpers.party_rules import set_keys


class SiteNetwork(Network):
    """Every request goes to a site that is opened for it, and closed after the answer; or all stay open."""

    def __init__(
        self, members: Iterable[Party], public: Public, home: Path, *, stay: bool = False
    ) -> None:
        super().__init__()
        self._members, self.home, self.public = by_name(members, public), home, public
        self._open = {name: self._opened(name) for name in self._members if stay}

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self._members)

    def _opened(self, name: str) -> PartySite:
        return PartySite(lambda: self._members[name], self.home / name, limits=EVERYTHING)

    def site(self, name: str) -> AbstractContextManager[PartySite]:
        """The party's site, to be used in a ``with`` statement."""
        return nullcontext(self._open[name]) if self._open else self._opened(name)

    def close(self) -> None:
        for site in self._open.values():
            site.close()

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        arrivals = {}
        for name in to:
            start = time.perf_counter()
            with self.site(name) as site:
                reply = site.answer(request)
            arrivals[name] = decode_reply(name, reply, time.perf_counter() - start)
        return arrivals

    def models(self) -> Mapping[str, Model]:
        found = {}
        for name in self.parties:
            with self.site(name) as site:
                party = site.party()
                if party is not None and party.trainer.learner.fitted:
                    found[name] = party.trainer.model()
        return found


class NodeSites:
    """A node's side of Flower, with one party in whatever federation asks.

    Args:
        context: of the node, whose configuration holds its ``number`` and the folder ``home``.
        open_site: opens the site of a federation's party, by the federation's name, the number and the home.
    """

    def __init__(
        self, context: Any, open_site: Callable[[str, int, Path], AbstractContextManager[PartySite]]
    ) -> None:
        self.number = int(context.node_config["number"])
        self.home = Path(str(context.node_config["home"]))
        self._open_site = open_site

    def __enter__(self) -> NodeSites:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def answer(self, request: bytes, *, federation: str, **said: Any) -> bytes:
        """Answer with a site that is opened for the request, whatever else the transport says."""
        with self._open_site(federation, self.number, self.home) as site:
            return site.answer(request, federation=federation, **said)


def one_party() -> Party:
    """The first of the checks' parties, its public rows in its hands; the same bits in every folder."""
    party = without_rows()
    party.hold_public(classifiers()[1])
    return party


def without_rows() -> Party:
    """The same party, that waits for public rows from the coordinator."""
    parties, _ = classifiers()
    set_keys(parties[0], secret=b"of ash")
    return parties[0]


def agreement(**changes: Any) -> Any:
    """What that party and the others agree on."""
    from consilience.core.federation.forming import negotiate

    parties, public = classifiers()
    described = [Describe().run(party) for party in parties]
    return negotiate(described, public, **changes)


def requests(rounds: int) -> list[bytes]:
    """What a coordinator asks that party for in some rounds, one request after another."""
    agreed = agreement()
    teacher = np.full((agreed.rows, agreed.outputs), 1 / agreed.outputs, dtype=np.float32)
    asked = [encode([Describe()]), encode([Join(agreement=agreed)])]
    for t in range(1, rounds + 1):
        asked.append(encode([FitPrivate(round=t), CountRows(round=t), PredictPublic(round=t)]))
        asked.append(encode([Distill(round=t, targets=teacher, alpha=0.5)]))
        asked.append(encode([Checkpoint(round=t, previous=t - 1)]))
    return asked


def as_deployed(spec: PartySpec) -> Party:
    """A party in this process that draws and computes as its site does."""
    party = spec.party()
    set_keys(party, secret=own_secret(spec.state))
    spec.limits.bind(party)
    return party


def ask(site: PartySite, *tasks: Any, **carried: Any) -> Any:
    """What a site answers: one answer, or all of them where there are several."""
    replies = decode(site.answer(encode(tasks), **carried))
    return replies[0] if len(replies) == 1 else replies
