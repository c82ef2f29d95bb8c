"""Count rounds until networks match thirty plain rounds, with and without Anderson acceleration.

    python benchmarks/anderson_networks.py

Runs examples/fashion-anderson.toml (kept under runs/results/, resumed when called again) and writes
docs/results/anderson-networks.md.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np

from consilience.lab.experiments import read_spec, resume, start
from consilience.lab.report import read_results

ROOT = Path(__file__).parent.parent


def main() -> None:
    folder = ROOT / "runs" / "results" / "fashion-anderson"
    if folder.exists():
        resume(folder)
    else:
        start(read_spec(ROOT / "examples" / "fashion-anderson.toml"), folder)
    results = read_results(folder)
    curves = {method.label: method.over_rounds("accuracy") for method in results.methods}
    target = curves["plain"][:, -1]
    versions = ", ".join(f"{name} {version}" for name, version in results.meta["versions"].items())
    lines = [
        "# Anderson acceleration with networks",
        "",
        f"`python benchmarks/anderson_networks.py` · seeds {', '.join(map(str, results.spec.seed_list))} · "
        f"{date.today().isoformat()}",
        "",
        f"{results.meta['machine']}, one numerical thread. {versions}.",
        "",
        "Ten networks 784-200-10 on Fashion-MNIST, 1,000 samples of five classes each, 3,000 public rows, "
        "AVG, 30 rounds. Accuracy is the mean over parties on all classes; a seed's target is what its plain "
        "run has in round 30. The first round that reaches a target is read off test accuracy: a description "
        "of the curves, by which nothing was chosen.",
        "",
        "| consensus | first round at the target, by seed | accuracy in round 5 | round 10 | round 30 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for label, curve in curves.items():
        firsts = [_first(row, goal) for row, goal in zip(curve, target, strict=True)]
        cells = (f"{curve[:, t].mean():.4f} ± {curve[:, t].std(ddof=1):.4f}" for t in (5, 10, 30))
        lines.append(f"| {label} | {', '.join(firsts)} | {' | '.join(cells)} |")
    page = ROOT / "docs" / "results" / "anderson-networks.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(page.read_text(encoding="utf-8"))


def _first(accuracy: np.ndarray, target: float) -> str:
    reached = np.flatnonzero(accuracy >= target)
    return str(reached[0]) if len(reached) else "never"


if __name__ == "__main__":
    main()
