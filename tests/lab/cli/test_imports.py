"""Modules that a command imports later than the libraries that ask for them."""

from __future__ import annotations

import subprocess
import sys

from consilience.lab.cli.imports import put_off


def test_a_module_is_imported_when_it_is_used() -> None:
    sys.modules.pop("colorsys", None)
    with put_off("colorsys", "json"):
        import json  # imported already, so it stays
        from colorsys import ONE_THIRD, rgb_to_hsv

    assert "colorsys" not in sys.modules and json.loads("1") == 1
    assert rgb_to_hsv(1, 0, 0) == (0, 1, 1)
    assert "colorsys" in sys.modules and ONE_THIRD.is_integer() is False


def test_named_models_alone_are_imported_and_work() -> None:
    """Boosting takes a mean of SciPy's; its trees are those of a process that has imported all."""
    code = """
import sys
if sys.argv[1:]:
    import pandas, scipy.stats, scipy.integrate, scipy.interpolate
from consilience.lab.cli.imports import import_models, import_scipy
import_scipy()
import_models(["gradient-boosting", "mlp", "no such model"])
assert bool(sys.argv[1:]) == ("scipy.stats" in sys.modules) == ("pandas" in sys.modules)
assert not {"torch", "sklearn.naive_bayes"} & set(sys.modules)
import numpy as np
assert "numpy.f2py" not in sys.modules and "numpy.testing" not in sys.modules or sys.argv[1:]
np.testing.assert_equal(np.f2py.__name__, "numpy.f2py")  # NumPy imports them when they are asked for
from sklearn.ensemble import HistGradientBoostingClassifier
X = np.random.default_rng(0).normal(size=(60, 2))
model = HistGradientBoostingClassifier(max_iter=2).fit(X, (3 * X[:, 0]).round() % 3)
print(model.predict_proba(X).tobytes().hex())
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
        )
        for words in ((), ("all",))
    ]
    assert said[0].stdout == said[1].stdout != ""
