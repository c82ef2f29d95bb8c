"""Find marks of an unclear style in docstrings, in README and in titles of pages.

    python benchmarks/style.py [FOLDER…]   # every mark below src/consilience/FOLDER, and in README and titles

The figures belong to the ratchet of ``structure.py``. A mark is a hint and no proof: if the marked words are
the plainest ones, change :data:`MARKS`, and give the reason in a comment.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "src/consilience"

_NOUN = "a|the|its|it|no|all|both|two|one|every|these|they|each|this|that|nobody|nothing|there|any|an|only"
_VERB = "is|are|was|were|has|had|have|holds?|it|they|he"

MARKS = {
    "a condition is 'if' or 'when'": (
        rf"(?:^|[.;:,] |\b(?:and|but|or) )[Ww]here (?:{_NOUN}|parties|models|rows)\b"
    ),
    "a relative clause stands for a noun": (
        r"\b(?:[Ww]hat (?:it|a|the|they|is|was|leaves|left|comes|came|goes|others|parties|differs|travels"
        r"|each|these|that|this|no|there|could|can|had|has)|[Ww]hoever|of which"
        r"|whose (?:row|answers?|rows|models?))\b"
    ),
    "an adjective is shorter": rf"\b\w+s? that (?:{_VERB})\b",
    "'of its own'": r"\bof (?:its|their|your|one's) own\b",
    "objects do not speak": r"\b(?:says?|said|tells?|told|knows?|asks?|asked)\b",
    "'not' and the actor": r"\b(?:[Nn]obody|[Nn]othing|[Nn]o one|neither)\b",
    "a rare word": (
        r"\b(?:anew|beside|alike|thereof|to the same bits|by itself|mend(?:s|ed)?"
        r"|hand(?:s|ed)? (?:on|over|out)|goes? on|beforehand|for good|once more)\b"
    ),
}
"""Reason to the pattern of its mark."""


def marks(text: str) -> list[str]:
    """Find the marks of a text, code and examples left out.

    >>> marks("Nobody is fitted anew.")
    ["'not' and the actor: Nobody", 'a rare word: anew']
    """
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*(>>>|\.\.\.).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r":\w+:CODE", "CODE", re.sub(r"``?[^`]*``?", "CODE", text))
    return [
        f"{why}: {found.group(0).strip(' .;:,')}"
        for why, pattern in MARKS.items()
        for found in re.finditer(pattern, text, flags=re.MULTILINE)
    ]


def docstrings(trees: Mapping[Path, ast.Module]) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of modules, classes and functions, each with its place."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                place = f"{file.relative_to(LIBRARY)}:{getattr(node, 'lineno', 1)}"
                yield f"{place} {getattr(node, 'name', 'module')}", text


def marked_docstrings(trees: Mapping[Path, ast.Module]) -> list[str]:
    """List the docstrings with a mark."""
    found = ((place, marks(text)) for place, text in docstrings(trees))
    return [f"{place}: {'; '.join(hits)}" for place, hits in found if hits]


def marked_pages() -> list[str]:
    """List the marks of README and of the titles of pages."""
    texts = [("README.md", (ROOT / "README.md").read_text("utf-8"))]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        body = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        titles = [line for line in body.splitlines() if line.startswith("# ")]
        texts.append((str(page.relative_to(ROOT)), "\n".join(titles)))
    return [f"{name}: {hit}" for name, text in texts for hit in marks(text)]


def main() -> None:
    """Print the marks below some folders."""
    folders = [LIBRARY / name for name in sys.argv[1:] or [""]]
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    trees = {file: ast.parse(file.read_text("utf-8")) for file in files}
    found = marked_docstrings(trees)
    print(*found, *marked_pages(), sep="\n")
    print(f"{len(found)} of {sum(1 for _ in docstrings(trees))} docstrings have a mark")


if __name__ == "__main__":
    main()
