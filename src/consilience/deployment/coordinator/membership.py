"""Who has joined a deployed federation: whoever cannot or does not want to is left out by name.

The others go on where they are enough. A party that is outside is asked nothing but to join, after every
round; not even that where the protocol made sure of something at all the others before the first round, which
it cannot do later. One that takes fewer bytes of public rows than there are is asked how many it takes
instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from consilience.errors import InvalidInput
from consilience.federation.forming import incompatible_parties, too_large_for
from consilience.messages.replies import Description, Failure, Replies
from consilience.messages.schema import Public
from consilience.networks.flower.network import FlowerNetwork
from consilience.networks.incoming import Arrival
from consilience.tasks.base import Task
from consilience.tasks.lifecycle import Describe, Join, TakePublic

SENDS = 3
"""Times that the public rows are sent to a party in a run: it may refuse them, or lose them, without end."""


@dataclass
class JoiningNetwork(FlowerNetwork):
    """Parties on SuperNodes, those outside among them.

    Args:
        public: the rows that every party must hold; those who take them from here are sent them.
        strict: refuse a party with a single class and a class that one party alone knows.
        outside: party to why it has not joined.
        barred: those outside that are not let in any more.
        metrics: party to how often in a run it lets itself be measured; ``None`` for no limit.
        changed: called when somebody was left out or let in.

    Raises:
        QuorumLost: fewer joined than the quorum; it names the others.
    """

    public: Public = field(kw_only=True)
    strict: bool = field(kw_only=True)
    changed: Callable[[], None] = field(default=lambda: None, kw_only=True)
    outside: dict[str, Failure] = field(default_factory=dict, kw_only=True)
    barred: set[str] = field(default_factory=set, kw_only=True)
    metrics: dict[str, int | None] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        assert isinstance(self.nodes, tuple)
        if self.least is None:
            self.least = self._needed(len(self.nodes))
        self._narrow: set[str] = set()
        """Those that said that they take fewer bytes of public rows than there are."""
        self._sent: Counter[str] = Counter()
        """How often each was sent them."""
        super().__post_init__()

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Ask those who have joined; for the others stands why they have not."""
        inside = tuple(name for name in to if name not in self.outside)
        if tasks and isinstance(tasks[0], TakePublic):
            self._sent.update(inside)
        arrivals = dict(super().exchange(tasks, inside, request)) if inside else {}
        return arrivals | {
            name: Arrival(self.outside[name], 0, 0.0) for name in to if name in self.outside
        }

    def require(self, *tasks: Task, to: Sequence[str] | None = None) -> Replies:
        """Ask what every party must answer that takes part; those that do not are left out."""
        named = self.parties if to is None else to
        replies = self.gather(*tasks, to=[name for name in named if name not in self.outside])
        missing, answers = dict(replies.missing), dict(replies.answers)
        if isinstance(tasks[0], Describe):
            for said in _said(answers):
                self.metrics[said.party] = said.metrics if said.tested else 0
            self._narrow = set(too_large_for(_said(answers), self.public))
            while odd := incompatible_parties(_said(answers), self.public, strict=self.strict):
                for name, error in odd.items():
                    del answers[name]
                    missing[name] = _failure(name, error)
        self._leave_out(missing)
        if self.agreement is not None:  # else it is describing or joining, which can be repeated
            self.barred |= self.outside.keys()
        left = [name for name in self.parties if name not in self.outside]
        self._enough(Replies(dict.fromkeys(left, ()), dict(self.outside)), tasks)
        return Replies(answers, dict(self.outside))

    def join(self, names: Iterable[str]) -> None:
        """Have parties join what was agreed on, from the beginning; those that do not are left out.

        Those who lack the public rows are sent them, and asked again.
        """
        if names := sorted(names):
            for name in names:
                self.outside.pop(name, None)
            join, missing = Join(agreement=self.agreed), self._still_narrow(names)
            if able := [name for name in names if name not in missing]:
                missing |= self.with_rows(join, to=able).missing
            self._leave_out(missing)

    def _still_narrow(self, names: Iterable[str]) -> dict[str, Failure]:
        """Ask those again whose limit was below the public rows; those for whom it still is, and why."""
        if not (asked := sorted(self._narrow.intersection(names))):
            return {}
        replies = self.gather(Describe(), to=asked)
        odd = too_large_for(_said(replies.answers), self.public)
        self._narrow -= set(replies) - odd.keys()
        return dict(replies.missing) | {name: _failure(name, error) for name, error in odd.items()}

    def with_rows(self, *tasks: Task, to: Sequence[str]) -> Replies:
        """Ask parties, whoever answers; those that lack the public rows are sent them, and asked again."""
        replies = self.gather(*tasks, to=to)
        sent = self.supply(replies.missing)
        again = self.gather(*tasks, to=sent.parties) if sent.parties else sent
        missing = {**replies.missing, **sent.missing, **again.missing}
        answers = {**replies.answers, **again.answers}
        return Replies(answers, {name: why for name, why in missing.items() if name not in answers})

    def supply(self, missing: Mapping[str, Failure]) -> Replies:
        """Send the public rows to those who say that they lack them, :data:`SENDS` times at most."""
        lacking = [
            name
            for name, why in missing.items()
            if why.code == "lacks-public" and name not in self.outside and self._sent[name] < SENDS
        ]
        if not lacking or not len(self.public):
            return Replies({}, {})
        return self.gather(TakePublic.of(self.public), to=lacking)

    def admit(self) -> None:
        """Have those join that are outside, if they can now."""
        self.join(self.outside.keys() - self.barred)

    def _leave_out(self, missing: Mapping[str, Failure]) -> None:
        for name, why in missing.items():
            self.outside[name] = replace(why, reason=f"it has not joined: {why.reason}")
        self.changed()


def _failure(name: str, error: InvalidInput) -> Failure:
    reason = f"{error.where}: {error.what}"
    return Failure(party=name, reason=reason, mend=error.mend or "", kind="invalid")


def _said(answers: Mapping[str, tuple[Description, ...]]) -> list[Description]:
    return [said for (said,) in answers.values()]
