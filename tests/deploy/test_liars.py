"""Secret labels between sites: mixed among the public rows, and a party that contradicts them left out."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.messages.schema import Public
from consilience.lab.config.robustness import mixed
from consilience.lab.runs.ledger import Ledger
from consilience.sites.coordinator.configuration import read_coordinator
from helpers.deployed_run import grid, served, started
from helpers.flower_grid import in_a_run


def guarded(center: Path, section: str) -> Path:
    """Add a section, and a file of rows near those of the northern clinic, all labels swapped."""
    header, *rows = (center.parent / "north" / "patients.csv").read_text().split()
    cells = [row.split(",") for row in rows]
    swap = {"yes": "no", "no": "yes"}
    lines = [
        f"{float(age) + 1.3},{float(pressure) - 2.1},{swap[ill]}" for age, pressure, ill in cells
    ]
    (center / "root.csv").write_text("\n".join([header, *lines]) + "\n")
    path = center / "coordinator.toml"
    text = path.read_text().replace("[parties]", f"[robustness]\n{section}\n[parties]")
    path.write_text(text)
    return center


def test_labelled_rows_are_mixed_in_an_order_that_says_nothing():
    rng = np.random.default_rng(0)
    X, more = rng.random((50, 2)), rng.random((20, 2))
    everything, secret = mixed(Public(X), more, ["a"] * 20)
    np.testing.assert_array_equal(everything.X[secret.rows], more)
    again, _ = mixed(Public(more), X, ["b"] * 50)
    np.testing.assert_array_equal(everything.X, again.X)  # whichever are the labelled ones
    with pytest.raises(InvalidInput, match="shape"):
        mixed(Public(X), more[:, :1], ["a"] * 20)


def test_who_contradicts_secret_labels_is_left_out_until_the_operator_lets_it_in(
    center, monkeypatch
):
    """Both contradict them; the south was let in from the start, the north is before the second round."""
    in_a_run(monkeypatch)
    section = 'secret_labels = "root.csv"\nlabel = "ill"\nlet_in = '
    guarded(center, f'{section}["south"]')
    path = center / "coordinator.toml"
    later = path.read_text().replace('["south"]', '["north", "south"]')
    path.write_text(re.sub(r"rounds = \d+", "rounds = 1", path.read_text()))
    for name in ("north", "south"):  # which are sent the rows, then
        site = center.parent / name / "party.toml"
        site.write_text(site.read_text().replace('public = "../public.csv"\n', ""))
    spec = read_coordinator(center)
    public, secret = spec.rows_and_secret()
    assert secret is not None
    assert len(public) == 20 + len(secret.rows)
    nodes = grid(center)
    assert served(started(center), nodes)
    path.write_text(re.sub(r"rounds = \d+", "rounds = 2", later))
    assert served(center, nodes)
    with closing(Ledger(center / "run" / "ledger.sqlite", read_only=True)) as ledger:
        notes = ledger.read("SELECT round, text FROM notes WHERE text LIKE '%is excluded since%'")
    assert [(number, text.split(" since")[0]) for number, text in notes] == [
        (1, "north is excluded")
    ]


def test_two_parties_do_not_bear_one_liar(center, monkeypatch):
    in_a_run(monkeypatch)
    folder = started(guarded(center, "tolerates = 1"))
    with pytest.raises(
        InvalidInput, match="1 may lie, and class 'no' is known to north, south alone"
    ):
        served(folder, grid(center))


def test_a_party_with_a_file_of_the_public_rows_is_told_why_it_cannot_join(center, monkeypatch):
    """It could tell the labelled rows from those of its file."""
    in_a_run(monkeypatch)
    folder = started(guarded(center, 'secret_labels = "root.csv"\nlabel = "ill"'))
    with pytest.raises(RunFailed, match="not the ones agreed on") as refused:
        served(folder, grid(center))
    assert "leave `public` out of party.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("secret_labels = 20", "A number is for experiments"),
        ('let_in = ["nobody"]', "no party is called 'nobody'"),
    ],
)
def test_mistakes_are_named(center, section, said):
    with pytest.raises(InvalidInput, match=said):
        read_coordinator(guarded(center, section)).rows()
