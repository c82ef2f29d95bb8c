"""Measure every figure of speed, and write docs/results/benchmarks.md.

    python benchmarks/benchmarks.py           # half an hour, on a machine that does nothing else

Each section is a script of its own, which prints the same lines.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported

import cohorts
import gpu
import overhead
import page
import population
import scaling
import startup
import torch

SECTIONS = {
    "Networks that train as one": cohorts,
    "What the framework adds to a round": overhead,
    "Until the first round": startup,
    "Ten thousand parties": population,
    "What a round costs": scaling,
    "One round on a GPU": gpu,
}


def main() -> None:
    """Run them all."""
    torch.set_num_threads(1)
    lines = []
    for title, script in SECTIONS.items():
        print(f"== {title}", flush=True)
        name = script.__name__
        lines += [f"## {title}", "", f"`python benchmarks/{name}.py`", "", *script.section(), ""]
        page.write(__file__, lines[:-1])  # what is measured is not lost


if __name__ == "__main__":
    main()
