"""Who has joined a deployed federation: whoever cannot or does not want to is left out by name.

The others go on where they are enough. A party that is outside is asked nothing but to join, after every
round; not even that where the protocol made sure of something at all the others before the first round, which
it cannot do later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from consilience.federation import at_odds
from consilience.knowledge import Description, Failure, Public, Replies
from consilience.network.base import Arrival
from consilience.network.flower import FlowerNetwork
from consilience.party import LACKS_PUBLIC
from consilience.tasks import Describe, Join, TakePublic, Task


@dataclass
class JoiningNetwork(FlowerNetwork):
    """Parties on SuperNodes, those outside among them.

    Args:
        public: the rows that every party must hold; those who take them from here are sent them.
        strict: refuse a party with a single class and a class that one party alone knows.
        outside: party to why it has not joined.
        barred: those outside that are not let in any more.
        changed: called when somebody was left out or let in.

    Raises:
        QuorumLost: fewer joined than the quorum; it names the others.
    """

    public: Public = field(kw_only=True)
    strict: bool = field(kw_only=True)
    changed: Callable[[], None] = field(default=lambda: None, kw_only=True)
    outside: dict[str, Failure] = field(default_factory=dict, kw_only=True)
    barred: set[str] = field(default_factory=set, kw_only=True)

    def __post_init__(self) -> None:
        assert isinstance(self.nodes, tuple)
        if self.least is None:
            self.least = self._needed(len(self.nodes))
        super().__post_init__()

    def exchange(
        self, tasks: tuple[Task, ...], to: tuple[str, ...], request: bytes
    ) -> Mapping[str, Arrival]:
        """Ask those who have joined; for the others stands why they have not."""
        inside = tuple(name for name in to if name not in self.outside)
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
            while odd := at_odds(_said(answers), self.public, strict=self.strict):
                for name, error in odd.items():
                    del answers[name]
                    reason = f"{error.where}: {error.what}"
                    missing[name] = Failure(
                        party=name, reason=reason, mend=error.mend or "", kind="invalid"
                    )
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
            join = Join(agreement=self.agreed)
            missing = dict(self.gather(join, to=names).missing)
            lacking = [name for name, why in missing.items() if LACKS_PUBLIC in why.reason]
            if lacking and len(self.public):
                sent = self.gather(TakePublic.of(self.public), to=lacking)
                missing |= sent.missing
                for name in sent:
                    del missing[name]
                if sent.parties:
                    missing |= self.gather(join, to=sent.parties).missing
            self._leave_out(missing)

    def admit(self) -> None:
        """Have those join that are outside, if they can now."""
        self.join(self.outside.keys() - self.barred)

    def _leave_out(self, missing: Mapping[str, Failure]) -> None:
        for name, why in missing.items():
            self.outside[name] = replace(why, reason=f"it has not joined: {why.reason}")
        self.changed()


def _said(answers: Mapping[str, tuple[Description, ...]]) -> list[Description]:
    return [said for (said,) in answers.values()]
