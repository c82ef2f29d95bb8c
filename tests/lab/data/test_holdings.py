from __future__ import annotations

import io

import numpy as np
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.data import draw, who_holds_what

Y = np.array([0, 0, 1, 2, 2, 2])
PARTS = [np.array([0, 2]), np.array([1, 3, 4, 5])]


def test_counts_by_hand() -> None:
    """Party a has rows 0 and 2 (classes p, q); b has a p and all three r."""
    held = who_holds_what(Y, PARTS, ["p", "q", "r"], ["a", "b"])
    assert held.counts.tolist() == [[1, 1, 0], [1, 0, 3]]


def test_the_text_shows_every_count() -> None:
    lines = who_holds_what(Y, PARTS, ["p", "q", "r"], ["a", "b"]).text().splitlines()
    (row,) = [line for line in lines if line.startswith("│ b")]
    assert row.strip("│").replace("│", " ").split() == ["b", "4", "1", "·", "3"]


def test_many_classes_are_summed_up() -> None:
    y = np.repeat(np.arange(50), 2)
    held = who_holds_what(y, [np.arange(40), np.arange(40, 100)], [f"c{i}" for i in range(50)])
    text = held.text(80)
    assert max(map(len, text.splitlines())) <= 80
    assert "20" in text and "c20 2, c21 2" in text


def test_values_are_counted_by_quarters() -> None:
    """Quarters of 0..7 are 0-1, 2-3, 4-5, 6-7."""
    held = who_holds_what(np.arange(8.0), [np.arange(4), np.arange(4, 8)], None)
    assert held.counts.tolist() == [[2, 2, 0, 0], [0, 0, 2, 2]]


def test_names_must_match() -> None:
    with pytest.raises(InvalidInput, match="2 parties and 1 names"):
        who_holds_what(Y, PARTS, ["p", "q", "r"], ["a"])


@pytest.mark.parametrize(("parties", "classes"), [(1, 2), (10, 10), (100, 10), (10, 100)])
def test_a_figure_of_any_size_can_be_written(parties: int, classes: int) -> None:
    y = np.arange(parties * classes) % classes
    held = who_holds_what(
        y, np.array_split(np.arange(len(y)), parties), [f"class {i}" for i in range(classes)]
    )
    figure = draw(held, title="who holds what")
    out = io.StringIO()
    figure.savefig(out, format="svg")
    assert "<svg" in out.getvalue()
    main = figure.axes[0]
    assert 0 < len(main.get_yticks()) <= 40 and 0 < len(main.get_xticks()) <= 25
    drawn = main.collections[0].get_offsets() if main.collections else main.images[0].get_array()
    expected = np.count_nonzero(held.counts)
    assert (len(drawn) if main.collections else drawn.count()) == expected


def test_drawing_leaves_pyplot_alone() -> None:
    import subprocess
    import sys

    code = (
        "import sys, numpy as np; from consilience.lab.data import draw, who_holds_what;"
        "assert 'matplotlib' not in sys.modules;"
        "draw(who_holds_what(np.array([0, 1]), [np.array([0, 1])], 'ab'));"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
