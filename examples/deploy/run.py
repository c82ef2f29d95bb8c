"""Four hospitals and a coordinator on this machine, as they would be on five: TLS, a key for each party.

    python examples/deploy/run.py FOLDER

makes FOLDER (heart disease by hospital, every patient and column with their gaps, each hospital's file as
another program would write it; a tenth of the patients without labels as public rows, which one hospital has
no file of and is sent; a configuration and keys for everybody), starts five commands of consilience, runs
three rounds of ensemble distillation, prints who gained what and what left whom, and stops all it started. It
takes a few minutes: on one machine every message starts four Python processes.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Collection
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from consilience.lab.data import load

COMMAND = [str(Path(sys.executable).parent / "consilience")]
MODELS = {
    "cleveland": ("random-forest", {"n_estimators": 50}),
    "hungarian": ("xgboost" if find_spec("xgboost") else "gradient-boosting", {}),
    "switzerland": ("logistic-regression", {}),
    "va": ("svc", {}),
}
SENT_PUBLIC = ("switzerland",)
"""Who has no file of the public rows, and gets them from the coordinator."""
WRITES: dict[str, dict[str, Any]] = {
    "cleveland": {},
    "hungarian": {"sep": ";", "decimal": ",", "encoding": "latin-1"},
    "switzerland": {"sep": "\t", "encoding": "utf-8-sig"},
    "va": {"quoting": 1},
}
"""How each hospital's program writes a file."""
SAYS = {
    "hungarian": '[data.aliases]\n"Yes" = "yes"\n"No" = "no"',
    "switzerland": '[data.rename]\n"größter Puls" = "thalach"',
}
"""What is told of a file that calls something by another name."""


def consilience(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run one of its commands; its words are ours."""
    return subprocess.run([*COMMAND, *map(str, arguments)], check=check, text=True)


def prepare(
    folder: Path,
    *,
    hospitals: Collection[str] = tuple(MODELS),
    rounds: int = 3,
    timeout: float = 120,
) -> None:
    """Write what the coordinator and each hospital would have on its own machine."""
    data = load("heart-disease", test_fraction=0.3, gaps=True)
    assert data.schema is not None and data.X_test is not None and data.y_test is not None
    frame, tests = (data.schema.frame(X).round(2) for X in (data.X, data.X_test))
    public = np.arange(len(data.X)) % 10 == 1
    for name in hospitals:
        (folder / name).mkdir(parents=True)
        mine = (data.group == name) & ~public
        write(folder / name / "patients.csv", frame[mine], data.y[mine], name)
        tested = data.group_test == name
        write(folder / name / "test.csv", tests[tested], data.y_test[tested], name)
        if name not in SENT_PUBLIC:
            frame[public].to_csv(folder / name / "public.csv", index=False)
    center = folder / "coordinator"
    address = f"127.0.0.1:{free_port()}"
    parties = ",".join(hospitals)
    consilience("coordinator", "init", center, "--parties", parties, "--address", address)
    frame[public].to_csv(center / "public.csv", index=False)
    text = (center / "coordinator.toml").read_text()
    text = re.sub(r"^rounds = \d+", f"rounds = {rounds}", text, flags=re.MULTILINE)
    text = re.sub(r"^timeout = \d+", f"timeout = {timeout}", text, flags=re.MULTILINE)
    for name in hospitals:
        model, options = MODELS[name]
        (folder / name / "party.toml").write_text(
            PARTY.format(
                name=name,
                public="" if name in SENT_PUBLIC else 'public = "public.csv"',
                says=SAYS.get(name, ""),
                model=model,
                options="\n".join(f"{key} = {value}" for key, value in options.items()),
                address=address,
            )
        )
        (folder / name / "ca.pem").write_bytes((center / "tls" / "ca.pem").read_bytes())
        line = subprocess.run(
            [*COMMAND, "party", "key", str(folder / name / "party.toml")],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        text = re.sub(rf'^"{name}" = ""', line, text, flags=re.MULTILINE)
    (center / "coordinator.toml").write_text(text)


PARTY = """\
name = "{name}"
{public}

[data]
path = "patients.csv"
target = "disease"
kind = "classification"
test = "test.csv"
unknown = "missing"
{says}

[model]
name = "{model}"
{options}

[limits]
federation = "coordinator"

[coordinator]
address = "{address}"
"""


def write(path: Path, frame: pd.DataFrame, y: np.ndarray, hospital: str) -> None:
    """A hospital's file of patients, whose column ``disease`` says yes or no, as its program writes one."""
    frame = frame.assign(disease=np.array(["no", "yes"])[y])
    if hospital == "hungarian":  # other words, no decimals
        frame = frame[sorted(frame)]
        frame = frame.assign(sex=frame["sex"].str.upper(), disease=frame["disease"].str.title())
        frame["exang"] = frame["exang"].map({0: "No", 1: "Yes"})
    if hospital == "switzerland":
        frame = frame.rename(columns={"thalach": "größter Puls"})
    if hospital == "va":
        frame = frame.rename(columns=str.upper).rename(columns={"DISEASE": "disease"})
        frame["FBS"] = frame["FBS"].astype("Int64")  # 1 and not 1.0
    frame.to_csv(path, index=False, **WRITES[hospital])


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """The command line."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is stopped then too
    prepare(folder)
    with ExitStack() as stack:
        for name in MODELS:
            file = folder / name / "party.toml"
            stack.callback(consilience, "party", "stop", file, check=False)
            consilience("party", "start", file, "--detach")
        stack.callback(consilience, "coordinator", "stop", folder / "coordinator", check=False)
        consilience("coordinator", "start", folder / "coordinator")
        for name in MODELS:
            print(f"\nWhat left {name}:")
            consilience("party", "audit", folder / name / "party.toml")


if __name__ == "__main__":
    main()
