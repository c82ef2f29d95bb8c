"""Time one round on a GPU, against its peak and against a bare loop over the same samples.

    python benchmarks/gpu.py                                          # bfloat16; minutes
    python benchmarks/gpu.py --precision float32 --peak-tflops 80     # of a GPU that PEAKS does not know

Ten parties with ResNet-18 hold CIFAR-10's training images between them: each trains an epoch on its own, all
say what they think of the public ones, and each distils the mean for an epoch. The bare loop is one network
that goes through as many samples in the same batches and precision: plain torch, its rows on the GPU before.
Operations are counted by torch, a multiplication and an addition as two; medians of interleaved runs.
"""

from __future__ import annotations

import argparse
import re
import statistics
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import page
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from consilience import Federation, Party, avg, ensemble_distillation
from consilience.core.errors import InvalidInput
from consilience.core.learners import make
from consilience.lab.data import load

PEAKS: dict[str, tuple[float, float]] = {
    "H200": (989, 494),
    "H200 NVL": (835, 417),
    "H100": (989, 494),
    "H100 NVL": (835, 417),
    "H100 PCIe": (756, 378),
    "A100": (312, 156),
    "L40S": (362, 183),
    "L4": (121, 60),
}
"""10¹² operations a second of matrix products without sparsity, by NVIDIA's data sheets: of bfloat16, and of
float32 as convolutions multiply it, rounded to TF32."""


@dataclass(frozen=True)
class Size:
    """A round.

    Attributes:
        parties: how many.
        rows: private images of each.
        public: images.
        batch: images of a step.
        model: a preset.
        options: of the preset.
        repeats: how often it is timed.
    """

    parties: int = 10
    rows: int = 4500
    public: int = 5000
    batch: int = 128
    model: str = "resnet18"
    options: tuple[tuple[str, Any], ...] = ()
    repeats: int = 5

    @property
    def trained(self) -> int:
        """Samples that are trained on, by all."""
        return self.parties * (self.rows + self.public)

    @property
    def asked(self) -> int:
        """Samples that are predicted, by all."""
        return self.parties * self.public

    def deal(self) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
        """Images and labels of every party, and public images."""
        data = load("cifar-10")
        X = data.X.astype(np.float32)
        order = np.random.default_rng(0).permutation(len(X))
        mine = order[self.public :][: self.parties * self.rows].reshape(self.parties, -1)
        return [(X[rows], data.y[rows]) for rows in mine], X[order[: self.public]]


def gpu() -> torch.device:
    """The GPU.

    Raises:
        InvalidInput: torch can use none.
    """
    if not torch.cuda.is_available():
        raise InvalidInput("there is no GPU that torch can use", where="benchmarks/gpu.py")
    return torch.device("cuda")


def peak_of(name: str, precision: str) -> float | None:
    """The peak of a GPU in 10¹² operations a second, ``None`` if :data:`PEAKS` does not know it.

    Args:
        name: as ``torch.cuda.get_device_name`` has it.
        precision: of a recipe.
    """
    words = set(re.split(r"[\s-]+", name))
    known = [key for key in PEAKS if set(key.split()) <= words]
    if not known:
        return None
    return PEAKS[max(known, key=len)][precision == "float32"]


def operations(network: nn.Module, shape: tuple[int, ...]) -> tuple[int, int]:
    """Of one sample: those of a prediction, and of a training step without the optimizer's.

    Args:
        network: on ``meta``, where nothing is computed.
        shape: of a sample.
    """
    rows = 4
    found = []
    for train in (False, True):
        with FlopCounterMode(display=False) as counter:
            outputs = network(torch.empty(rows, *shape, device="meta"))
            if train:
                outputs.sum().backward()
        found.append(counter.get_total_flops() // rows)
    return found[0], found[1]


def built(size: Size, shape: tuple[int, ...]) -> nn.Module:
    """A network of the preset, on the device that is torch's default."""
    network: nn.Module = make(size.model, **dict(size.options)).factory(shape, 10)  # type: ignore[attr-defined]
    return network


def bare(size: Size, dealt: Any, precision: str, device: torch.device) -> float:
    """One network over as many samples as all parties': seconds."""
    private, public = dealt
    network = built(size, public.shape[1:]).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    rows = [(torch.from_numpy(X).to(device), torch.from_numpy(y).to(device)) for X, y in private]
    shared = torch.from_numpy(public).to(device)
    narrow = precision == "bfloat16"

    def outputs(X: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=narrow):
            return network(X).float()

    def fit(X: torch.Tensor, targets: torch.Tensor) -> None:
        optimizer = torch.optim.Adam(network.parameters(), fused=True)
        network.train()
        for batch in torch.randperm(len(X), device=device).split(size.batch):
            optimizer.zero_grad()
            F.cross_entropy(outputs(X[batch]), targets[batch]).backward()
            optimizer.step()

    start = clock(device)
    for X, y in rows:
        fit(X, y)
        network.eval()
        with torch.inference_mode():
            said = torch.cat([outputs(piece) for piece in shared.split(256)]).softmax(dim=1)
        fit(shared, said.clone())
    return clock(device) - start


def ours(size: Size, dealt: Any, precision: str, device: torch.device) -> float:
    """A federation's round: seconds."""
    private, public = dealt
    epochs = {"first_epochs": 1, "epochs": 1, "distill_epochs": 1}
    how = {"batch_size": size.batch, "precision": precision, "device": device.type}
    model = make(size.model, recipe={**epochs, **how}, **dict(size.options))
    parties = [Party(f"p{i}", model, X, y, calibration=0) for i, (X, y) in enumerate(private)]
    federation = Federation(parties, public, strict=False)
    start = clock(device)
    federation.run(ensemble_distillation(aggregate=avg(), rounds=1), progress=False)
    return clock(device) - start


def clock(device: torch.device) -> float:
    """Seconds, when the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def measured(
    size: Size, precision: str, device: torch.device, *, name: str, peak: float | None
) -> list[str]:
    """Lines of the table.

    Args:
        size: of the round.
        precision: of a recipe.
        device: where.
        name: what it is called.
        peak: in 10¹² operations a second, or ``None``.
    """
    dealt = size.deal()
    with torch.device("meta"):
        asked, trained = operations(built(size, dealt[1].shape[1:]), dealt[1].shape[1:])
    work = size.trained * trained + size.asked * asked
    for way in (bare, ours):  # kernels are chosen and memory is taken
        way(size, dealt, precision, device)
    seconds = [
        (bare(size, dealt, precision, device), ours(size, dealt, precision, device))
        for _ in range(size.repeats)
    ]
    alone, together = (statistics.median(values) for values in zip(*seconds, strict=True))
    ratios = [one / other for other, one in seconds]
    rates = [work / 1e12 / middle for middle in (alone, together)]
    shares = ["not known" if peak is None else f"{100 * rate / peak:.1f}" for rate in rates]
    return [
        f"{size.parties} parties, {size.model}, {size.rows:,} private and {size.public:,} public images of "
        f"CIFAR-10, batches of {size.batch}, {precision}, on {name}: {size.trained:,} samples trained on, of "
        f"{trained / 1e9:.2f} · 10⁹ operations, and {size.asked:,} predicted, of {asked / 1e9:.2f}. "
        f"Medians of {size.repeats} interleaved runs.",
        "",
        *page.table(
            ["", "seconds", "10¹² operations a second", "of the peak, %"],
            [
                ["bare loop, one network", f"{alone:.2f}", f"{rates[0]:.1f}", shares[0]],
                ["a federation's round", f"{together:.2f}", f"{rates[1]:.1f}", shares[1]],
            ],
        ),
        "",
        f"Round / bare loop: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}).",
    ]


def section(precision: str = "bfloat16", peak: float | None = None) -> list[str]:
    """Lines of the page, from runs made now; without a GPU, that there is none."""
    if not torch.cuda.is_available():
        return ["No GPU: not run."]
    device, name = gpu(), torch.cuda.get_device_name()
    peak = peak_of(name, precision) if peak is None else peak
    return measured(Size(), precision, device, name=name, peak=peak)


def main() -> None:
    """The command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--precision", choices=["bfloat16", "float32"], default="bfloat16")
    asked.add_argument("--peak-tflops", type=float, help="of the GPU in that precision, dense")
    given = asked.parse_args()
    try:
        gpu()
    except InvalidInput as error:
        asked.error(str(error))
    torch.set_num_threads(1)
    print("\n".join(section(given.precision, given.peak_tflops)))


if __name__ == "__main__":
    main()
