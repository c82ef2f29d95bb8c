"""Run the examples and write their tables to docs/results, which the README and other pages quote.

    python benchmarks/results.py                  # all of them; an hour on two cores
    python benchmarks/results.py digits-mlp mnist-mixed

Run folders stay under runs/results/, each with a digest of the library's code in its name: a run that was
stopped is resumed by the same command, and a run of other code is not taken for one of today's.
tests/test_documents.py compares the pages with the documents that quote them.
"""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

import numpy as np
from rivals import digest

from consilience.lab.experiments import read_spec, resume, start
from consilience.lab.report import read_results, verdict
from consilience.lab.report.gains import worse_off
from consilience.lab.report.results import Results

ROOT = Path(__file__).parent.parent
RUNS: dict[str, tuple[str, list[str]]] = {
    "digits": ("digits", []),
    "digits-own": ("digits", ["purpose=own", 'methods=["local", "auto"]']),
    "hospitals": ("heart", []),
    "own-regression": ("own-regression", []),
    "diabetes": ("diabetes", []),
    "diabetes-mixed": (
        "diabetes",
        [
            "protocol.rounds=5",
            "protocol.deregularize.regularization=0",
            'methods=["local", "mean", "value-median", "central"]',
            'models=[{name="kernel-ridge", gamma=0.003, regularization=0.001}, '
            '{name="random-forest-regressor"}, {name="ridge"}]',
        ],
    ),
    "digits-mlp": ("digits-mlp", []),
    "mnist-mixed": ("mnist-mixed", []),
    "no-public-data": ("no-public-data", []),
    "boosted-trees": ("boosted-trees", []),
    "fashion-mlp-2": ("fashion-mlp", ["partition.per_party=2"]),
    "fashion-mlp-5": ("fashion-mlp", ["partition.per_party=5"]),
    "fashion-mlp-10": ("fashion-mlp", ["partition.per_party=10"]),
}
"""Page to the example it comes from and the settings that differ."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *RUNS], help="all by default")
    for name in parser.parse_args().names or RUNS:
        example, settings = RUNS[name]
        folder = folder_of(name)
        if folder.exists():
            resume(folder)
        else:
            start(read_spec(ROOT / "examples" / f"{example}.toml", settings), folder)
        page = ROOT / "docs" / "results" / f"{name}.md"
        page.write_text(
            markdown(name, f"python benchmarks/results.py {name}", read_results(folder)),
            encoding="utf-8",
        )
        print(page.read_text(encoding="utf-8"))


def folder_of(name: str) -> Path:
    """Folder of a page's run with the library's code of today."""
    return ROOT / "runs" / "results" / f"{name}-{digest()}"


def markdown(name: str, command: str, results: Results) -> str:
    """The tables of a run with all that is needed to repeat it."""
    versions = ", ".join(
        f"{package} {version}" for package, version in results.meta["versions"].items()
    )
    seeds, found = results.spec.seed_list, verdict(results)
    shown = (*results.shown, *(name for name in results.metrics if name.startswith("ece")))
    lines = [
        f"# {name}",
        "",
        f"`{command}` · seeds {seeds[0]} to {seeds[-1]} · {results.spec.protocol.rounds} rounds · "
        f"{date.today().isoformat()}",
        "",
        f"{results.meta['machine']}, one numerical thread. {versions}.",
        "",
        "Last round's mean over parties, mean ± sd over seeds:",
        "",
        *_table(
            [
                "method",
                *map(results.titled, shown),
                "worse off",
                "teacher accuracy",
                "kB a party",
            ],
            [
                [
                    method.label,
                    *(str(method.final(metric) or "–") for metric in shown),
                    str(worse_off(results, method.label)),
                    _teacher(method.teacher),
                    f"{method.bytes_up.sum(axis=1).mean() / 1e3:,.0f}",
                ]
                for method in results.methods
            ],
        ),
        "",
        found.sentence if found else "",
        "",
        found.per_party if found else "",
        "",
        *(
            line
            for metric in shown[: 2 if results.apart else 1]
            for line in _parties(results, metric)
        ),
        *results.warnings,
    ]
    return "\n".join(lines).rstrip() + "\n"


def _parties(results: Results, metric: str) -> list[str]:
    """The table of every party's metric."""
    return [
        f"Every party's {results.titled(metric)}, at the end, mean ± sd over seeds:",
        "",
        *_table(
            ["party", "model", *(method.label for method in results.methods)],
            [
                [
                    party,
                    results.models[party],
                    *(str(method.of_party(metric, i) or "–") for method in results.methods),
                ]
                for i, party in enumerate(results.parties)
            ],
        ),
        "",
    ]


def _teacher(accuracy: np.ndarray) -> str:
    if accuracy.size == 0 or np.isnan(accuracy).all():
        return "–"
    return f"{np.nanmean(accuracy[:, -1]):.3f}"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


if __name__ == "__main__":
    main()
