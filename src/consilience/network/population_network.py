"""A population in this process: whoever is asked is made or taken from the disk, and let go again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TypeVar

from consilience.knowledge import Failure, Public, Receipt
from consilience.learners import Model
from consilience.meeting import Meeting
from consilience.network.base import Arrival
from consilience.network.in_process import Asked, InProcessNetwork
from consilience.network.population import Population, Residents
from consilience.party import Party
from consilience.tasks import Join, Task, answer
from consilience.wire import decode, size

T = TypeVar("T")


@dataclass
class PopulationNetwork(InProcessNetwork):
    """Parties of this process that are made when they are asked, and let go again when others are.

    What all are told and nobody has to answer is put off: each does it when it is asked something else.

    Args:
        members: who they are.
        public: the public data, which each of them will hold.
        wire: pass every message through bytes and back.
    """

    members: Population
    public: Public

    def __post_init__(self) -> None:
        super().__post_init__()
        self._residents = Residents(self.members, self.public)

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return self._residents.names

    def models(self) -> Mapping[str, Model]:
        """Every party's trained model, looked up when it is asked for, until the network is closed.

        A party that has never been asked is then trained as far as the others were told to be.
        """
        return _Models(self, self._residents)

    def close(self) -> None:
        """Let go of all of them."""
        self._residents.close()

    def _answers(self, asked: Mapping[str, Asked]) -> dict[str, Arrival]:
        unfit = self._caught_up([name for name, what in asked.items() if not _can_wait(what[0])])
        fit = {name: what for name, what in asked.items() if name not in unfit}
        return unfit | super()._answers(fit)

    def _caught_up(self, names: Sequence[str]) -> dict[str, Arrival]:
        """Have parties do what they put off, on nobody's clock: why some cannot be asked."""
        behind = [name for name in names if self._residents.owed(name)]
        found = Meeting([partial(self._with, name, self._catch_up) for name in behind]).results()
        return {name: unfit for name, unfit in zip(behind, found, strict=True) if unfit is not None}

    def _answer(self, name: str, tasks: tuple[Task, ...], request: bytes) -> Arrival:
        if _can_wait(tasks):
            if any(isinstance(task, Join) for task in tasks):  # which begins anew
                self._residents.owed(name).clear()
            self._residents.put_off(name, request)
            receipts = tuple(Receipt(party=name, round=task.round) for task in tasks)
            return Arrival(receipts, size(receipts), 0.0)
        return self._with(name, partial(self._said, tasks=tasks, request=request))

    def _with(self, name: str, do: Callable[[Party], T]) -> T | Arrival:
        """What comes of doing something with a party, or why it cannot be had."""
        try:
            party = self._residents.take(name)
        except Exception as error:  # what makes it is the user's own, and may raise anything
            reason = f"it cannot be had ({type(error).__name__}: {error})"
            failure = Failure(party=name, reason=reason)
            return Arrival(failure, size([failure]), 0.0)
        try:
            done = do(party)
        except BaseException:
            self._residents.leave(name)
            raise
        if done is not None:  # who has caught up is asked next
            self._residents.leave(name)
        return done

    def _catch_up(self, party: Party) -> Arrival | None:
        """Have a party do what it has put off; why it cannot be asked anything, if it cannot.

        What it fails at comes into the books, and it goes on with the next, as if it had been asked at the
        time; only who cannot join has nothing to go on with.
        """
        owed = self._residents.owed(party.name)
        while owed:
            tasks, start = decode(owed[0]), perf_counter()
            outcome = answer(party, tasks)
            if isinstance(outcome, Failure):
                arrival = Arrival(outcome, size([outcome]), perf_counter() - start)
                if any(isinstance(task, Join) for task in tasks):
                    party.agreement = None
                    return arrival
                self._told({party.name: (tasks, 0)}, {party.name: arrival})
            del owed[0]
        return None


class _Models(Mapping[str, Model]):
    """The trained models of a population, each looked up when it is asked for."""

    def __init__(self, network: PopulationNetwork, residents: Residents) -> None:
        self._network, self._residents = network, residents

    def __getitem__(self, name: str) -> Model:
        if name not in self._network.parties:
            raise KeyError(name)
        party = self._residents.take(name)
        try:
            self._network._catch_up(party)
            if party.agreement is None or not party.learner.fitted:
                raise KeyError(name)
            return party.model()
        finally:
            self._residents.leave(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._network.parties if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _can_wait(tasks: Sequence[Task]) -> bool:
    """Whether a party may do all of them when it is next asked something."""
    return all(task.deferrable for task in tasks)
