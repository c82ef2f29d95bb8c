"""Parties that are made when they are asked, for federations of more than fit into memory."""

from __future__ import annotations

import shutil
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

from safetensors import SafetensorError

from consilience.errors import InvalidInput, RunFailed
from consilience.knowledge import Agreement, Public
from consilience.learners.store import for_this_process
from consilience.network.base import check_names
from consilience.party import Party


@dataclass(frozen=True)
class Population:
    """Many parties by name, each made when it is asked, and let go again when others are.

    Results are those of the parties themselves, bit for bit. Every party is made once at the start, to say
    what it is. From then on, where a protocol lets some parties take part in a round, time and memory are
    theirs: what all are told and nobody has to answer, such as to train alone before round 0, each does when
    it is asked something else, and why it could not comes into the books then. A federation takes it in the
    place of parties, as does :class:`~consilience.network.PopulationNetwork`; iterated, it makes them all.

    Args:
        names: of the parties, no two alike.
        make: makes a party from its name, the same one every time; it may read the rows from a disk.
        live: parties that stay in memory, those that were asked last. What the others have learned is in a
            temporary folder, which goes when the network is closed or the process ends, unless it is killed.

    Raises:
        InvalidInput: no names, two alike, or ``live`` below 1.

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
        check_names(names)
        if not isinstance(self.live, int) or isinstance(self.live, bool) or self.live < 1:
            raise InvalidInput(
                f"live is {self.live!r}", where="population", mend="Give a whole number, 1 or more."
            )

    def __repr__(self) -> str:
        return f"Population({len(tuple(self.names)):,} parties, live={self.live})"

    def __iter__(self) -> Iterator[Party]:
        return map(self.made, self.names)

    def made(self, name: str) -> Party:
        """The party of this name, as nobody has asked it anything.

        Raises:
            InvalidInput: what was made has another name.
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


class Residents:
    """The parties of a population between questions: some in memory, the others' states on the disk.

    Args:
        population: who they are.
        public: the public data, which each of them will hold: one copy for all.
    """

    def __init__(self, population: Population, public: Public) -> None:
        self._population, self._public = population, public
        self._places = {name: str(place) for place, name in enumerate(population.names)}
        self._live: dict[str, Party] = {}
        """Those in memory, who was asked last at the end."""
        self._busy: set[str] = set()
        self._away: dict[str, Agreement] = {}
        """What those had agreed on whose states are on the disk."""
        self._owed: defaultdict[str, list[bytes]] = defaultdict(list)
        self._folder: Path | None = None
        self._removed: weakref.finalize[..., Residents] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of all of them, sorted."""
        return tuple(self._places)

    def put_off(self, name: str, request: bytes) -> None:
        """Remember what a party is to do before it is asked something."""
        self._owed[name].append(request)

    def owed(self, name: str) -> list[bytes]:
        """What a party has put off, the first first; whoever does it takes it out."""
        return self._owed[name]

    def take(self, name: str) -> Party:
        """The party as it was left, in memory until :meth:`leave`."""
        party = self._live.pop(name, None) or self._brought_back(name)
        self._live[name] = party
        self._busy.add(name)
        return party

    def leave(self, name: str) -> None:
        """Let a party go when others need its place.

        Raises:
            RunFailed: the state of one that goes cannot be written.
        """
        self._busy.discard(name)
        if not self._owed[name]:
            del self._owed[name]
        idle = (one for one in list(self._live) if one not in self._busy)
        while len(self._live) > self._population.live and (first := next(idle, None)):
            self._put_away(self._live[first])
            del self._live[first]

    def close(self) -> None:
        """Forget what everybody has learned."""
        for known in (self._live, self._away, self._owed):
            known.clear()
        if self._removed is not None:
            self._removed()
        self._folder = None

    def _brought_back(self, name: str) -> Party:
        party = self._population.made(name)
        party.public = self._public
        if name in self._away:
            party.join(self._away[name])
            party.read_state(self._place(name))
        return party

    def _put_away(self, party: Party) -> None:
        if party.agreement is None:
            return  # it has said what it is, and that it will say again
        place = self._place(party.name)
        try:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            with for_this_process():
                party.write_state(place)
        except (OSError, SafetensorError) as error:
            raise RunFailed(
                f"the state of {party.name!r} cannot be written: {error}",
                where="population",
                mend=f"Free some space below {place.parent.parent}, or raise live: more stay in memory.",
            ) from error
        self._away[party.name] = party.agreement

    def _place(self, name: str) -> Path:
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="consilience-"))
            self._removed = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / self._places[name]
