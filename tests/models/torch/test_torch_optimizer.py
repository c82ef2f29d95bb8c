"""The optimizers' steps, held against those of ``torch.optim``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from consilience.models import TorchRecipe

torch = pytest.importorskip("torch")

from consilience.models.torch.optimizer import TorchOptimizer  # noqa: E402

CASES: dict[str, tuple[dict[str, Any], Callable[[list[Any]], Any]]] = {
    "sgd": (
        {"optimizer": "sgd", "learning_rate": 0.1},
        lambda parts: torch.optim.SGD(parts, lr=0.1, fused=True),
    ),
    "sgd with momentum": (
        {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01},
        lambda parts: torch.optim.SGD(
            parts, lr=0.1, momentum=0.9, weight_decay=0.01, fused=True
        ),
    ),
    "adam": (
        {"optimizer": "adam", "learning_rate": 0.1, "weight_decay": 0.01},
        lambda parts: torch.optim.Adam(parts, lr=0.1, weight_decay=0.01, fused=True),
    ),
    "adamw": (
        {"optimizer": "adamw", "learning_rate": 0.1, "weight_decay": 0.01},
        lambda parts: torch.optim.AdamW(parts, lr=0.1, weight_decay=0.01, fused=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_steps_are_torchs(case: str) -> None:
    """Bit for bit, over five steps; the last parameter misses the second."""
    recipe, made = CASES[case]
    generator = torch.Generator().manual_seed(0)
    starts = [torch.randn(shape, generator=generator) for shape in ((3, 2), (4,), ())]
    ours, theirs = (
        [start.clone().requires_grad_() for start in starts] for _ in ("ours", "theirs")
    )
    mine, torchs = TorchOptimizer(TorchRecipe(**recipe), ours), made(theirs)
    for step in range(5):
        mine.zero_grad()
        torchs.zero_grad()
        assert all(part.grad is None for part in ours)
        for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            gradient = torch.randn(one.shape, generator=generator)
            if i < 2 or step != 1:
                one.grad, other.grad = gradient.clone(), gradient.clone()
        mine.step()
        torchs.step()
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert not any(torch.equal(one, start) for one, start in zip(ours, starts, strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_parameter_may_come_late(momentum: float) -> None:
    """Rate 1, gradients 1: a step takes 1 off, a second one 1 and the momentum. One has none at first."""
    recipe = TorchRecipe(optimizer="sgd", learning_rate=1.0, momentum=momentum)
    parts = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    optimizer = TorchOptimizer(recipe, parts)
    optimizer.step()
    parts[0].grad = torch.ones(2)
    optimizer.step()
    parts[0].grad, parts[1].grad = torch.ones(2), torch.ones(2)
    optimizer.step()
    assert [part.tolist() for part in parts] == [[-2 - momentum] * 2, [-1, -1]]


def test_training_imports_no_compiler() -> None:
    """PyTorch's compiler takes longer to import than PyTorch; ``torch.optim.SGD(…)`` imports it."""
    code = """if True:
        import sys; import numpy as np; from consilience.models import make
        for optimizer in ("sgd", "adam", "adamw"):
            model = make("mlp", hidden=[4], recipe={"optimizer": optimizer, "gradient_clip": 1.0})
            X = np.zeros((8, 3), np.float32); y = np.eye(2)[np.arange(8) % 2]
            model.fit(X, y, rng=np.random.default_rng(0)); model.predict(X)
            assert model.fitted and not {"torch._dynamo", "sympy"} & set(sys.modules), optimizer
    """
    subprocess.run([sys.executable, "-c", code], check=True)
