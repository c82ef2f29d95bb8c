"""Selection of the parties of a secure sum at the coordinator, from the statements in their keys.

Parties refuse a sum over other parties than in their first sum, and a sum with parties of another history
(:mod:`consilience.privacy.secure_aggregation.secure_sum`). This module excludes such parties before any party
refuses, or ends the run with the names of missing parties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping

from consilience.core.errors import KnowledgeRefused, QuorumLost
from consilience.core.messages.replies import Failure
from consilience.core.tasks.outgoing import failure_of
from consilience.privacy.secure_aggregation.messages import SumKeys


def fixed_set(keys: Mapping[str, SumKeys], *, threshold: int) -> tuple[str, ...]:
    """Return the fixed set of parties of all sums, from the parties' keys; empty before the first sum.

    If parties state different sets, the most common one counts. It does not count if it differs from the
    present parties, and enough of these are not bound to a set yet, because a first sum of these is still
    possible. Otherwise a single malicious party could choose the set.

    Args:
        keys: maps parties to their keys.
        threshold: minimum number of parties that open a sum.

    Returns:
        Names, sorted.
    """
    stated = Counter(one.bound for one in keys.values() if one.bound)
    if not stated:
        return ()
    fixed = stated.most_common(1)[0][0]
    free = sum(not one.bound for one in keys.values())
    return () if set(fixed) != keys.keys() and free >= threshold else fixed


def members_of(
    keys: Mapping[str, SumKeys],
    fixed: tuple[str, ...],
    missing: MutableMapping[str, Failure],
) -> dict[str, SumKeys]:
    """Select the parties that can be in one sum, and record the reason for each other party.

    Args:
        keys: maps parties to their keys.
        fixed: names of the parties of all sums; empty before the first.
        missing: maps excluded parties to the reason; excluded parties are added.

    Returns:
        Keys of the remaining parties: members of ``fixed``, if it is not empty, with the most common history.
    """
    fitting = {}
    for name, one in keys.items():
        if one.bound not in ((), fixed):
            why = f"its sums are over {', '.join(one.bound)}, and it opens none of other parties"
        elif fixed and name not in fixed:
            why = f"it was not in the first sum, and all sums are over {', '.join(fixed)}"
        else:
            fitting[name] = one
            continue
        missing[name] = failure_of(name, KnowledgeRefused(why))
    histories = Counter(one.history for one in fitting.values())
    most = histories.most_common(1)[0][0] if histories else ""  # of two as common the first by name
    found = {name: one for name, one in fitting.items() if one.history == most}
    why = "it missed or failed at something that the others were asked: a sum with it may tell its answers"
    for name in fitting.keys() - found.keys():
        missing[name] = failure_of(name, KnowledgeRefused(why))
    return found


def check_whole(
    there: Mapping[str, object],
    fixed: tuple[str, ...],
    missing: Mapping[str, Failure],
    *,
    where: str,
) -> None:
    """Raise ``QuorumLost`` unless all parties of a fixed set are present.

    Args:
        there: the present parties.
        fixed: names of the parties of all sums; empty before the first.
        missing: maps absent parties to the reason.
        where: the round, for the error message.
    """
    gone = [name for name in fixed if name not in there]
    if not gone:
        return
    names = ", ".join(gone)
    raise QuorumLost(
        f"{names} of the parties of the first sum ({', '.join(fixed)}) {'is' if len(gone) == 1 else 'are'} "
        "missing, and the others open no sum without: it would tell the answers of a single party",
        where=where,
        mend=f"Start {names} again, and resume the run. For sums without, each party's engineer changes its "
        f"[roster], and a run begins. {left_out(missing)}".strip(),
    )


def left_out(missing: Mapping[str, Failure]) -> str:
    """List the parties excluded from a sum, with the reasons, as text."""
    each = [f"{name} ({one.kind}: {one.reason})" for name, one in missing.items()]
    return "Left out: " + "; ".join(each) if each else ""
