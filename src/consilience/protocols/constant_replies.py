"""What parties say once: knowledge that depends on their data alone, and is the same in every round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from consilience.aggregation import Aggregator
from consilience.errors import QuorumLost
from consilience.messages.replies import Replies
from consilience.tasks.base import PROVIDES, STANDING, Network, Task


class Standing:
    """What has been said so far, of what an aggregator needs.

    Whoever has not said it, for having missed a round or because the coordinator was started anew, is asked
    for it first; the answer is the same then.

    Args:
        network: the parties.
        aggregate: the rule that needs it.
    """

    def __init__(self, network: Network, aggregate: Aggregator) -> None:
        self._network, self._aggregate = network, aggregate
        self._kinds = tuple(kind for kind in aggregate.needs if kind in STANDING)
        self._said: dict[str, tuple[Any, ...]] = {}

    def questions(self, *, round: int) -> tuple[Task, ...]:
        """What to ask those who have not said it."""
        options = self._aggregate.options
        return tuple(PROVIDES[kind](round=round, **options.get(kind, {})) for kind in self._kinds)

    def take(self, replies: Replies) -> None:
        """Remember what is in replies to :meth:`questions`, whatever else was asked with them."""
        for party, answers in replies.answers.items():
            self._said[party] = tuple(one for one in answers if isinstance(one, self._kinds))

    def ask(self, parties: Sequence[str], *, round: int) -> tuple[str, ...]:
        """Ask those of the parties who have not said it; who has, after that.

        Raises:
            QuorumLost: nobody has.
        """
        new = tuple(party for party in parties if party not in self._said)
        if self._kinds and new:
            try:
                self.take(self._network.ask(*self.questions(round=round), to=new))
            except QuorumLost:  # they miss the round; the others may be enough for it
                if len(new) == len(parties):
                    raise
        return tuple(p for p in parties if p in self._said) if self._kinds else tuple(parties)

    def beside(self, replies: Replies) -> Replies:
        """The replies of a round, with what was said once."""
        said = {party: self._said.get(party, ()) for party in replies}
        answers = {party: (*given, *said[party]) for party, given in replies.answers.items()}
        return Replies(answers, replies.missing)
