"""Measure every figure of speed, and write docs/results/benchmarks.md.

    python benchmarks/benchmarks.py           # half an hour, on a machine that does nothing else

Each section is a script of its own, which prints the same lines. Sections of the page that no script here
measures stay as they are.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported

import cohorts
import overhead
import page
import startup
import torch

SECTIONS = {
    "Networks that train as one": cohorts,
    "What the framework adds to a round": overhead,
    "Until the first round": startup,
}


def main() -> None:
    """Run them all."""
    torch.set_num_threads(1)
    sections = {
        text.partition("\n")[0]: text.partition("\n")[2] for text in page.sections("benchmarks")
    }
    for title, script in SECTIONS.items():
        print(f"== {title}", flush=True)
        lines = [f"`python benchmarks/{script.__name__}.py`", "", *script.section()]
        sections[title] = "\n".join(lines)
        parts = [f"## {name}\n\n{text.strip()}\n" for name, text in sections.items()]
        page.write(__file__, "\n".join(parts).splitlines())  # what is measured is not lost


if __name__ == "__main__":
    main()
