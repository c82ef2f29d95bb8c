"""Yahoo Answers, 20 newsgroups and TREC: texts with a topic."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.validation.arrays import Array
from consilience.lab.data.downloads import damaged, find, obtain, read_archive, read_bytes
from consilience.tables.dataset import Dataset, as_texts

YAHOO_ADDRESS = "https://s3.amazonaws.com/fast-ai-nlp/yahoo_answers_csv.tgz"
YAHOO_TOPICS = (
    "Society & Culture", "Science & Mathematics", "Health", "Education & Reference",
    "Computers & Internet", "Sports", "Business & Finance", "Entertainment & Music",
    "Family & Relationships", "Politics & Government",
)  # fmt: skip

NEWS_ADDRESS = "https://ndownloader.figshare.com/files/5975967"
NEWS_HASH = "sha256:8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610"
NEWS_PARTS = ("headers", "footers", "quotes")
QUOTED = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>)")

TREC_ADDRESS = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"
TREC_HASHES = {
    "train_5500.label": "sha256:9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
    "TREC_10.label": "sha256:033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
}


def load_yahoo_answers() -> Dataset:
    """1,400,000 + 60,000 questions with their best answers, ten topics (Zhang et al. 2015).

    A text is the question's title, its content and the best answer, a line each.
    """
    names = ("train.csv", "test.csv")
    loose = [find("yahoo-answers", name, f"yahoo_answers_csv/{name}") for name in names]
    if all(loose):
        sides = [(read_bytes(path), str(path)) for path in loose if path]
    else:
        archive = find("yahoo-answers", "yahoo_answers_csv.tar.gz") or obtain(
            "yahoo-answers", "yahoo_answers_csv.tgz", YAHOO_ADDRESS
        )
        packed = read_archive(archive)
        members = [f"yahoo_answers_csv/{name}" for name in names]
        if missing := [member for member in members if member not in packed]:
            raise damaged(archive, f"no {' and no '.join(missing)} in it")
        sides = [(packed[member], f"{archive}/{member}") for member in members]
    (X, y), (X_test, y_test) = (_yahoo_rows(content, where) for content, where in sides)
    return Dataset("yahoo-answers", X, y, X_test, y_test, classes=YAHOO_TOPICS)


def load_newsgroups(*, remove: Collection[str] = NEWS_PARTS) -> Dataset:
    """11,314 + 7,532 posts to twenty newsgroups, split by date.

    Args:
        remove: the parts of a post to leave out, of ``"headers"``, ``"footers"`` and ``"quotes"``;
            by default all, without which the sender's address gives the answer away. The rules are
            scikit-learn's; some posts have no text left.
    """
    for part in remove:
        if part not in NEWS_PARTS:
            raise InvalidInput(
                f"cannot remove {part!r}", where="20newsgroups", mend=nearest(part, NEWS_PARTS)
            )
    folder, file = "20news", "20news-bydate.tar.gz"
    archive = obtain(folder, file, NEWS_ADDRESS, NEWS_HASH)
    posts: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
    for name, content in sorted(read_archive(archive).items()):
        side, _, rest = name.removeprefix("20news-bydate-").partition("/")
        topic, _, number = rest.partition("/")
        if side not in posts or not number:
            raise damaged(archive, f"unexpected member {name}")
        posts[side].append((topic, strip_post(content.decode("latin-1"), remove)))
    classes = tuple(sorted({topic for topic, _ in posts["train"]}))
    (X, y), (X_test, y_test) = (_coded(posts[side], classes) for side in ("train", "test"))
    empty = sum(not text.strip() for side in posts.values() for _, text in side)
    notes = f"{empty:,} posts have no text left without {', '.join(remove)}." if empty else ""
    return Dataset("20newsgroups", X, y, X_test, y_test, classes=classes, notes=notes)


def load_trec(*, fine: bool = False) -> Dataset:
    """5,452 + 500 questions, labelled by the type of their answer.

    Args:
        fine: whether to use the 50 fine classes (``"NUM:date"``) and not the 6 coarse ones.
    """
    sides = []
    for file, known_hash in TREC_HASHES.items():
        path = obtain("trec", file, TREC_ADDRESS + file, known_hash)
        lines = read_bytes(path).decode("latin-1").split("\n")
        rows = [line.strip().partition(" ")[::2] for line in lines if line.strip()]
        if bad := [label for label, text in rows if ":" not in label or not text]:
            raise damaged(path, f"a line starts with {bad[0]!r}")
        sides.append([(label if fine else label.partition(":")[0], text) for label, text in rows])
    classes = tuple(sorted({label for label, _ in sides[0]}))
    (X, y), (X_test, y_test) = (_coded(side, classes) for side in sides)
    return Dataset("trec-fine" if fine else "trec", X, y, X_test, y_test, classes=classes)


def strip_post(text: str, remove: Collection[str] = NEWS_PARTS) -> str:
    """Strip a newsgroup post of headers, signature and quotes, by scikit-learn's rules.

    Args:
        text: the post.
        remove: parts to strip.
    """
    if "headers" in remove:  # all before the first empty line
        text = text.partition("\n\n")[2]
    if "footers" in remove:  # all after the last line that is empty or of dashes
        lines = text.strip().split("\n")
        last = next((i for i in reversed(range(len(lines))) if not lines[i].strip().strip("-")), 0)
        text = "\n".join(lines[:last]) if last > 0 else text
    if "quotes" in remove:
        text = "\n".join(line for line in text.split("\n") if not QUOTED.search(line))
    return text


def _coded(rows: list[tuple[str, str]], classes: tuple[str, ...]) -> tuple[Array, Array]:
    """Texts and class codes of (class, text) pairs."""
    code = {name: i for i, name in enumerate(classes)}
    if unknown := {label for label, _ in rows} - code.keys():
        raise InvalidInput(f"test rows have classes without training rows: {sorted(unknown)}")
    return as_texts([text for _, text in rows]), np.array([code[label] for label, _ in rows])


def _yahoo_rows(content: bytes, where: str) -> tuple[Array, Array]:
    """Rows of topic (from 1), title, question and answer; a new line is written as \\n."""
    texts, topics = [], []
    try:
        for topic, *parts in csv.reader(io.StringIO(content.decode("utf-8"), newline="")):
            topics.append(int(topic) - 1)
            texts.append("\n".join(part for part in parts if part).replace("\\n", "\n"))
    except (csv.Error, ValueError) as error:
        raise damaged(where, str(error)) from error
    return as_texts(texts), np.array(topics, dtype=np.int64)
