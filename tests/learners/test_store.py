"""What cannot be saved is said before anything is trained."""

from __future__ import annotations

import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from consilience.errors import InvalidInput
from consilience.learners import as_learner


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
