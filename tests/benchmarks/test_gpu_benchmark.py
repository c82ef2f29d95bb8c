"""What ``benchmarks/gpu.py`` counts, looks up and refuses; the round itself on a CPU, as small as can be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from consilience.models.torch.learner import TorchLearner  # noqa: E402

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu

    return gpu


def test_operations_by_hand(gpu: Any) -> None:
    """A 3×3 convolution of 3 channels into 4 on 8×8 pixels: 2 · 27 · 4 · 64; a layer of 256 to 10: 2 · 2,560.

    A step has the gradients of weights too, as many each, and those of inputs, but for the first layer's.
    """
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(256, 10)
    ).to("meta")
    first, last = 2 * 27 * 4 * 64, 2 * 2560
    assert gpu.operations(network, (3, 8, 8)) == (first + last, 2 * first + 3 * last)


def test_operations_of_resnet18(gpu: Any) -> None:
    """0.56 · 10⁹ multiplications and additions, as is known of it on images of 32×32."""
    with torch.device("meta"):
        asked, trained = gpu.operations(gpu.built(gpu.Size(), (3, 32, 32)), (3, 32, 32))
    assert asked == pytest.approx(2 * 0.556e9, rel=0.01)
    assert 2.9 < trained / asked < 3


@pytest.mark.parametrize(
    ("name", "precision", "peak"),
    [
        ("NVIDIA H200", "bfloat16", 989),
        ("NVIDIA H200 NVL", "bfloat16", 835),
        ("NVIDIA H100 80GB HBM3", "float32", 494),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA A100-SXM4-80GB", "float32", 156),
        ("NVIDIA L40S", "bfloat16", 362),
        ("NVIDIA L40", "bfloat16", None),
        ("NVIDIA L4", "bfloat16", 121),
        ("Tesla T4", "bfloat16", None),
    ],
)
def test_peaks(name: str, precision: str, peak: float | None, gpu: Any) -> None:
    assert gpu.peak_of(name, precision) == peak


def test_a_small_round_on_a_cpu(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many samples are trained on and predicted as are counted, and the share is theirs of the peak."""
    size = gpu.Size(3, 8, 12, 4, "resnet8", (("width", 2),), repeats=2)
    rng = np.random.default_rng(0)
    private = [(rng.random((8, 3, 8, 8), dtype=np.float32), np.arange(8) % 4) for _ in range(3)]
    public = rng.random((12, 3, 8, 8), dtype=np.float32)
    monkeypatch.setattr(gpu.Size, "deal", lambda self: (private, public))
    rows = {"fit": 0, "predict": 0}

    def counted(name: str) -> None:
        whole = getattr(TorchLearner, name)

        def method(self: Any, X: Any, *given: Any, **named: Any) -> Any:
            rows[name] += len(X)
            return whole(self, X, *given, **named)

        monkeypatch.setattr(TorchLearner, name, method)

    for name in rows:
        counted(name)
    assert gpu.ours(size, (private, public), "bfloat16", torch.device("cpu")) > 0
    assert rows == {"fit": size.trained, "predict": size.asked} == {"fit": 60, "predict": 36}
    lines = gpu.measured(size, "bfloat16", torch.device("cpu"), name="this CPU", peak=None)
    assert "60 samples trained on" in lines[0] and "36 predicted" in lines[0]
    assert lines[-3].endswith("| not known |")
    rounds = iter([9.0, 3.0, 5.0])  # the first is for warming up
    monkeypatch.setattr(gpu, "bare", lambda *_: 2.0)
    monkeypatch.setattr(gpu, "ours", lambda *_: next(rounds))
    monkeypatch.setattr(gpu, "operations", lambda *_: (10**11, 3 * 10**11))
    lines = gpu.measured(size, "float32", torch.device("cpu"), name="this CPU", peak=10.0)
    work = 60 * 0.3 + 36 * 0.1
    assert lines[-1] == "Round / bare loop: 2.000 (1.500 to 2.500)."
    assert f"| {work / 4:.1f} | {100 * work / 4 / 10:.1f} |" in lines[-3]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_run(gpu: Any) -> None:
    assert gpu.section() == ["No GPU: not run."]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "there is no GPU that torch can use" in done.stderr
    assert not done.stdout
