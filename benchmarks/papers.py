"""Compute a paper's tables and figures in full and write them to docs/results.

    python benchmarks/papers.py                           # all papers; hours on two cores
    python benchmarks/papers.py park2023 table1 fig2      # some of it; the others stay as they were

Repetitions are kept under runs/results/, so that the same command goes on after a stop.
"""

from __future__ import annotations

import argparse
import re
from datetime import date
from pathlib import Path

import page

from consilience.lab.runs.folder import machine, versions
from consilience_papers.papers import PAPERS
from consilience_papers.study import Study

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paper", nargs="?", choices=PAPERS, help="all by default")
    parser.add_argument("exhibits", nargs="*", help="all by default")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    for name in PAPERS if given.paper is None else [given.paper]:
        compute(name, given.exhibits, given.processes)


def compute(chosen: str, exhibits: list[str], processes: int) -> None:
    """Exhibits of a paper, and its page with them."""
    paper = PAPERS[chosen]
    study = Study(ROOT / "runs" / "results" / chosen, processes=processes, report=said)
    file = page.RESULTS / f"{chosen}.md"
    named = (
        (re.search(r"`consilience papers \S+ (\S+)`", one), one) for one in page.sections(chosen)
    )
    sections = {found[1]: "## " + one.rstrip() for found, one in named if found}
    for name in exhibits or paper.exhibits:
        exhibit = paper.exhibits[name](study)
        command = f"`consilience papers {chosen} {name}` · {date.today().isoformat()}"
        head, _, rest = exhibit.as_markdown().partition("\n\n")
        sections[name] = f"{head}\n\n{command}\n\n{rest}".rstrip()
        print(sections[name], flush=True)
        packages = ", ".join(f"{package} {version}" for package, version in versions().items())
        about = f"{machine()}, one numerical thread a process. {packages}."
        seeds = "Repetition r is seeded by r: 0, 1, 2, …"
        top = f"# {chosen}\n\n{paper.citation}.\n\n{about}\n\n{seeds}"
        parts = [top, *(sections[name] for name in paper.exhibits if name in sections)]
        file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def said(label: str, done: int, total: int) -> None:
    if done in (0, total):
        print(f"{label}: {done} of {total}", flush=True)


if __name__ == "__main__":
    main()
