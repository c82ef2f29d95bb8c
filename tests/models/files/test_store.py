"""What cannot be saved is said before anything is trained."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import VotingClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import all_estimators

from consilience.core.errors import InvalidInput, RunFailed
from consilience.core.learners import as_learner
from consilience.models import make
from consilience.models.files.store import blob_of, model_digest, read
from consilience.models.files.vetting import SURE, plain


def test_what_could_not_be_saved_is_known_before_training() -> None:
    class Local(GaussianNB):
        pass

    with pytest.raises(InvalidInput, match="cannot be saved"):
        as_learner(make_pipeline(FunctionTransformer(lambda X: X), GaussianNB())).check_saving()
    with pytest.raises(InvalidInput, match="cannot be saved"):
        as_learner(Local()).check_saving()
    Local.__module__ = "__main__"
    with pytest.raises(InvalidInput, match="defined in the script itself"):
        as_learner(Local()).check_saving()
    as_learner(GaussianNB()).check_saving()


def test_a_plain_model_can_be_saved() -> None:
    """Whatever is taken for sure, skops takes: every estimator of those packages with its defaults."""
    sure = 0
    for name, kind in all_estimators():
        if not kind.__module__.startswith(tuple(f"{package}." for package in SURE)):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # some are to be removed
            try:
                model = kind()
            except TypeError:  # it is made of others
                continue
        if plain(model):
            sure += 1
            assert blob_of({"models": [model]}, given=model, where=name)
    assert sure > 80


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (make_pipeline(StandardScaler(), GaussianNB()), True),
        (VotingClassifier([("a", GaussianNB()), ("b", GaussianNB())], weights=[1, 2.5]), True),
        (make_pipeline(StandardScaler(), PCA(), GaussianNB()), False),
        (make_pipeline(FunctionTransformer(abs), GaussianNB()), False),
        (VotingClassifier([("a", object())]), False),
        (GaussianNB, False),
        (object(), False),
    ],
    ids=["pipeline", "vote", "other package", "function", "foreign step", "class", "foreign"],
)
def test_plain(model: Any, expected: bool) -> None:
    assert plain(model) is expected


@pytest.mark.timeout(20)
def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "model.skops").symlink_to("/dev/zero")
    with pytest.raises(RunFailed, match=r"model\.skops: .* it is no regular file"):
        make("naive-bayes").load(tmp_path / "model.skops")


def test_what_lay_in_memory_between_the_fields_of_records_is_not_written(tmp_path: Path) -> None:
    """Nodes of trees are such records: 57 bytes of 64. The same model has the same digest."""
    kind = np.dtype([("place", "<i8"), ("flag", "u1")], align=True)
    digests = set()
    for number, lain in enumerate((b"private", b"another")):
        nodes = np.zeros(4, dtype=kind)
        nodes["place"], nodes["flag"] = np.arange(4), 1
        nodes.view(np.uint8).reshape(4, 16)[:, 9:] = np.frombuffer(lain, dtype=np.uint8)
        assert lain in nodes.tobytes()
        written = blob_of({"nodes": nodes}, given=None, where="model")
        assert lain not in written
        file = tmp_path / f"{number}.skops"
        file.write_bytes(written)
        again = read(file, given=None)["nodes"]
        assert again.dtype == kind and again.tolist() == nodes.tolist()
        digests.add(model_digest(file))
    assert len(digests) == 1
