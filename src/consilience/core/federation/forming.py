"""Forming a federation: check before any training that the parties' descriptions are compatible."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.messages.replies import Description
from consilience.core.messages.schema import MOST_SUMMED, Agreement, Public, Ratios
from consilience.core.tasks.lifecycle import TakePublic
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import class_order


def negotiate(
    descriptions: Iterable[Description],
    public: Public,
    *,
    seed: int = 0,
    encoder: str = "",
) -> Agreement:
    """Make the agreement of parties that fit (:func:`incompatible_parties`) from their descriptions.

    Args:
        descriptions: every party's description of itself.
        public: the public rows that all must hold.
        seed: everything random is keyed by it.
        encoder: digest of the encoder that rows are compared by; empty for none.
    """
    descriptions = list(descriptions)
    kind = descriptions[0].kind
    classes = class_order({name for description in descriptions for name in description.classes})
    answering = sorted(one.party for one in descriptions if not one.learns_only)
    return Agreement(
        kind=kind,
        classes=classes if kind == "classification" else (),
        outputs=len(classes) or max(one.outputs for one in descriptions),
        public=public.key,
        rows=len(public),
        seed=seed,
        encoder=encoder,
        ratios=_least(one.ratios for one in descriptions if one.labelled),
        frozen=tuple(sorted(one.party for one in descriptions if one.frozen)),
        learners=tuple(sorted(one.party for one in descriptions if one.learns_only)),
        outcome=descriptions[0].outcome,
        summed=tuple(answering) if len(answering) <= MOST_SUMMED else (),
    )


def check_classes_fixed(classes: Iterable[str], before: Iterable[str]) -> None:
    """Raise ``InvalidInput`` if parties that join late have classes beyond those agreed before."""
    if new := sorted(set(classes) - set(before)):
        raise InvalidInput(
            f"class {new[0]!r} is none of those that were agreed on",
            where="federation",
            mend="Leave such rows out, name them otherwise (aliases), or start a run anew with the class.",
        )


def _folded(name: str) -> str:
    """A name without capitals and blanks, in which likely slips differ."""
    return "".join(name.lower().split())


def _least(ratios: Iterable[Ratios]) -> Ratios:
    """Return the least informative density ratios among the parties' settings; ``"none"`` without any."""
    return min(ratios, key=get_args(Ratios).index, default="none")


def lacking_public(descriptions: Iterable[Description], public: Public) -> list[str]:
    """List the parties that want the public rows from the coordinator and do not hold them yet."""
    return [
        description.party
        for description in descriptions
        if len(public) and description.takes_public and public.key not in description.public
    ]


def too_large_for(descriptions: Iterable[Description], public: Public) -> dict[str, InvalidInput]:
    """Find the parties whose size limit is below the public rows to send them, each with its error."""
    limits = {one.party: one.takes_public for one in descriptions}
    limits = {name: limits[name] for name in lacking_public(descriptions, public)}
    size = TakePublic.of(public).unpacked if limits else 0
    return {
        name: InvalidInput(
            f"limits.public_bytes: the public rows take {size:,} bytes, and it takes {limit:,}",
            where=f"party {name!r}",
            mend="The party's engineer may raise public_bytes, or name a file of them.",
        )
        for name, limit in limits.items()
        if limit < size
    }


_HOLDS = 0.05
"""Share of its rows of its largest class, and one row, that a party needs of a class to hold it."""

_SHOWN = 12
"""Classes that a sentence lists."""


def holders_by_class(labels: Iterable[Array], classes: int) -> Array:
    """Count the parties with each class: at least one row of it, and at least 5 % of their largest class.

    Args:
        labels: class codes from 0, one array for each party.
        classes: number of classes, K.

    Returns:
        Shape ``(K,)``, int.
    """
    counts = np.array([np.bincount(one, minlength=classes) for one in labels])
    least = np.maximum(1, _HOLDS * counts.max(axis=1, keepdims=True))
    return np.asarray((counts >= least).sum(axis=0))


def borne(holders: int) -> int:
    """Give the malicious parties that a class with so many holders bears, themselves counted as holders.

    Without labelled rows ``2 f + 1`` holders are necessary for f (``docs/theory/robustness.md``).

    >>> [borne(n) for n in (1, 2, 3, 4, 5)]
    [0, 0, 1, 1, 2]
    """
    return max(0, (holders - 1) // 2)


def bound_by_class(classes: Mapping[str, Iterable[str]]) -> str:
    """Write a sentence on each class: its number of holders and of tolerable malicious parties.

    Args:
        classes: party to the names of the classes in its description.

    Returns:
        The sentence; empty if no party has classes.
    """
    holders = Counter(str(name) for known in classes.values() for name in set(known))
    if not holders:
        return ""
    alike: dict[int, list[str]] = defaultdict(list)
    for name, count in sorted(holders.items()):
        alike[count].append(name)
    each = [
        f"{borne(count)} for {_listed(names)} ({count} holder{'s' * (count != 1)})"
        for count, names in sorted(alike.items())
    ]
    said = f"malicious parties that a class bears without labelled rows: {'; '.join(each)}"
    if not all(borne(count) for count in holders.values()):
        said += ". For a class that bears 0 give a root set of ten labelled rows: robustness.secret_labels"
    return said


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(repr, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def known_to_few(classes: Mapping[str, Iterable[str]], tolerates: int) -> str:
    """Name the class with the fewest holders, if it has too few to tolerate the malicious parties.

    If ``2 f`` parties or fewer hold a class, no rule can distinguish ``f`` parties that invent it from the
    true holders.

    Args:
        classes: party to the names of the classes in its description.
        tolerates: f, the number of malicious parties.

    Returns:
        A sentence without its full stop; empty if every class has more holders.
    """
    holders: dict[str, list[str]] = defaultdict(list)
    for party in sorted(classes):
        for name in classes[party]:
            holders[str(name)].append(party)
    few = {name: known for name, known in holders.items() if len(known) <= 2 * tolerates}
    if not few:
        return ""
    name, known = min(few.items(), key=lambda one: (len(one[1]), one[0]))
    further = f", and so it is with {len(few) - 1} further classes" if len(few) > 1 else ""
    return f"{tolerates} may lie, and class {name!r} is known to {', '.join(known)} alone{further}"


def check_tolerates(descriptions: Iterable[Description], tolerates: int) -> None:
    """Raise ``InvalidInput`` if a class has too few holders to tolerate the malicious parties.

    Args:
        descriptions: every party's description of itself.
        tolerates: f, the number of malicious parties.
    """
    said = {one.party: one.classes for one in descriptions if not one.learns_only}
    if why := known_to_few(said, tolerates):
        raise InvalidInput(
            why,
            where="robustness.tolerates",
            mend=f"No rule tells which of fewer than {2 * tolerates + 1} are right: give secret_labels, find "
            "more parties that know it, or leave tolerates out.",
        )


MANY_NUMBERS = 30
"""Limit on classes of a single party: if all class names are whole numbers, and more than this and more than
half of them occur at one party only, the labels are treated as amounts."""


MOST_RARE = 1_000
"""Maximum number of rare classes, which at most half of the parties have. It equals a party's default
``limits.classes``, so that a few parties with invented classes cannot exclude all others."""


def incompatible_parties(
    descriptions: Sequence[Description],
    public: Public,
    *,
    strict: bool = True,
) -> dict[str, InvalidInput]:
    """Find the parties incompatible with the majority; all parties if there is no majority.

    Classifiers are incompatible with regressors, and so are different numbers of targets. The search repeats
    without the parties found, because their exclusion can make others incompatible.

    Args:
        descriptions: every party's description of itself.
        public: the public rows that all parties must have.
        strict: also find parties with a single class, and parties with a class that no other party has.

    Returns:
        Party to its error.
    """
    found: dict[str, InvalidInput] = {}
    left = list(descriptions)
    while odd := _incompatible(left, public, strict):
        found |= odd
        left = [one for one in left if one.party not in odd]
    return found


def _incompatible(
    descriptions: Sequence[Description], public: Public, strict: bool
) -> dict[str, InvalidInput]:
    """Parties that do not fit the others as these are, each with the error."""
    if all(description.learns_only for description in descriptions):
        error = InvalidInput(
            "no party answers: all of them learn only",
            where="federation",
            mend="Give labels to one party at least, or a frozen model.",
        )
        return dict.fromkeys((one.party for one in descriptions), error)
    rows = {description.row for description in descriptions} - {"any"}
    if len(rows) > 1 and not len(public):  # public rows are held against everybody's own
        odd = _minority(descriptions, lambda description: description.row)
        unlike = {one.party: next(d for d in descriptions if d.row != one.row) for one in odd}
        return {
            one.party: InvalidInput(
                _unlike(one, unlike[one.party]),
                where="federation",
                mend="Give public rows, whose columns say how every party's are read; without them parties "
                "that use one another's models need the same columns in the same order, of numbers "
                "without gaps.",
            )
            for one in odd
        }
    if len({description.kind for description in descriptions}) > 1:
        regressors = [d.party for d in descriptions if d.kind == "regression"]
        error = InvalidInput(
            f"some parties classify, others regress ({', '.join(regressors)})",
            where="federation",
            mend="Give every party a model of the same kind.",
        )
        return dict.fromkeys(
            (d.party for d in _minority(descriptions, lambda description: description.kind)), error
        )
    if len({description.outcome for description in descriptions}) > 1:
        odd = _minority(descriptions, lambda description: description.outcome)
        other = {
            one.party: next(d for d in descriptions if d.outcome != one.outcome) for one in odd
        }
        return {
            one.party: InvalidInput(
                f"the outcome of {one.party!r} is {_said(one)}, of {other[one.party].party!r} "
                f"{_said(other[one.party])}",
                where="federation",
                mend="Every party needs the same outcome, with the same edges.",
            )
            for one in odd
        }
    outputs = {one.outputs for one in descriptions if one.outputs or not one.learns_only}
    if len(outputs) > 1:
        error = InvalidInput(
            f"parties have different numbers of targets: {sorted(outputs)}", where="federation"
        )
        return dict.fromkeys(
            (d.party for d in _minority(descriptions, lambda description: description.outputs)),
            error,
        )
    named = [one for one in descriptions if one.target_key]
    if len({one.target_key for one in named}) > 1:
        return {
            one.party: InvalidInput(
                f"the targets of {one.party!r} have other names, or stand in another order, than those of "
                "other parties",
                where="federation",
                mend="Give all parties tables y with the same columns in the same order.",
            )
            for one in _minority(named, lambda description: description.target_key)
        }
    found = too_large_for(descriptions, public)
    holders: dict[str, list[str]] = defaultdict(list)
    for description in descriptions:
        if description.kind == "regression" or description.learns_only:
            continue
        if len(description.classes) < (2 if strict else description.fewest_classes):
            found[description.party] = InvalidInput(
                f"its private data hold one class only, {description.classes[0]!r}",
                where=f"party {description.party!r}",
                mend="Give it rows of another class, or leave it out; or a model that one class can train, "
                "such as a forest, with strict=False."
                if description.fewest_classes > 1
                else "Give it rows of another class, or pass strict=False if it is meant.",
            )
        for name in description.classes:
            holders[name].append(description.party)
    single = sorted(name for name, held in holders.items() if len(held) == 1)
    alone: dict[str, str] = {}  # party to the first class that it has alone
    for name in single:
        alone.setdefault(holders[name][0], name)
    if found or not strict or len(descriptions) == 1:
        return found
    if many := _with_many_rare(holders):
        return many
    if spelt := _spelt_otherwise(holders):
        return spelt
    others = [name for name, parties in holders.items() if len(parties) > 1]
    numbers = all(name.lstrip("-").isdigit() for name in holders)
    if numbers and len(single) > max(MANY_NUMBERS, len(holders) / 2):
        counts = InvalidInput(
            f"its labels look like amounts, not classes: the parties have {len(holders)} different numbers",
            where="federation",
            mend="To predict an amount, give every party a regressor (in a configuration, "
            'kind = "regression"); if they are classes, pass strict=False.',
        )
        return dict.fromkeys(alone, counts)
    for party, name in alone.items():
        found[party] = InvalidInput(
            f"no other party has class {name!r}",
            where=f"party {party!r}",
            mend=f"{nearest(name, others) if others else ''} If it is another name for a known class, "
            "give an alias, Party(outcome=Classes(aliases={own: name})); if it is meant, pass "
            "strict=False.".strip(),
        )
    return found


def _with_many_rare(holders: Mapping[str, Sequence[str]]) -> dict[str, InvalidInput]:
    """Find the parties with the most rare classes, each with its error; none if there are few rare classes.

    A class is rare if at most half of the parties have it.

    Args:
        holders: class to the parties with it.
    """
    parties = {party for held in holders.values() for party in held}
    rare = [held for held in holders.values() if 2 * len(held) <= len(parties)]
    if len(rare) <= MOST_RARE:
        return {}
    counts = Counter(party for held in rare for party in held)
    most = max(counts.values())
    return {
        party: InvalidInput(
            f"{count:,} of its classes are known to half of the parties or fewer; together they have "
            f"{len(rare):,} such classes, and {MOST_RARE:,} are taken",
            where=f"party {party!r}",
            mend="Are they classes, and not amounts or identifiers? If they are meant, pass strict=False.",
        )
        for party, count in counts.items()
        if count == most
    }


def _spelt_otherwise(holders: Mapping[str, Sequence[str]]) -> dict[str, InvalidInput]:
    """Find the parties whose class differs from others' only in capitals and blanks, each with its error.

    Args:
        holders: class to the parties with it.
    """
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in sorted(holders, key=lambda name: (-len(holders[name]), name)):
        spellings[_folded(name)].append(name)
    usual: dict[str, dict[str, str]] = defaultdict(dict)  # party to own class to that of others
    for names in spellings.values():
        held = [party for name in names for party in holders[name]]
        if len(set(held)) < len(held):
            continue  # a party has both, and means two classes
        tied = len(names) > 1 and len(holders[names[0]]) == len(holders[names[1]])
        for name in names[0 if tied else 1 :]:
            for party in holders[name]:
                usual[party][name] = names[name == names[0]]
    return {
        party: InvalidInput(
            f"its class {next(iter(named))!r} is {next(iter(named.values()))!r} at another party",
            where=f"party {party!r}",
            mend=f"Give an alias, Party(outcome=Classes(aliases={named})), or [data.aliases] in its file; if "
            "they are not the same, pass strict=False.",
        )
        for party, named in usual.items()
    }


def _said(description: Description) -> str:
    """The outcome of a party, in words."""
    return description.outcome or "classes or values"


def _unlike(one: Description, other: Description) -> str:
    """Describe how the rows of two parties differ, without their digests, which are unreadable to users."""
    (form, _, _), (others, _, _) = (each.row.partition(" with columns ") for each in (one, other))
    if form != others:
        return f"an input of {one.party!r} is {form}, one of {other.party!r} {others}"
    return (
        f"there are no public rows, and the columns of {one.party!r} and {other.party!r} differ in their "
        "names, their order or their categories, or have gaps"
    )


def _minority(
    descriptions: Sequence[Description], what: Callable[[Description], Any]
) -> list[Description]:
    """Select the descriptions that differ from the majority in ``what``."""
    counted = Counter(map(what, descriptions)).most_common()
    tied = len(counted) > 1 and counted[0][1] == counted[1][1]
    return [one for one in descriptions if tied or what(one) != counted[0][0]]
