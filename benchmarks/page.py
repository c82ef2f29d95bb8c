"""Write a page of results, with its command, date, machine and versions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path

from consilience.lab.runs.folder import machine, versions

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def write(script: str, lines: Iterable[str], *, about: str = "") -> None:
    """Write ``docs/results/<script>.md`` and print it.

    Args:
        script: the benchmark's path, from which the page has its name.
        lines: of the page, after its head.
        about: added to the command, such as the seeds.
    """
    name = Path(script).stem
    packages = ", ".join(f"{package} {version}" for package, version in versions().items())
    head = [
        f"# {name.replace('_', '-')}",
        "",
        " · ".join(
            filter(None, [f"`python benchmarks/{name}.py`", about, date.today().isoformat()])
        ),
        "",
        f"{machine()}, one numerical thread. {packages}.",
        "",
    ]
    text = "\n".join([*head, *lines]) + "\n"
    (RESULTS / f"{name.replace('_', '-')}.md").write_text(text, encoding="utf-8")
    print(text)


def sections(name: str) -> list[str]:
    """Read the sections of ``docs/results/<name>.md``, each from its title on; none if there is no page."""
    page = RESULTS / f"{name}.md"
    return page.read_text(encoding="utf-8").split("\n## ")[1:] if page.exists() else []


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Cells as lines of Markdown."""
    heads = list(heads)
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]
