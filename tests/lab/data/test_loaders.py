"""Every loader on small files of the published formats, made here."""

from __future__ import annotations

import gzip
import io
import lzma
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import pytest

from consilience.core.errors import InvalidInput
from consilience.lab.data import DATASETS, DatasetEntry, load, registry
from consilience.lab.data.downloads import data_home
from consilience.lab.data.sources.texts import strip_post


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and no network."""

    def no_network(url: str, *_: Any, **__: Any) -> str:
        raise OSError(f"HTTPSConnectionPool(...): Max retries exceeded with url: {url}")

    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    monkeypatch.setattr(pooch, "retrieve", no_network)
    return tmp_path


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def images(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(256, size=(n, 28, 28), dtype=np.uint8)


def four_files(folder: Path, names: list[str], y: np.ndarray, y_test: np.ndarray) -> None:
    folder.mkdir(parents=True)
    for name, array in zip(names, (images(len(y)), y, images(len(y_test)), y_test), strict=True):
        (folder / name).write_bytes(gzip.compress(idx(array)))


MNIST = [f"{s}-{w}-ubyte.gz" for s in ("train", "t10k") for w in ("images-idx3", "labels-idx1")]
SOME = np.array([3, 0, 9, 1], dtype=np.uint8)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_images(home: Path, name: str) -> None:
    four_files(home / name, MNIST, SOME, SOME[:2])
    data = load(name)
    assert np.array_equal(data.X, images(4) / np.float32(255))
    assert data.y.tolist() == [3, 0, 9, 1]
    assert data.y_test.tolist() == [3, 0]
    assert len(data.classes or ()) == 10


def test_idx_files_may_be_unpacked(home: Path) -> None:
    four_files(home / "mnist", MNIST, SOME, SOME[:2])
    for path in list((home / "mnist").iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert len(load("mnist").X) == 4


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not gzip",
        gzip.compress(b"\0\0\x0d\x01"),
        gzip.compress(idx(SOME)[:-1]),
        gzip.compress(idx(SOME)[:6]),
        gzip.compress(idx(SOME))[:-9],
    ],
    ids=["empty", "not gzip", "another magic number", "too few pixels", "no header", "cut short"],
)
def test_a_damaged_file_is_named(home: Path, content: bytes) -> None:
    four_files(home / "mnist", MNIST, SOME, SOME[:2])
    (home / "mnist" / MNIST[1]).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"train-labels-idx1-ubyte\.gz: the file is damaged"):
        load("mnist")


@pytest.mark.parametrize("split", ["letters", "digits"])
@pytest.mark.parametrize("archive", [False, True])
def test_emnist_is_turned_upright(home: Path, split: str, archive: bool) -> None:
    """Letters are numbered from 1 in the files: 1 is "A", code 0."""
    names = [
        f"emnist-{split}-{s}-{w}-ubyte.gz"
        for s in ("train", "test")
        for w in ("images-idx3", "labels-idx1")
    ]
    y = np.array([1, 2, 9], dtype=np.uint8)
    folder = home / "emnist" / ("elsewhere" if archive else "gzip")
    four_files(folder, names, y, y[:2])
    if archive:
        with zipfile.ZipFile(home / "emnist" / "gzip.zip", "w") as packed:
            for name in names:
                packed.write(folder / name, f"gzip/{name}")
    data = load("emnist", split=split)
    assert np.array_equal(data.X[0] * 255, images(3)[0].T)
    assert [data.classes[c] for c in data.y] == (
        ["A", "B", "I"] if split == "letters" else ["1", "2", "9"]
    )


def batch(n: int, **labels: int) -> dict[bytes, Any]:
    pixels = np.random.default_rng(n).integers(256, size=(n, 3072), dtype=np.uint8)
    kinds = {key.encode(): [i % k for i in range(n)] for key, k in labels.items()}
    return {b"data": pixels, **kinds}


CIFAR_10 = {
    "data_batch_1": batch(4, labels=2),
    "data_batch_3": batch(6, labels=2),
    "test_batch": batch(2, labels=2),
    "batches.meta": {b"label_names": [b"cat", b"dog"]},
}
CIFAR_100 = {
    "train": batch(8, fine_labels=4, coarse_labels=2),
    "test": batch(40, fine_labels=4, coarse_labels=2),
    "meta": {
        b"fine_label_names": [b"cat", b"dog", b"oak", b"elm"],
        b"coarse_label_names": [b"animal", b"tree"],
    },
}


def put(folder: Path, files: dict[str, Any], how: str, inside: str) -> None:
    folder.mkdir()
    packed = {name: pickle.dumps(content, protocol=4) for name, content in files.items()}
    if how == "archive":
        with tarfile.open(folder / f"{folder.name}-python.tar.gz", "w:gz") as tar:
            for name, content in packed.items():
                member = tarfile.TarInfo(f"{inside}/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    for name, content in packed.items():
        if how == "plain":
            (folder / name).write_bytes(content)
        elif how == "xz":
            (folder / f"{name}.xz").write_bytes(lzma.compress(content))


@pytest.mark.parametrize("how", ["plain", "xz", "archive"])
def test_cifar_10_takes_the_batches_there_are(home: Path, how: str) -> None:
    put(home / "cifar-10", CIFAR_10, how, "cifar-10-batches-py")
    data = load("cifar-10")
    assert data.X.shape == (10, 3, 32, 32)
    assert data.notes == "10 of 50,000 training rows found."
    # Row 4 is the first of batch 3: its red value at line 1, column 2 is byte 34.
    assert data.X[4, 0, 1, 2] == np.float32(CIFAR_10["data_batch_3"][b"data"][0, 34]) / 255
    assert data.classes == ("cat", "dog")


@pytest.mark.parametrize("how", ["plain", "xz", "archive"])
@pytest.mark.parametrize("coarse", [False, True])
def test_cifar_100(home: Path, how: str, coarse: bool) -> None:
    put(home / "cifar-100", CIFAR_100, how, "cifar-100-python")
    data = load("cifar-100", coarse=coarse)
    assert data.classes == (("animal", "tree") if coarse else ("cat", "dog", "oak", "elm"))
    assert data.y.tolist() == ([0, 1] * 4 if coarse else [0, 1, 2, 3] * 2)
    assert len(data.y_test) == 40


def test_cifar_100_from_the_test_file_alone(home: Path) -> None:
    """Ten rows of each of four classes; 30 % of them stay for testing: three each."""
    without = {name: content for name, content in CIFAR_100.items() if name != "train"}
    put(home / "cifar-100", without, "xz", "cifar-100-python")
    data = load("cifar-100")
    assert np.bincount(data.y).tolist() == [7] * 4
    assert np.bincount(data.y_test).tolist() == [3] * 4
    assert "No training file was found: 28 rows" in data.notes
    pixels = {row.tobytes() for row in np.concatenate([data.X, data.X_test])}
    assert len(pixels) == 40
    assert np.array_equal(load("cifar-100").X, data.X)
    assert not np.array_equal(load("cifar-100", seed=1).X, data.X)


def test_cifar_damage_is_named(home: Path) -> None:
    put(home / "cifar-10", CIFAR_10, "plain", "cifar-10-batches-py")
    for content in ({b"data": np.zeros((2, 5), dtype=np.uint8), b"labels": [0, 1]}, {}, [1]):
        (home / "cifar-10" / "test_batch").write_bytes(pickle.dumps(content, protocol=4))
        with pytest.raises(InvalidInput, match="the file is damaged"):
            load("cifar-10")
    (home / "cifar-10" / "batches.meta").unlink()
    put(home / "cifar-100", CIFAR_100, "archive", "cifar-100-python")
    archive = home / "cifar-100" / "cifar-100-python.tar.gz"
    archive.write_bytes(archive.read_bytes()[:300])
    with pytest.raises(InvalidInput, match=r"cifar-100-python\.tar\.gz: the file is damaged"):
        load("cifar-100")


def test_cifar_without_training_batches(home: Path) -> None:
    files = {name: CIFAR_10[name] for name in ("test_batch", "batches.meta")}
    put(home / "cifar-10", files, "plain", "cifar-10-batches-py")
    with pytest.raises(InvalidInput, match="no training batch"):
        load("cifar-10")


YAHOO = {
    "train.csv": '"1","Why, ""so""?","","Because.\\nEnd"\n"10","Who?","more","She"\n',
    "test.csv": '"2","What?","",""\n',
}


@pytest.mark.parametrize("how", ["csv", "tgz", "tar.gz"])
def test_yahoo_answers(home: Path, how: str) -> None:
    folder = home / "yahoo-answers"
    folder.mkdir()
    if how == "csv":
        for name, text in YAHOO.items():
            (folder / name).write_text(text)
    else:
        with tarfile.open(folder / f"yahoo_answers_csv.{how}", "w:gz") as tar:
            for name, text in YAHOO.items():
                member = tarfile.TarInfo(f"yahoo_answers_csv/{name}")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
    data = load("yahoo-answers")
    assert data.X.tolist() == ['Why, "so"?\nBecause.\nEnd', "Who?\nmore\nShe"]
    assert [data.classes[c] for c in data.y] == ["Society & Culture", "Politics & Government"]
    assert data.X_test.tolist() == ["What?"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'"x","a","b","c"', "train.csv: the file is damaged"),
        (b'"1","a","b","\xff"', "train.csv: the file is damaged"),
        (b'"11","a","b","c"', "labels run from 10 to 10, and there are 10 classes"),
        (b"", "training rows: there are no rows"),
    ],
)
def test_yahoo_damage_is_named(home: Path, content: bytes, said: str) -> None:
    folder = home / "yahoo-answers"
    folder.mkdir()
    (folder / "train.csv").write_bytes(content)
    (folder / "test.csv").write_text(YAHOO["test.csv"])
    with pytest.raises(InvalidInput, match=said):
        load("yahoo-answers")


POST = "From: a@b\nSubject: x\n\nShe wrote:\n> old\nnew text\n\n-- \nsignature"


def test_a_post_without_its_trimmings() -> None:
    """Headers end at the first empty line, the footer starts at the last line of dashes."""
    assert strip_post(POST) == "new text\n"
    assert strip_post(POST, []) == POST
    assert strip_post(POST, ["headers"]) == POST[POST.index("She") :]


def test_posts_are_stripped_as_by_scikit_learn() -> None:
    from sklearn.datasets import _twenty_newsgroups as theirs

    for text in (
        POST,
        "",
        "a",
        "\n\n",
        "a\n\nb",
        "a\n\nb\n\nc",
        "h\n\n--\nb",
        "x\n\n> q\n|q\nIn article",
    ):
        assert strip_post(text, ["headers"]) == theirs.strip_newsgroup_header(text)
        assert strip_post(text, ["footers"]) == theirs.strip_newsgroup_footer(text)
        assert strip_post(text, ["quotes"]) == theirs.strip_newsgroup_quoting(text)


def test_newsgroups(home: Path) -> None:
    (home / "20news").mkdir()
    with tarfile.open(home / "20news" / "20news-bydate.tar.gz", "w:gz") as tar:
        for name, text in [
            ("train/sci.med/2", POST),
            ("train/rec.autos/1", "From: c\n\nB\xe9ta"),
            ("test/rec.autos/3", "From: c\n\n"),
        ]:
            content = text.encode("latin-1")
            member = tarfile.TarInfo(f"20news-bydate-{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    data = load("20newsgroups")
    assert data.classes == ("rec.autos", "sci.med")
    assert data.X.tolist() == ["B\xe9ta", "new text\n"]
    assert data.notes.startswith("1 posts have no text left")
    assert load("20newsgroups", remove=[]).X[1] == POST
    with pytest.raises(InvalidInput, match="Did you mean 'footers'"):
        load("20newsgroups", remove=["footer"])


def test_trec(home: Path) -> None:
    (home / "trec").mkdir()
    (home / "trec" / "train_5500.label").write_text("NUM:date When ?\nHUM:ind Who is J. F\xe9 ?\n",
                                                    encoding="latin-1")  # fmt: skip
    (home / "trec" / "TREC_10.label").write_text("NUM:date Which year ?\n")
    assert load("trec").classes == ("HUM", "NUM")
    data = load("trec", fine=True)
    assert data.classes == ("HUM:ind", "NUM:date")
    assert data.X.tolist() == ["When ?", "Who is J. F\xe9 ?"]
    (home / "trec" / "TREC_10.label").write_text("<html> not found")
    with pytest.raises(InvalidInput, match="damaged"):
        load("trec")


def test_heart_disease(home: Path) -> None:
    """Of five patients one lacks a value that is kept; one lacks only thal, which is dropped."""
    folder = home / "heart-disease"
    folder.mkdir()
    lines = [
        "63,1,1,145,233,1,2,150,0,2.3,3,0,6,0",
        "67,1,4,160,286,0,0,108,1,1.5,2,3,3,2",
        "37,1,3,130,?,0,0,187,0,3.5,3,0,3,0",
        "41,0,2,130,204,0,1,172,0,1.4,1,0,?,0",
        "56,1,2,120,236,0,0,178,0,0.8,1,0,3,1",
    ]
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        (folder / f"processed.{hospital}.data").write_text("\n".join(lines) + "\n")
    data = load("heart-disease", test_fraction=0.5)
    assert data.columns == (
        "age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak",
        "cp=2", "cp=3", "cp=4", "restecg=1", "restecg=2",
    )  # fmt: skip
    X, y = np.concatenate([data.X, data.X_test]), np.concatenate([data.y, data.y_test])
    patients = {row[0]: (row.tolist(), label) for row, label in zip(X, y, strict=True)}
    assert len(X) == 16
    assert patients[63][0] == pytest.approx([63, 1, 145, 233, 1, 150, 0, 2.3, 0, 0, 0, 0, 1])
    assert patients[67][0] == pytest.approx([67, 1, 160, 286, 0, 108, 1, 1.5, 0, 0, 1, 0, 0])
    assert patients[41][0] == pytest.approx([41, 0, 130, 204, 0, 172, 0, 1.4, 1, 0, 0, 1, 0])
    assert {age: label for age, (_, label) in patients.items()} == {63: 0, 67: 1, 41: 0, 56: 1}
    assert np.unique(data.group_test, return_counts=True)[1].tolist() == [2, 2, 2, 2]
    whole = load("heart-disease", test_fraction=0.5, gaps=True)
    assert len(whole.X) + len(whole.X_test) == 20 and whole.schema is not None
    kinds = {column.name: (column.kind, column.gaps) for column in whole.schema.columns}
    assert (kinds["chol"], kinds["thal"]) == (("number", True), ("category", True))
    assert kinds["sex"] == ("category", False) and len(kinds) == 13
    for content in ("1,2,3\n", lines[0].replace("63", "old")):
        (folder / "processed.va.data").write_text(content)
        for gaps in (False, True):
            with pytest.raises(InvalidInput, match=r"processed\.va\.data: the file is damaged"):
                load("heart-disease", gaps=gaps)


FILES = sorted(set(DATASETS) - {"diabetes", "digits", "csv", "excel", "parquet", "npz"})


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_says_where_and_whence(home: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(name)
    said = str(caught.value)
    assert f"is not in {home}" in said
    assert "Get it from http" in said
    assert len(said) < 400


def test_what_cannot_be_checked_is_not_downloaded(home: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load("yahoo-answers")
    assert "downloading" not in str(caught.value)


def test_a_download_goes_into_the_folder_with_its_checksum(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> str:
        asked.append((url, known_hash, path / fname))
        (home / "x.gz").write_bytes(
            gzip.compress(idx(images(2) if "images" in fname else SOME[:2]))
        )
        return str(home / "x.gz")

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    load("mnist")
    assert asked[0] == (
        "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz",
        "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        home / "mnist" / "train-images-idx3-ubyte.gz",
    )


def test_the_platform_cache_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONSILIENCE_DATA", raising=False)
    assert data_home() == Path(pooch.os_cache("consilience"))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("fashion-mnst", {}, "Did you mean 'fashion-mnist'"),
        ("emnist", {"spilt": "digits"}, "Did you mean 'split'"),
        ("emnist", {"split": "letter"}, "Did you mean 'letters'"),
        ("mnist", {"split": "digits"}, "unknown option 'split'\n  It takes no options"),
        ("csv", {"target": "y"}, "needs the option 'path'"),
    ],
)
def test_unknown_names_and_options(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load(name, **options)


def test_every_entry_says_what_it_is() -> None:
    assert all(entry.line and entry.citation for entry in DATASETS.values())


def test_digits() -> None:
    data = load("digits")
    assert data.X.shape == (1258, 64) and data.X_test.shape == (539, 64)
    assert data.X.min() == 0 and data.X.max() == 1
    assert np.array_equal(load("digits").X, data.X)
    assert not np.array_equal(load("digits", seed=1).X, data.X)
    assert len(load("digits", test_fraction=0.5).X_test) == 898


def test_diabetes() -> None:
    """As published: 442 patients of 19 to 79 years, whose disease is from 25 to 346 after a year."""
    data = load("diabetes")
    assert data.X.shape == (309, 10) and data.X_test.shape == (133, 10) and data.classes is None
    y, ages = np.append(data.y, data.y_test), np.append(data.X[:, 0], data.X_test[:, 0])
    assert (y.min(), y.max(), ages.min(), ages.max()) == (25, 346, 19, 79)
    assert data.columns is not None and data.columns[:4] == ("age", "sex", "bmi", "bp")
    assert np.array_equal(load("diabetes").X, data.X)
    assert not np.array_equal(load("diabetes", seed=1).X, data.X)


def test_another_package_adds_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one entry point; a name that is taken is refused."""
    data = load("digits")
    entry = DatasetEntry(lambda: data, "theirs", "nobody")
    monkeypatch.setattr(registry, "registered_names", lambda group: ("theirs",))
    monkeypatch.setattr(registry, "registered_object", lambda group, name: entry)
    assert registry._datasets()["theirs"] is entry and "digits" in registry._datasets()
    monkeypatch.setattr(registry, "registered_names", lambda group: ("digits",))
    with pytest.raises(InvalidInput, match="two datasets are called 'digits'"):
        registry._datasets()
