"""A party's state on its disk: one form."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from consilience import Party
from consilience.core.checks import classifiers
from consilience.core.errors import RunFailed
from consilience.core.files import FORMAT
from consilience.core.messages.columns import Column, Schema
from consilience.core.messages.replies import Failure
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import encode
from consilience.core.party import nearness, state
from consilience.core.party.trainer import Teaching
from consilience.core.tasks.lifecycle import Join
from consilience.core.tasks.predictions import FitPrivate, PredictPublic
from consilience.privacy.accounting.ledger import Release
from consilience.privacy.accounting.losses import PrivacyLoss
from consilience.privacy.accounting.privacy_of import privacy_of
from consilience.sites.party import Limits, PartySite, read_session
from consilience.sites.party.session import Session
from helpers.party_rules import set_public_rules
from helpers.party_sites import agreement, ask, one_party


def trained() -> Party:
    party = one_party()
    party.join(agreement())
    party.trainer.fit_private(1)
    return party


def test_a_state_brings_back_all_that_it_holds(tmp_path: Path) -> None:
    party, again = trained(), one_party()
    party.trainer.memory.keep(control=np.arange(3.0))
    loss = PrivacyLoss(0.5)
    noisy = Release.of("noisy", (), loss)
    privacy_of(party).accountant.release(noisy, lambda: np.ones(2))
    party.write_state(tmp_path)
    again.join_again(tmp_path)
    again.read_state(tmp_path)
    assert encode([again.agreement]) == encode([party.agreement])
    np.testing.assert_array_equal(
        again.trainer.outputs("probabilities"), party.trainer.outputs("probabilities")
    )
    np.testing.assert_array_equal(again.trainer.memory["control"], party.trainer.memory["control"])
    kept = privacy_of(again).accountant.release(noisy, lambda: np.zeros(2))
    np.testing.assert_array_equal(kept, np.ones(2))
    assert privacy_of(again).accountant.spent == loss


def of_columns(columns: tuple[Column, ...]) -> Party:
    """The party, which has joined with public rows of these columns."""
    party = one_party()
    assert party.public is not None
    public = Public(party.public.X, Schema(columns))
    party.hold_public(public)
    party.join(replace(agreement(), public=public.key))
    return party


def test_a_state_read_with_other_columns_has_another_history(tmp_path: Path) -> None:
    """A median fills the gaps of its own table; the digest of public rows does not cover it."""
    columns = tuple(Column(name) for name in ("age", "pressure"))
    moved = tuple(replace(one, median=9.0) for one in columns)
    party, again, other = (of_columns(one) for one in (columns, columns, moved))
    party.trainer.fit_private(1)
    assert party.trainer.public.key == other.trainer.public.key
    party.write_state(tmp_path)
    again.read_state(tmp_path)
    other.read_state(tmp_path)
    assert (
        again.trainer.history.digest == party.trainer.history.digest != other.trainer.history.digest
    )


def test_what_stays_is_shared_with_the_state_before(tmp_path: Path) -> None:
    party, folders = trained(), [tmp_path / "1", tmp_path / "2"]
    for folder, before in zip(folders, [None, folders[0]], strict=True):
        folder.mkdir()
        party.write_state(folder, before=before, keeps_model=before is not None)
    one, two = ({file.name: file.stat().st_ino for file in one.iterdir()} for one in folders)
    assert one == two and len(one) == 3


def test_a_state_that_lost_its_file_is_damaged(tmp_path: Path) -> None:
    trained().write_state(tmp_path)
    (tmp_path / state.ABOUT).unlink()
    fresh = one_party()
    fresh.join(agreement())
    for read in (Party.read_state, Party.join_again):
        with pytest.raises(RunFailed, match=r"state is damaged: there is no state\.json") as error:
            read(fresh, tmp_path)
        assert "Restore it from a copy" in error.value.mend


@pytest.mark.parametrize("content", ["", "[]", f'{{"format": {FORMAT}}}', "no JSON"])
def test_a_damaged_state_says_so(tmp_path: Path, content: str) -> None:
    (tmp_path / state.ABOUT).write_text(content)
    with pytest.raises(RunFailed, match="its state is damaged"):
        state.read_about(tmp_path)


def test_a_site_answers_that_its_state_has_another_format(tmp_path: Path) -> None:
    with PartySite(one_party, tmp_path) as site:
        ask(site, Join(agreement=agreement()))
    (about,) = tmp_path.glob(f"state-*/{state.ABOUT}")
    about.write_text(json.dumps({**json.loads(about.read_text()), "format": FORMAT + 1}))
    with PartySite(one_party, tmp_path) as site:
        for task in (FitPrivate(round=1), Join(agreement=agreement())):
            failure = ask(site, task)
            assert isinstance(failure, Failure) and failure.kind == "failed"
            assert f"its format number is {FORMAT + 1}, and this" in failure.reason
            assert f"move {tmp_path} away" in failure.mend
    with pytest.raises(RunFailed, match="its format number is"):
        read_session(tmp_path)


@pytest.mark.parametrize("name", [field.name for field in fields(Session)])
def test_a_session_without_one_of_its_parts_is_damaged(tmp_path: Path, name: str) -> None:
    with PartySite(one_party, tmp_path) as site:
        ask(site, Join(agreement=agreement()))
    (file,) = tmp_path.glob("state-*/session.json")
    written = json.loads(file.read_text())
    del written[name]
    file.write_text(json.dumps(written))
    with pytest.raises(RunFailed, match=f"its state is damaged: '{name}'"):
        read_session(tmp_path)


def test_a_lost_model_is_not_taken_for_one_that_was_never_trained(tmp_path: Path) -> None:
    with PartySite(one_party, tmp_path) as site:
        ask(site, Join(agreement=agreement()))
        ask(site, FitPrivate(round=1))
    (model,) = tmp_path.glob("state-*/model.*")
    model.unlink()
    with PartySite(one_party, tmp_path) as site:
        assert "its state is damaged" in ask(site, PredictPublic(round=1)).reason


def test_rows_are_held_against_public_ones_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request is a new process's: what was found when the party joined is in its state."""
    looked = []

    class Counted(nearness.Nearness):
        def __init__(self, own: np.ndarray) -> None:
            looked.append(len(own))
            super().__init__(own)

    monkeypatch.setattr(nearness, "Nearness", Counted)
    for task in (Join(agreement=agreement()), FitPrivate(round=1), PredictPublic(round=1)):
        with PartySite(one_party, tmp_path, limits=Limits(overlap=False)) as site:
            assert not isinstance(ask(site, task), Failure)
    assert looked == [len(one_party().rows.X)]


def test_own_rows_that_changed_are_held_against_public_ones_again(tmp_path: Path) -> None:
    party = one_party()
    set_public_rules(party, overlap=False)
    party.join(agreement())
    party.write_state(tmp_path)
    parties, public = classifiers()
    mine = parties[0]
    copied = np.concatenate([mine.rows.X[1:], public.X[:1]])
    changed = Party(mine.name, mine.prototype, copied, mine.rows.y)
    changed.hold_public(public)
    set_public_rules(changed, overlap=False)
    changed.join_again(tmp_path)
    assert (party.trainer.rows.left_out, changed.trainer.rows.left_out) == (0, 1)


def test_predictions_are_computed_once_for_each_state_of_the_model() -> None:
    party = trained()
    first = party.trainer.outputs("probabilities")
    assert party.trainer.outputs("probabilities") is first
    targets = np.full((len(party.public), 3), 1 / 3)
    party.trainer.distill(Teaching(1, targets, 0.5))
    second = party.trainer.outputs("probabilities")
    assert not np.array_equal(first, second)
    party.join(party.agreement)
    party.trainer.fit_private(1)
    np.testing.assert_array_equal(party.trainer.outputs("probabilities"), first)
