"""Run an example and write its table to docs/results: what the README and the pages quote.

    python benchmarks/results.py digits-mlp
    python benchmarks/results.py fashion-mlp --set partition.per_party=5 --as fashion-mlp-5

The run folder stays under runs/results/, so that a run that was stopped is resumed by the same command.
"""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

import numpy as np

from consilience.experiments import read_spec, resume, start
from consilience.report.reading import read_results
from consilience.report.results import Results, words

ROOT = Path(__file__).parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("example")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--as", dest="name")
    arguments = parser.parse_args()
    name = arguments.name or arguments.example
    command = f"python benchmarks/results.py {arguments.example}" + "".join(
        f" --set {setting}" for setting in arguments.settings
    )
    folder = ROOT / "runs" / "results" / name
    if folder.exists():
        resume(folder)
    else:
        start(
            read_spec(ROOT / "examples" / f"{arguments.example}.toml", arguments.settings), folder
        )
    results = read_results(folder)
    page = ROOT / "docs" / "results" / f"{name}.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(markdown(name, command, results), encoding="utf-8")
    print(page.read_text(encoding="utf-8"))


def markdown(name: str, command: str, results: Results) -> str:
    """The tables of a run with all that is needed to repeat it."""
    versions = ", ".join(
        f"{package} {version}" for package, version in results.meta["versions"].items()
    )
    seeds = results.spec.seed_list
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
                *(words(metric) for metric in results.metrics),
                "teacher accuracy",
                "kB a party",
            ],
            [
                [
                    method.label,
                    *(str(method.final(metric) or "–") for metric in results.metrics),
                    _teacher(method.teacher),
                    f"{method.bytes_up.sum(axis=1).mean() / 1e3:,.0f}",
                ]
                for method in results.methods
            ],
        ),
        "",
        f"Every party's {words(results.metric or '')} at the end, mean ± sd over seeds:",
        "",
        *_table(
            ["party", "model", *(method.label for method in results.methods)],
            [
                [
                    party,
                    results.models[party],
                    *(
                        str(method.of_party(results.metric or "", i) or "–")
                        for method in results.methods
                    ),
                ]
                for i, party in enumerate(results.parties)
            ],
        ),
        "",
        *results.warnings,
    ]
    return "\n".join(lines).rstrip() + "\n"


def _teacher(accuracy: np.ndarray) -> str:
    if accuracy.size == 0 or np.isnan(accuracy).all():
        return "–"
    return f"{np.nanmean(accuracy[:, -1]):.3f}"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


if __name__ == "__main__":
    main()
