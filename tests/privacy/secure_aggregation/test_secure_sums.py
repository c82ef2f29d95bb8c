"""Secure sums from a configuration: the table of the protocol, and methods that cannot do with sums."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.config.reading import parse_spec
from consilience.lab.experiments import start
from consilience.lab.report import read_results

CONFIG = """
name = "tiny"
methods = ["local", "avg"]
[data]
name = "digits"
public = 60
test_rows = 50
[partition]
name = "iid"
parties = 3
[protocol]
rounds = 1
[protocol.secure_aggregation]
[[models]]
name = "naive-bayes"
"""


def test_a_run_says_that_nobody_saw_a_single_answer(tmp_path: Path) -> None:
    start(parse_spec(tomllib.loads(CONFIG), where="tiny"), tmp_path / "run")
    assert "3 or more parties that join hands" in str(read_results(tmp_path / "run").notes)
    held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"MaskedInput(600)" in held and b"Predictions(" not in held


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('"avg"]', '"median"]'), "'median' looks at single parties' answers"),
        (('"avg"]', '"averaged_distillation"]'), "shows the coordinator more than sums"),
        (
            ("[protocol.secure_aggregation]", "[protocol.secure_aggregation]\nthreshold = 2"),
            "threshold is 2",
        ),
        (("parties = 3", "parties = 2"), "a sum of 2 parties"),
        (("rounds = 1", 'rounds = 1\ncodec = "float16"'), "masked integers cannot be compressed"),
    ],
)
def test_what_is_no_sum_is_refused(change: tuple[str, str], why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=why):
        start(parse_spec(tomllib.loads(CONFIG.replace(*change)), where="tiny"), tmp_path / "run")
