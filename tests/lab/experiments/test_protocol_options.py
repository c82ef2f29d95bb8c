"""What a configuration says of a protocol: as tables, per method, and checked before any work."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.core.aggregation import Deregularization, mean
from consilience.core.errors import InvalidInput
from consilience.core.protocols import PROTOCOLS
from consilience.lab.config.methods import ProtocolSpec
from consilience.lab.experiments import Ledger, Spec, parse_spec, start

CONFIG = """
name = "sites"
purpose = "taught"
calibration = 0
methods = [
  "local",
  "mean",
  { aggregate = "mean", label = "one-shot", protocol = { rounds = 1 } },
  { aggregate = "mean", label = "plain", protocol = { consensus = "replace" } },
  { aggregate = "mean", label = "as it is", protocol.deregularize = { kernel = "rbf", regularization = 0 } },
]
[data]
name = "csv"
path = "PATH"
target = "y"
public = 20
[partition]
name = "iid"
parties = 3
[[models]]
name = "kernel-ridge"
kernel = "laplacian"
gamma = 1.0
regularization = 1e-3
[protocol]
name = "iterative_distillation"
rounds = 4
participation = 2
probabilities = { party-1 = 0.5, party-2 = 0.4, party-3 = 0.4 }
deregularize = { kernel = "laplacian", gamma = 1.0, regularization = 1e-3 }
consensus = { name = "anderson", window = 3 }
"""


def spec_of(folder: Path, *, repeated: bool = False, **changes: Any) -> Spec:
    """The configuration, with ``protocol`` keys changed, on a table of 60 rows."""
    rng = np.random.default_rng(0)
    x = np.round(rng.random(60), 6) if not repeated else np.repeat(np.arange(6) / 6, 10)
    rows = "\n".join(f"{a},{np.sin(6 * a)}" for a in x)
    (folder / "rows.csv").write_text(f"x,y\n{rows}\n")
    document = tomllib.loads(CONFIG.replace("PATH", str(folder / "rows.csv")))
    whole = {key: changes.pop(key) for key in ("methods", "models") if key in changes}
    document["protocol"] |= changes
    return parse_spec(document | whole, where="test")


def test_tables_become_what_the_protocol_takes(tmp_path: Path):
    spec = spec_of(tmp_path)
    options = [spec.protocol_for(method).options for method in spec.methods[1:]]
    chosen = Deregularization("laplacian", 1e-3, gamma=1.0)
    assert [o["deregularize"] for o in options] == [chosen] * 3 + [Deregularization("rbf", 0)]
    assert [o["rounds"] for o in options] == [4, 1, 4, 4]
    assert [o["consensus"].name for o in options] == ["anderson", "anderson", "replace", "anderson"]
    assert options[0]["probabilities"] == {"party-1": 0.5, "party-2": 0.4, "party-3": 0.4}
    assert options[0]["aggregate"].name == "mean"


def test_a_codec_by_name_as_a_table_or_a_list(tmp_path: Path):
    spec = spec_of(
        tmp_path,
        name="ensemble_distillation",
        codec=["float16", {"name": "zstd", "level": 3}],
        methods=[
            "local",
            "mean",
            {"aggregate": "mean", "label": "one", "protocol": {"codec": "zstd"}},
            {"aggregate": "mean", "label": "table", "protocol": {"codec": {"name": "float16"}}},
        ],
        consensus=None,
        deregularize=None,
    )
    options = [spec.protocol_for(method).options for method in spec.methods]
    assert "codec" not in options[0]
    assert [o["codec"].name for o in options[1:]] == [
        "float16 + zstd(3)",
        "zstd(19)",
        "float16",
    ]


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_every_protocol_takes_a_codec_from_a_file_and_says_so(name: str):
    given = {"aggregate": mean()} if PROTOCOLS[name].takes("aggregate") else {}
    options = ProtocolSpec(name=name, rounds=2, codec="zstd").arguments()
    assert PROTOCOLS[name](**given, **options).options["codec"].name == "zstd(19)"
    assert inspect.signature(PROTOCOLS[name]).parameters["codec"].default is None


def test_it_runs(tmp_path: Path):
    start(spec_of(tmp_path), tmp_path / "run")
    ledger = Ledger(tmp_path / "run" / "ledger.sqlite")
    last = dict(ledger.read("SELECT method, max(round) FROM rounds GROUP BY method"))
    error = dict(
        ledger.read("SELECT method, avg(value) FROM metrics WHERE name = 'mse' GROUP BY method")
    )
    ledger.close()
    assert last == {"local": 4, "mean": 4, "one-shot": 1, "plain": 4, "as it is": 4}
    assert len(set(error.values())) == 5  # every method is another


@pytest.mark.parametrize(
    ("changes", "what", "mend"),
    [
        ({"deregularise": {}}, "unknown option 'deregularise'", "'deregularize'"),
        ({"deregularize": {"kernel": "rbf"}}, "needs the option 'regularization'", "deregularize"),
        (
            {"deregularize": {"kernel": "rbf", "regularisation": 1}},
            "unknown option 'regularisation'",
            "'regularization'",
        ),
        ({"deregularize": {"kernel": "rbff", "regularization": 1}}, "kernel 'rbff'", "'rbf'"),
        ({"deregularize": {"kernel": "rbf", "regularization": -1}}, "regularization is -1", "λ"),
        ({"deregularize": {"kernel": "rbf", "regularization": "a"}}, "is 'a'", "number"),
        ({"deregularize": "rbf"}, "deregularize: it should be a table", "'rbf'"),
        ({"name": "ensemble_distillation"}, "unknown option 'deregularize'", "ensemble"),
        ({"consensus": {"name": "andersen"}}, "unknown consensus 'andersen'", "'anderson'"),
        ({"consensus": {"name": "anderson", "widnow": 3}}, "unknown option 'widnow'", "'window'"),
        ({"consensus": {"name": "anderson", "window": 0}}, "window is 0", "at least 1"),
        ({"consensus": {"window": 3}}, "the consensus has options and no name", "anderson"),
        ({"codec": "zsdt"}, "unknown codec 'zsdt'", "'zstd'"),
        ({"codec": ["zstd", {"name": "zstd", "levle": 3}]}, "unknown option 'levle'", "'level'"),
        ({"codec": {"name": "quantized", "bits": 9}}, "bits is 9", "float16"),
        ({"codec": ["float16", "quantized"]}, "do not go together", "once"),
        ({"probabilities": {"party-1": "often"}}, "probabilities is", "number"),
        (
            {"methods": [{"aggregate": "mean", "protocol": {"rounds": 0}}]},
            "rounds: input should be greater than or equal to 1",
            "method mean, protocol",
        ),
        (
            {"methods": [{"aggregate": "mean", "protocol": {"deregularize": {"kernel": "rbf"}}}]},
            "needs the option 'regularization'",
            "deregularize",
        ),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(tmp_path: Path, changes, what: str, mend: str):
    with pytest.raises(InvalidInput) as raised:
        spec_of(tmp_path, **changes)
    assert what in str(raised.value) and mend in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"repeated": True}, "public rows .* are the same"),
        (
            {
                "deregularize": {"kernel": "linear", "regularization": 1e-3, "jitter": 0},
                "models": [{"name": "kernel-ridge", "kernel": "linear", "regularization": 1e-3}],
            },
            "kernel matrix of the public rows cannot be inverted",
        ),
        (
            {"probabilities": {"party-1": 1, "party-2": 1, "party-4": 1}},
            "no party is called 'party-4'",
        ),
        (
            {"probabilities": {"party-1": 9, "party-2": 1, "party-3": 1}},
            "'party-1' would take part",
        ),
    ],
)
def test_what_cannot_work_with_the_data_is_said_before_any_training(tmp_path: Path, changes, what):
    with pytest.raises(InvalidInput, match=what):
        start(spec_of(tmp_path, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("models", "what"),
    [
        ([{"name": "ridge"}], "models.0 is ridge, and only kernel ridge regressions"),
        (
            [
                {
                    "name": "kernel-ridge",
                    "kernel": "laplacian",
                    "gamma": 1.0,
                    "regularization": "gcv",
                }
            ],
            "'gcv'",
        ),
        (
            [{"name": "kernel-ridge", "kernel": "laplacian", "gamma": 2.0}],
            "gamma is 1.0, and 2.0 in",
        ),
        (
            [{"name": "kernel-ridge", "kernel": "rbf", "gamma": 1.0}],
            "kernel is 'laplacian', and 'rbf'",
        ),
    ],
)
def test_deregularisation_fits_the_models_or_is_refused(tmp_path: Path, models, what):
    with pytest.raises(InvalidInput, match=what):
        spec_of(tmp_path, models=models)
