"""Histories of parties: equal for parties that were asked the same, and for no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from consilience import LocalNetwork, Party
from consilience.core.federation.federation import federation_over
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import decode, encode
from consilience.core.party.rules import Keys, PartyRules
from consilience.core.tasks.lifecycle import Checkpoint, Describe, Join, Restore
from consilience.core.tasks.outgoing import answer
from consilience.core.tasks.predictions import Distill, FitPrivate, PredictPublic
from helpers.party_sites import SiteNetwork

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(90, 3)), Public(RNG.normal(size=(20, 3)))
HALF = np.full((20, 2), 0.5, dtype=np.float32)
TEACH = Distill(round=1, targets=HALF, alpha=0.5)


def parties() -> list[Party]:
    """Three parties that share nothing of their own: rows, names, purposes, secrets."""
    y = np.where(X[:, 0] > 0, "up", "down")
    return [
        Party(
            name,
            GaussianNB(),
            X[i::3],
            y[i::3],
            calibration=0.1 * i,
            rules=PartyRules(keys=Keys(secret=name.encode())),
        )
        for i, name in enumerate("abc")
    ]


def joined() -> list[Party]:
    members = parties()
    federation_over(LocalNetwork(members, PUBLIC), PUBLIC, strict=False).form()
    return members


def test_it_is_the_same_for_parties_that_were_asked_the_same() -> None:
    """On the wire or not; questions that change no model do not count."""
    a, b, c = joined()
    assert (
        a.trainer.history.digest == b.trainer.history.digest == c.trainer.history.digest
        and len(a.trainer.history.digest) == 64
    )
    for party in (a, b, c):
        answer(party, (FitPrivate(round=1), TEACH))
    answer(a, (PredictPublic(round=1),))
    answer(a, (Describe(),))
    assert a.trainer.history.digest == b.trainer.history.digest
    answer(b, decode(encode([replace(TEACH, round=2)])))
    answer(c, (replace(TEACH, round=2),))
    assert a.trainer.history.digest != b.trainer.history.digest == c.trainer.history.digest


@pytest.mark.parametrize(
    "other",
    [
        replace(TEACH, alpha=0.5 + 1e-16 * 2),
        replace(TEACH, round=2),
        replace(TEACH, targets=HALF + np.float32(1e-7)),
        replace(TEACH, taught=np.ones(20, dtype=bool)),
        replace(TEACH, free_alpha=True),
        replace(TEACH, share=0.5),
        FitPrivate(round=1),
    ],
    ids=lambda one: type(one).__name__,
)
def test_it_differs_with_every_word_of_a_task(other: Any) -> None:
    a, b, _ = joined()
    answer(a, (FitPrivate(round=1), TEACH))
    answer(b, (FitPrivate(round=1), other))
    assert a.trainer.history.digest != b.trainer.history.digest


def test_joining_begins_another_by_the_agreement_and_the_columns() -> None:
    a, b, c = joined()
    answer(a, (FitPrivate(round=1),))
    assert a.agreement is not None
    answer(a, (Join(agreement=a.agreement),))
    assert a.trainer.history.digest == b.trainer.history.digest
    answer(b, (Join(agreement=replace(a.agreement, seed=1)),))
    assert a.trainer.history.digest != b.trainer.history.digest
    assert c.public is not None
    c.public.__dict__["columns_key"] = "other kinds of columns"
    answer(c, (Join(agreement=a.agreement),))
    assert a.trainer.history.digest != c.trainer.history.digest


def test_a_task_that_fails_leaves_a_history_of_no_other_party() -> None:
    a, b, _ = joined()
    wrong = replace(TEACH, targets=HALF[:, :1])
    for party in (a, b):
        answer(party, (FitPrivate(round=1),))
        answer(party, (wrong,))
    assert a.trainer.history.digest != b.trainer.history.digest


def test_it_is_kept_with_the_state_and_goes_back_with_it(tmp_path: Path) -> None:
    network = SiteNetwork(parties(), PUBLIC, tmp_path)

    def histories() -> list[str]:
        found = []
        for name in network.parties:
            with network.site(name) as site:
                party = site.party()
                assert party is not None
                found.append(party.trainer.history.digest)
        return found

    federation_over(network, PUBLIC, strict=False).form()
    network.ask(FitPrivate(round=1))
    kept = histories()
    assert len(set(kept)) == 1
    network.ask(Checkpoint(round=1))
    network.ask(TEACH)
    assert kept[0] not in histories() and len(set(histories())) == 1
    network.ask(Restore(round=1), to=["a"])
    assert histories()[0] == kept[0] != histories()[1]
