"""Choice of the parties of a secure sum at the coordinator, by what their keys state.

Parties refuse a sum of other parties than those of their first one, and with parties of another history
(:mod:`consilience.privacy.secure_aggregation.secure_sum`). Here these parties are left out before any party
refuses, or the run ends with the names of those that are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping

from consilience.core.errors import KnowledgeRefused, QuorumLost
from consilience.core.messages.replies import Failure
from consilience.core.tasks.outgoing import failure_of
from consilience.privacy.secure_aggregation.messages import SumKeys


def fixed_set(keys: Mapping[str, SumKeys], *, threshold: int) -> tuple[str, ...]:
    """Find the parties that all sums are over, as the parties' keys state them; empty before the first sum.

    If parties state different sets, the one that most state counts. If it is not of the parties that are
    there, and enough of these are bound to no set, a first sum of these is still possible, and no set counts:
    else a single party that lies would choose the set.

    Args:
        keys: party to its keys.
        threshold: fewest parties that open a sum.

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
    """Select the parties that can be in one sum, and note why the others cannot.

    Args:
        keys: party to its keys.
        fixed: names of the parties that all sums are over; empty before the first.
        missing: party to the reason why it is not in the sum; those that are left out are added.

    Returns:
        The keys of the parties that are left: of ``fixed``, if it is not empty, and of the history that most
        of these have.
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
    """Raise ``QuorumLost`` unless all parties of a fixed set are there.

    Args:
        there: the parties that are there.
        fixed: names of the parties that all sums are over; empty before the first.
        missing: party to the reason why it is not there.
        where: the round, for the error.
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
    """Name the parties that are not in a sum, and why."""
    each = [f"{name} ({one.kind}: {one.reason})" for name, one in missing.items()]
    return "Left out: " + "; ".join(each) if each else ""
