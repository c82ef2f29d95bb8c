"""A party's secret: made once, kept, in nothing that leaves; what a coordinator cannot compute without it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from consilience import Party
from consilience.core.federation.forming import negotiate
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import encode
from consilience.core.party.rules import Keys, PartyRules
from consilience.core.tasks.lifecycle import Checkpoint, Describe, Join, Restore
from consilience.core.tasks.outgoing import answer
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.sites.party import AUDIT, Limits, PartySite, own_secret
from helpers.party_sites import ask

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)), RNG.choice(["a", "b"], size=60)  # hard to tell: models differ
PUBLIC = Public(RNG.normal(size=(40, 3)))


def member(model: Any = "random-forest", secret: bytes = b"") -> Party:
    """A party with a model that draws, or whose rows are drawn."""
    party = Party("ash", model, X, Y, rules=PartyRules(keys=Keys(secret=secret)))
    party.hold_public(PUBLIC)
    return party


def agreed(seed: int = 0) -> Any:
    return negotiate([Describe().run(member())], PUBLIC, seed=seed)


def network() -> Any:
    pytest.importorskip("torch")
    return "mlp"


MODELS = {
    "forest": lambda: RandomForestClassifier(5),
    "logistic regression": LogisticRegression,  # of the rows that calibration leaves
    "network": network,
}


def replayed(party: Party) -> np.ndarray:
    """What whoever knows the rows and the seed computes."""
    party.join(agreed())
    return answer(party, [FitPrivate(round=1), PredictPublic(round=1)])[1].values


@pytest.mark.parametrize("name", MODELS)
def test_the_seed_is_not_enough_to_compute_again_what_a_party_says(
    name: str, tmp_path: Path
) -> None:
    model = MODELS[name]()
    with PartySite(lambda: member(model), tmp_path) as site:
        ask(site, Join(agreement=agreed()))
        said = ask(site, FitPrivate(round=1), PredictPublic(round=1))[1].values
    assert not np.array_equal(said, replayed(member(model)))
    np.testing.assert_array_equal(said, replayed(member(model, own_secret(tmp_path))))


def test_it_is_made_once_and_is_in_nothing_else(tmp_path: Path) -> None:
    """Whatever is joined and restored, and in whatever process."""
    replies, seen = [], set()
    for tasks in [
        (Join(agreement=agreed()),),
        (FitPrivate(round=1), PredictPublic(round=1), Checkpoint(round=1)),
        (Restore(round=1),),
        (Join(agreement=agreed(seed=1)),),
    ]:
        with PartySite(member, tmp_path) as site:
            replies.append(site.answer(encode(tasks)))
        seen.add(own_secret(tmp_path))
    (secret,) = seen
    path = tmp_path / "secret"
    assert len(secret) == 32 and stat.S_IMODE(path.stat().st_mode) == 0o600
    with PartySite(member, tmp_path / "another") as site:
        ask(site, Join(agreement=agreed()))
    assert own_secret(tmp_path / "another") != secret
    others = [file for file in tmp_path.rglob("*") if file.is_file() and file != path]
    assert tmp_path / AUDIT in others
    for content in (*(file.read_bytes() for file in others), *replies):
        assert secret not in content and secret.hex().encode() not in content


@pytest.mark.parametrize(
    ("lose", "message"),
    [(Path.unlink, "its secret is gone"), (lambda path: path.write_bytes(b"x"), "is damaged")],
)
def test_without_it_a_party_that_has_joined_does_not_go_on(
    tmp_path: Path, lose: Any, message: str
) -> None:
    with PartySite(member, tmp_path) as site:
        ask(site, Join(agreement=agreed()))
    lose(tmp_path / "secret")
    with PartySite(member, tmp_path) as site:
        failure = ask(site, FitPrivate(round=1))
    assert isinstance(failure, Failure) and message in failure.reason
    assert "Restore it from a copy" in failure.mend


def test_a_disk_that_is_full_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def full(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").endswith(".part-secret"):
            raise OSError(28, "No space left on device")
        sync(handle)

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with PartySite(member, tmp_path) as site:
            failure = ask(site, Join(agreement=agreed()))
    assert "its secret cannot be read or written (No space left" in failure.reason
    assert not list(tmp_path.glob("*secret*"))
    with PartySite(member, tmp_path) as site:
        ask(site, Join(agreement=agreed()))
    assert len(own_secret(tmp_path)) == 32


def test_who_trusts_the_coordinator_has_none(tmp_path: Path) -> None:
    with PartySite(member, tmp_path, limits=Limits(secret=False)) as site:
        ask(site, Join(agreement=agreed()))
    assert not (tmp_path / "secret").exists()
