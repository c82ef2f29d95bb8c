"""Cache the replies that depend only on a party's data, and so stay constant over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from consilience.core.aggregation import Aggregator
from consilience.core.errors import QuorumLost
from consilience.core.messages.replies import Replies
from consilience.core.protocols.base import score_questions
from consilience.core.tasks.base import NetworkView, Task


class ConstantReplies:
    """Cache of the parties' static scores.

    A party without cached scores is queried first when it next takes part, because it missed the question or
    because the coordinator was restarted. Its answer is the same as before.

    Args:
        network: the parties.
        aggregate: the rule that needs the scores.
    """

    def __init__(self, network: NetworkView, aggregate: Aggregator) -> None:
        self._network, self._aggregate = network, aggregate
        self._kinds = tuple(task.reply_type for task in self.questions(round=1))
        self._replies: dict[str, tuple[Any, ...]] = {}

    def questions(self, *, round: int) -> tuple[Task, ...]:
        """List the tasks for a party without cached scores.

        Args:
            round: the round.
        """
        return score_questions(self._aggregate, round=round, static=True)

    def keep(self, replies: Replies) -> None:
        """Store the replies to :meth:`questions`, and ignore replies to other tasks.

        Args:
            replies: replies of a round.
        """
        for party, answers in replies.answers.items():
            self._replies[party] = tuple(one for one in answers if isinstance(one, self._kinds))

    def ask(self, parties: Sequence[str], *, round: int) -> tuple[str, ...]:
        """Ask the parties whose replies are missing, and give the names of all whose replies are there.

        Args:
            parties: names of the parties that take part in the round.
            round: the round.

        Raises:
            QuorumLost: there are none.
        """
        new = tuple(party for party in parties if party not in self._replies)
        if self._kinds and new:
            try:
                self.keep(self._network.ask(*self.questions(round=round), to=new))
            except QuorumLost:  # they miss the round; the others may be enough for it
                if len(new) == len(parties):
                    raise
        return tuple(p for p in parties if p in self._replies) if self._kinds else tuple(parties)

    def added_to(self, replies: Replies) -> Replies:
        """Make the replies of a round complete with the constant ones."""
        answers = {
            party: (*given, *self._replies.get(party, ()))
            for party, given in replies.answers.items()
        }
        late = {
            party: (age, (*given, *self._replies.get(party, ())))
            for party, (age, given) in replies.late.items()
        }
        return Replies(answers, replies.missing, late=late)
