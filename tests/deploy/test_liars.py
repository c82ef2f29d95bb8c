"""Secret labels between sites: mixed among the public rows, and a party that contradicts them left out."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from consilience.deployment.coordinator.configuration import read_coordinator
from consilience.errors import InvalidInput
from consilience.federation.ledger import Ledger
from consilience.messages.schema import Public
from consilience.protocols.robustness import mixed
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


def test_who_contradicts_secret_labels_stands_in_the_ledger(center, monkeypatch):
    in_a_run(monkeypatch)
    guarded(center, 'secret_labels = "root.csv"\nlabel = "ill"\nlet_in = ["south"]')
    for name in ("north", "south"):  # which are sent the rows, then
        path = center.parent / name / "party.toml"
        path.write_text(path.read_text().replace('public = "../public.csv"\n', ""))
    spec = read_coordinator(center)
    public, secret = spec.rows_and_secret()
    assert secret is not None
    assert len(public) == 20 + len(secret.rows)
    assert served(started(center), grid(center))
    with closing(Ledger(center / "run" / "ledger.sqlite", read_only=True)) as ledger:
        notes = [text for (text,) in ledger.read("SELECT text FROM notes")]
    assert any(text.startswith("north is left out since round 1") for text in notes)


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
