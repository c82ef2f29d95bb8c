"""Federations with more parties than fit into memory: each party is created when it is queried."""

from __future__ import annotations

import shutil
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter
from typing import Any, TypeVar

from safetensors import SafetensorError

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.files import without_fsync
from consilience.core.learners import Model
from consilience.core.messages.replies import Failure, Receipt
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, size
from consilience.core.networks.base import check_distinct
from consilience.core.networks.incoming import Arrival, Request
from consilience.core.networks.local import InProcessNetwork, LocalNetwork
from consilience.core.networks.scheduling import scheduler
from consilience.core.party.party import Party
from consilience.core.tasks.base import Task
from consilience.core.tasks.outgoing import answer, failure_of
from consilience.core.tasks.requests import open_request


@dataclass(frozen=True)
class Population:
    """Many parties by name, each created on demand and later released for others.

    Results are bit-identical to those of a list of the same parties. Every party is created once at the
    start, to describe itself. Tasks without a result, such as local training before round 0, are deferred
    until the party's next request for a result; failures are recorded at that time. Time and memory are
    therefore proportional to the parties that take part in a round. :class:`~consilience.Federation` and
    :class:`~consilience.core.networks.PopulationNetwork` accept a population in place of parties. Iteration
    creates every party.

    Args:
        names: distinct names of the parties.
        make: creates a party from its name, always with the same content; it may read the rows from disk.
        live: number of parties in memory, the most recently queried ones. The state of the others is in a
            temporary folder, which is deleted when the network is closed or the process ends, unless the
            process is killed.

    Raises:
        InvalidInput: no names, a duplicate name, or ``live`` below 1.

    Example:
        >>> import numpy as np
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from consilience import Federation, Party, Population, avg, ensemble_distillation
        >>> def make(name):
        ...     rng = np.random.default_rng(int(name))
        ...     y = np.repeat(["below", "above"], 5)
        ...     return Party(name, GaussianNB(), rng.normal(np.where(y == "below", -1, 1))[:, None], y)
        >>> many = Population([f"{i:04d}" for i in range(1000)], make)
        >>> history = Federation(many, public=np.linspace(-1, 1, 40)[:, None]).run(
        ...     ensemble_distillation(aggregate=avg(), rounds=2, participation=10)
        ... )
        >>> history.models["0042"].predict([[-0.9], [0.9]]).tolist()
        ['below', 'above']
    """

    names: Iterable[str]
    make: Callable[[str], Party]
    live: int = field(default=1000, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.names, str):
            raise InvalidInput(
                f"the names are one text, {self.names!r}", where="population", mend="Give a list."
            )
        if not callable(self.make):
            raise InvalidInput(
                f"make is {self.make!r}",
                where="population",
                mend="Give a function from a name to its party.",
            )
        names = tuple(sorted(map(str, self.names)))
        object.__setattr__(self, "names", names)
        check_distinct(names)
        if not isinstance(self.live, int) or isinstance(self.live, bool) or self.live < 1:
            raise InvalidInput(
                f"live is {self.live!r}", where="population", mend="Give a whole number, 1 or more."
            )

    def __repr__(self) -> str:
        return f"Population({len(tuple(self.names)):,} parties, live={self.live})"

    def __iter__(self) -> Iterator[Party]:
        return map(self.made, self.names)

    def made(self, name: str) -> Party:
        """Create the party of this name in its initial state.

        Raises:
            InvalidInput: ``make`` did not return a party with this name.
        """
        party = self.make(name)
        if not isinstance(party, Party) or party.name != name:
            made = repr(party.name) if isinstance(party, Party) else type(party).__name__
            raise InvalidInput(
                f"asked for {name!r}, it makes {made}",
                where="population",
                mend="Mend `make`.",
            )
        return party


class PartyCache:
    """Cache of the parties of a population: some in memory, the others' states on the disk.

    Args:
        population: the parties by name.
        public: the public data, which each of them will hold: one copy for all.
    """

    def __init__(self, population: Population, public: Public) -> None:
        self._population, self._public = population, public
        self._places = {name: str(place) for place, name in enumerate(population.names)}
        self._live: dict[str, Party] = {}
        """Parties in memory, in the order of their last use."""
        self._busy: set[str] = set()
        self._away: set[str] = set()
        """Names of those whose states are on the disk."""
        self._deferred: defaultdict[str, list[bytes]] = defaultdict(list)
        self._folder: Path | None = None
        self._removed: weakref.finalize[..., PartyCache] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parties, sorted."""
        return tuple(self._places)

    def defer(self, name: str, request: bytes) -> None:
        """Keep the bytes of a request until the party's next request that cannot be deferred."""
        self._deferred[name].append(request)

    def deferred(self, name: str) -> list[bytes]:
        """Return the pending requests of a party, in order; the caller removes each one after running it."""
        return self._deferred[name]

    def acquire(self, name: str) -> Party:
        """Load the party with its state, and keep it in memory until :meth:`release`."""
        party = self._live.pop(name, None) or self._restored(name)
        self._live[name] = party
        self._busy.add(name)
        return party

    def release(self, name: str) -> None:
        """Allow a party to be written to the disk when others need its place.

        Raises:
            RunFailed: the state of one that goes cannot be written.
        """
        self._busy.discard(name)
        if not self._deferred[name]:
            del self._deferred[name]
        idle = (one for one in list(self._live) if one not in self._busy)
        while len(self._live) > self._population.live and (first := next(idle, None)):
            self._write_state(self._live[first])
            del self._live[first]

    def close(self) -> None:
        """Delete all states."""
        for known in (self._live, self._away, self._deferred):
            known.clear()
        if self._removed is not None:
            self._removed()
        self._folder = None

    def _restored(self, name: str) -> Party:
        party = self._population.made(name)
        party.hold_public(self._public)
        if name in self._away:
            party.join_again(self._place(name))
            party.read_state(self._place(name))
        return party

    def _write_state(self, party: Party) -> None:
        if party.agreement is None:
            return  # it has said what it is, and that it will say again
        place = self._place(party.name)
        try:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            with without_fsync():
                party.write_state(place)
        except (OSError, SafetensorError) as error:
            raise RunFailed(
                f"the state of {party.name!r} cannot be written: {error}",
                where="population",
                mend=f"Free some space below {place.parent.parent}, or raise live: more stay in memory.",
            ) from error
        self._away.add(party.name)

    def _place(self, name: str) -> Path:
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="consilience-"))
            self._removed = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / self._places[name]


T = TypeVar("T")


@dataclass
class PopulationNetwork(InProcessNetwork):
    """Network over a :class:`Population`, whose parties are created on demand in this process.

    Tasks without a result are deferred until the party's next request for a result.

    Args:
        members: the parties by name.
        public: the public data, which each party will have.
        wire: pass every message through bytes and back.
    """

    members: Population
    public: Public

    def __post_init__(self) -> None:
        super().__post_init__()
        self._cache = PartyCache(self.members, self.public)

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self._cache.names

    def models(self) -> Mapping[str, Model]:
        """Return every party's trained model, each loaded on access, until the network is closed.

        Access to a party with deferred tasks runs them first.
        """
        return _Models(self, self._cache)

    def close(self) -> None:
        """Delete all states."""
        self._cache.close()

    def _answers(self, asked: Mapping[str, Request]) -> dict[str, Arrival]:
        unfit = self._run_deferred_of(
            [name for name, what in asked.items() if not _all_deferrable(what.tasks)]
        )
        fit = {name: what for name, what in asked.items() if name not in unfit}
        return unfit | super()._answers(fit)

    def _run_deferred_of(self, names: Sequence[str]) -> dict[str, Arrival]:
        """Run the deferred tasks of parties, outside of any time limit; return the failures to join."""
        behind = [name for name in names if self._cache.deferred(name)]
        found = scheduler(
            [partial(self._with, name, self._run_deferred) for name in behind]
        ).results()
        return {name: unfit for name, unfit in zip(behind, found, strict=True) if unfit is not None}

    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        if _all_deferrable(tasks):
            if any(task.lifecycle == "join" for task in tasks):  # which begins anew
                self._cache.deferred(name).clear()
            self._cache.defer(name, request)
            receipts = tuple(Receipt(party=name, round=task.round) for task in tasks)
            return Arrival(receipts, size(receipts), 0.0)
        return self._with(name, partial(self._run, tasks=tasks, request=request))

    def _with(self, name: str, do: Callable[[Party], T]) -> T | Arrival:
        """Call a function with a party; its result, or the failure of a party that cannot be made."""
        try:
            party = self._cache.acquire(name)
        except Exception as error:  # what makes it is the user's own, and may raise anything
            missing = RunFailed(f"it cannot be had ({type(error).__name__}: {error})")
            failure = failure_of(name, missing, trusted=True)
            return Arrival(failure, size([failure]), 0.0)
        try:
            done = do(party)
        except BaseException:
            self._cache.release(name)
            raise
        if done is not None:  # a party without deferred tasks is asked next
            self._cache.release(name)
        return done

    def _run_deferred(self, party: Party) -> Arrival | None:
        """Run a party's deferred tasks; return the failure if the party cannot join, else ``None``.

        The failure of any other task is recorded in the ledger, and the next deferred task runs, as without
        deferral.
        """
        deferred = self._cache.deferred(party.name)
        while deferred:
            tasks, start = open_request(decode(deferred[0])), perf_counter()
            outcome = answer(party, tasks)
            if isinstance(outcome, Failure):
                arrival = Arrival(outcome, size([outcome]), perf_counter() - start)
                if any(task.lifecycle == "join" for task in tasks):
                    party.leave()
                    return arrival
                self._receive({party.name: Request(tasks, b"")}, {party.name: arrival})
            del deferred[0]
        return None


class _Models(Mapping[str, Model]):
    """The trained models of a population, each loaded on access."""

    def __init__(self, network: PopulationNetwork, cache: PartyCache) -> None:
        self._network, self._cache = network, cache

    def __getitem__(self, name: str) -> Model:
        if name not in self._network.parties:
            raise KeyError(name)
        party = self._cache.acquire(name)
        try:
            self._network._run_deferred(party)
            if party.agreement is None or not party.trainer.learner.fitted:
                raise KeyError(name)
            return party.trainer.model()
        finally:
            self._cache.release(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._network.parties if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _all_deferrable(tasks: Sequence[Task]) -> bool:
    """Return whether all of these tasks can be deferred until the party's next request."""
    return all(task.deferrable for task in tasks)


def in_process_network(
    parties: Iterable[Party] | Population, public: Public, **options: Any
) -> InProcessNetwork:
    """Make the network of parties in this process: a local one, or a population's.

    Args:
        parties: the parties, or the population that makes them.
        public: public rows that each of them will hold.
        options: of :class:`LocalNetwork` or :class:`PopulationNetwork`.

    Returns:
        The network.

    Raises:
        InvalidInput: no parties, or two of one name.
    """
    if isinstance(parties, Population):
        return PopulationNetwork(parties, public, **options)
    return LocalNetwork(parties, public, **options)
