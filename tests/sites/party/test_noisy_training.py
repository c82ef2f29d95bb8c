"""A party at its own machine that trains its network with noise, once in its life."""

from __future__ import annotations

from pathlib import Path

import pytest

from consilience import Party
from consilience.core.learners import as_learner
from consilience.core.messages.replies import Failure, Predictions, Receipt
from consilience.core.numerics.outcomes import Classes
from consilience.core.tasks.lifecycle import Join
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.privacy.accounting.ledger import FOLDER, entries
from consilience.sites.party import Limits, PartySite
from helpers.party_sites import agreement, ask, one_party

torch = pytest.importorskip("torch")

LIMITS = Limits(epsilon=3.0, delta=1e-3, training={"rows": 40, "epochs": 2})


def network() -> Party:
    given = one_party()
    model = as_learner(torch.nn.Linear(2, 3))
    party = Party(given.name, model, given.rows.X, given.rows.y, outcome=Classes(("0", "1", "2")))
    party.hold_public(given.public)
    return party


def test_a_network_is_trained_on_private_rows_once(tmp_path: Path) -> None:
    """After a restart, with another seed, federation and ε it predicts the same, and has spent no more."""
    said = []
    for seed, federation, epsilon in ((0, "heart", 3.0), (7, "lung", 8.0)):
        limits = LIMITS.model_copy(update={"epsilon": epsilon})
        with PartySite(network, tmp_path, limits=limits) as site:
            joined = ask(site, Join(agreement=agreement(seed=seed)), federation=federation)
            assert isinstance(joined, Receipt), joined
            early = ask(site, PredictPublic(round=1), federation=federation)
            assert isinstance(early, Failure) and "not trained with noise yet" in early.reason
            ask(site, FitPrivate(round=1), federation=federation)
        with PartySite(network, tmp_path, limits=limits) as site:
            said.append(ask(site, PredictPublic(round=1), federation=federation))
            ask(site, FitPrivate(round=2), federation=federation)
            said.append(ask(site, PredictPublic(round=2), federation=federation))
    assert all(isinstance(one, Predictions) for one in said)
    assert len({one.values.tobytes() for one in said}) == 1
    (line,) = entries(tmp_path / FOLDER)
    assert line["kind"] == "training with noise"
    with PartySite(network, tmp_path, limits=Limits(epsilon=3.0, delta=1e-3)) as site:
        without = ask(site, PredictPublic(round=2), federation="lung")
    assert "states no privacy cost" in without.reason
