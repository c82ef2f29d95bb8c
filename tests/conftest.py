"""What holds for every test: one thread, no display, no internet, real data where it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Before numpy is imported, and inherited by the processes that tests start.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["MPLBACKEND"] = "Agg"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if "CONSILIENCE_DATA" not in os.environ and SHARED_DATA.is_dir():
    os.environ["CONSILIENCE_DATA"] = str(SHARED_DATA)

# The same examples on every run; a property that fails on one machine fails on all.
settings.register_profile("consilience", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("consilience")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """BLAS libraries that were loaded before the variables above were set obey this."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session", autouse=True)
def _power_stays_on() -> Iterator[None]:
    """Do not wait for the disk, which takes longer than most tests; tests of it put their own here."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures of reports blank, for tests of what stands around them: drawing takes longest."""
    blank = '<svg viewBox="0 0 1 1"></svg>', b""
    monkeypatch.setattr("consilience.lab.report.drawing.rendered", lambda figure, png: blank)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    """A worker that dies ends the suite at once: another may be minutes from the end of its file."""
    pytest.exit(f"a worker died in {crashitem}", returncode=pytest.ExitCode.TESTS_FAILED)


def missing_data(name: str) -> str | None:
    """Why the data set ``name`` cannot be used, or ``None`` when it is there."""
    root = os.environ.get("CONSILIENCE_DATA")
    if root is None:
        return f"data set {name!r}: CONSILIENCE_DATA is not set and {SHARED_DATA} does not exist"
    folder = Path(root) / name
    if not folder.is_dir() or not any(folder.iterdir()):
        return f"data set {name!r}: nothing in {folder}"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """``@pytest.mark.needs_data("mnist")`` skips a test only where that folder is absent."""
    for marker in item.iter_markers("needs_data"):
        for name in marker.args:
            if reason := missing_data(name):
                pytest.skip(reason)
