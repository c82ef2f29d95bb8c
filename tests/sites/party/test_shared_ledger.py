"""One ε for the people of a hospital, whatever federations their rows take part in."""

from __future__ import annotations

import hashlib
import multiprocessing
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.federation.forming import negotiate
from consilience.core.messages.replies import Failure
from consilience.core.tasks.lifecycle import Describe, Join
from consilience.lab.cli.main import app
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.ledger import FOLDER, PrivacyLedger, Release, entries
from consilience.privacy.accounting.losses import PrivacyLoss, gaussian_mu
from consilience.privacy.accounting.stage import Accountant, BudgetExceeded
from consilience.privacy.class_sums.messages import ClassSums
from consilience.privacy.class_sums.tasks import SumClasses, public_basis
from consilience.sites.party import read_party
from consilience.sites.party.privacy_limits import spending
from helpers.modes import open_to_others, umask
from helpers.party_sites import ask

GUIDE = Path(__file__).parents[3] / "docs" / "howto" / "private-by-a-number.md"
PARTY = """
name = "north"
public = "../public.csv"
[data]
path = "patients.csv"
target = "{target}"
columns = ["age", "pressure"]
classes = ["no", "yes"]
[model]
name = "naive-bayes"
[limits]
{limits}
"""


def limits_of_the_guide(digest: str) -> str:
    """The section ``[limits]`` that the guide shows for both of a hospital's federations."""
    (block,) = re.findall(r"# heart/party.toml .*?```", GUIDE.read_text(), re.DOTALL)
    left = [line.partition("#")[0].strip() for line in block.splitlines()[1:-1]]
    assert left[0] == "[limits]"
    return "\n".join(left[1:]).replace('"d7a8…"', f'"{digest}"')


@pytest.fixture
def hospital(tmp_path: Path) -> Path:
    """Two federations of one hospital, each with a copy of the file of patients and a target of its own."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 2))
    lines = [
        f"{a:.4f},{b:.4f},{'yes' if a > 0 else 'no'},{'yes' if b > 0 else 'no'}" for a, b in rows
    ]
    (tmp_path / "public.csv").write_text(
        "\n".join(["age,pressure", *(f"{a:.4f},{b:.4f}" for a, b in rng.normal(size=(20, 2)))])
    )
    for name, target in (("heart", "ill"), ("stroke", "struck")):
        (tmp_path / name).mkdir()
        data = tmp_path / name / "patients.csv"
        data.write_text("\n".join(["age,pressure,ill,struck", *lines]))
        digest = hashlib.sha256(data.read_bytes()).hexdigest()
        limits = limits_of_the_guide(digest)
        text = PARTY.format(target=target, limits=limits)
        (tmp_path / name / "party.toml").write_text(text)
    return tmp_path


def sums(folder: Path, dimensions: int = 2) -> ClassSums | Failure:
    """Have a party join, and ask for the sums of its rows."""
    spec = read_party(folder / "party.toml")
    party = spec.party()
    agreed = negotiate([Describe().run(party)], party.public)
    with spec.site() as site:
        said = ask(site, Join(agreement=agreed))
        assert not isinstance(said, Failure), said
        return ask(
            site, SumClasses.of(public_basis(party.public, "directions", dimensions), round=1)
        )


def spent(folder: Path) -> float:
    """ε that a party's budget says was spent."""
    spec = read_party(folder / "party.toml")
    return float(
        re.search(r"epsilon ([\d.]+)", spending(spec.state, spec.limits)["spent"]).group(1)
    )  # type: ignore[union-attr]


def test_two_federations_as_the_guide_says_spend_no_more_than_epsilon(hospital: Path) -> None:
    """Each has its target, so each gets sums of its own; then the budget of both is spent."""
    heart, stroke = (sums(hospital / name) for name in ("heart", "stroke"))
    assert isinstance(heart, ClassSums) and isinstance(stroke, ClassSums)
    assert not np.array_equal(heart.values, stroke.values)
    for name, first in (("heart", heart), ("stroke", stroke)):
        np.testing.assert_array_equal(sums(hospital / name).values, first.values)  # at no cost
        further = sums(hospital / name, dimensions=1)
        assert isinstance(further, Failure) and "would have spent" in further.reason
        assert spent(hospital / name) == pytest.approx(0.8765, abs=1e-3)  # as the guide says
    (ledger,) = (hospital / "ledgers").iterdir()
    assert len(entries(ledger)) == 2
    assert not any((hospital / name / "state" / FOLDER).exists() for name in ("heart", "stroke"))


def test_the_ledger_of_all_is_private(hospital: Path) -> None:
    with umask(0):
        sums(hospital / "heart")
    assert not open_to_others(hospital / "ledgers")


def test_the_budget_shows_the_releases_of_both(hospital: Path) -> None:
    for name in ("heart", "stroke"):
        sums(hospital / name)
    said = CliRunner().invoke(app, ["party", "budget", str(hospital / "stroke" / "party.toml")])
    assert said.exit_code == 0 and said.output.count("class sums") == 2


def test_a_digest_that_is_no_file_s_is_refused_with_the_right_one(hospital: Path) -> None:
    file = hospital / "heart" / "party.toml"
    digest = hashlib.sha256((hospital / "heart" / "patients.csv").read_bytes()).hexdigest()
    file.write_text(file.read_text().replace(digest, "0" * 64))
    with pytest.raises(InvalidInput, match=digest):
        read_party(file).party()


def test_a_file_that_grew_stays_with_the_digest_of_its_ledger(hospital: Path) -> None:
    assert isinstance(sums(hospital / "heart"), ClassSums)
    with (hospital / "stroke" / "patients.csv").open("a") as data:
        data.write("\n0.1,0.2,yes,yes")
    assert isinstance(sums(hospital / "stroke"), ClassSums)
    assert len(list((hospital / "ledgers").iterdir())) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("ledger =", "# ledger ="), "subjects and ledger go together"),
        (("subjects =", "# subjects ="), "subjects and ledger go together"),
        (('subjects = "', 'subjects = "x'), "no SHA-256"),
    ],
)
def test_half_a_declaration_is_refused(hospital: Path, changed: Any, message: str) -> None:
    file = hospital / "heart" / "party.toml"
    file.write_text(file.read_text().replace(*changed))
    with pytest.raises(InvalidInput, match=message):
        read_party(file)


def test_what_was_spent_before_is_not_forgotten(hospital: Path) -> None:
    """A party with a ledger of its own is refused until that is moved; then it counts."""
    file = hospital / "heart" / "party.toml"
    shared = file.read_text()
    file.write_text(re.sub(r"(?m)^(subjects|ledger) =.*\n?", "", shared))
    assert isinstance(sums(hospital / "heart"), ClassSums)
    file.write_text(shared)
    with pytest.raises(RunFailed, match="spent from a ledger of its own"):
        sums(hospital / "heart")
    spec = read_party(file)
    (hospital / "ledgers").mkdir()
    shutil.move(spec.state / FOLDER, spec.limits.ledger_in(spec.state))
    assert isinstance(sums(hospital / "stroke"), ClassSums)  # the second of 0.6
    assert (
        spent(hospital / "heart") == spent(hospital / "stroke") == pytest.approx(0.8765, abs=1e-3)
    )
    assert isinstance(sums(hospital / "heart"), Failure)


def test_the_check_warns_of_what_could_be_spent_twice(hospital: Path) -> None:
    def warned() -> str:
        file = str(hospital / "heart" / "party.toml")
        return " ".join(CliRunner().invoke(app, ["party", "check", file]).output.split())

    assert "subjects" not in warned()
    (hospital / "ledgers" / ("a" * 64)).mkdir(parents=True)
    assert "declare that one: " + "a" * 64 in warned()
    file = hospital / "heart" / "party.toml"
    file.write_text(re.sub(r"(?m)^(subjects|ledger) =.*\n?", "", file.read_text()))
    assert "a budget of its own" in warned()


def named(question: str, scope: str = "") -> Release:
    loss = PrivacyLoss(gaussian_mu(0.6, 1e-5))
    return Release.of("sums", (question,), loss)


def spend(folder: Path, scope: str, times: int) -> None:
    """Release different things until the budget is spent, slowly."""

    def draw() -> Any:
        time.sleep(0.02)
        return np.ones(1)

    accountant = Accountant()
    accountant.budget = Budget(1.0, 1e-5)
    ledger = PrivacyLedger(folder, shared=True)
    accountant.keep_in(ledger, scope=scope)
    for number in range(times):
        try:
            accountant.release(named(f"{scope} {number}"), draw)
        except BudgetExceeded:
            break
    ledger.close()


def test_processes_that_spend_at_once_spend_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    spenders = [context.Process(target=spend, args=(tmp_path, f"s{i}", 3)) for i in range(4)]
    for one in spenders:
        one.start()
    for one in spenders:
        one.join(30)
        assert one.exitcode == 0
    assert len(entries(tmp_path)) == 2


def test_it_is_free_for_others_while_nobody_spends(tmp_path: Path) -> None:
    """Two that have it open see one another's releases, and wait while the other spends."""
    ledgers = [PrivacyLedger(tmp_path, shared=True) for _ in range(2)]
    first, second = Accountant(), Accountant()
    for accountant, ledger, scope in zip((first, second), ledgers, "ab", strict=True):
        accountant.budget = Budget(1.0, 1e-5)
        accountant.keep_in(ledger, scope=scope)
    one = first.release(named("q"), lambda: np.zeros(1))
    other = second.release(named("q"), lambda: np.ones(1))  # the same words of another party
    assert (one[0], other[0]) == (0, 1)
    for accountant in (first, second):
        with pytest.raises(BudgetExceeded):
            accountant.release(named("r"), lambda: np.zeros(1))
    assert {line["scope"] for line in entries(tmp_path)} == {"a", "b"}
    assert list(first.arrays()) == [Release(**{**vars(named("q")), "scope": "a"}).to_json()]
    for ledger in ledgers:
        ledger.close()


def test_arrivals_of_two_parties_are_not_taken_for_one_another(tmp_path: Path) -> None:
    """Each numbers its own, so a row may be in the first of one and the second of the other."""
    accountant = Accountant()
    accountant.budget = Budget(3.0, 1e-5)
    loss = PrivacyLoss(0.3)
    made = [Release("sums", f"{scope}{arrival}", loss, arrival, scope=scope)
            for scope in "ab" for arrival in (0, 1)]  # fmt: skip
    accountant.restore({one.to_json(): np.zeros(1) for one in made})
    assert accountant.spent.mu == pytest.approx(0.3 * 2**0.5)
