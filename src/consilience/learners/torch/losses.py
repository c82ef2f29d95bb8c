"""What networks minimise, row by row, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consilience.learners.base import Kind


@dataclass(frozen=True)
class Loss:
    """A loss of outputs for targets, ``(n, n_outputs)`` as torch has them.

    Attributes:
        name: what it is called.
        values: the losses, shape ``(n,)``, from outputs and targets ``(n, n_outputs)``.
        slopes: their gradients at the outputs, from these and targets of many networks, all
            ``(networks, n_outputs, n)``: with classes along the middle, softmax is many times faster.
    """

    name: str
    values: Callable[[Tensor, Tensor], Tensor]
    slopes: Callable[[Tensor, Tensor], Tensor]


def loss_for(kind: Kind, asked: str | None) -> Loss:
    """The loss of a recipe: for classification cross-entropy with soft labels, or the Brier score.

    Args:
        kind: of the model.
        asked: the recipe's ``loss``.
    """
    if kind == "regression":
        return SQUARED
    return BRIER if asked == "mse" else CROSS_ENTROPY


def _entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def _entropy_slopes(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.softmax(outputs, 1).mul_(targets.sum(1, keepdim=True)).sub_(targets)


def _squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean(dim=1)


def _square_slopes(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).mul_(2 / outputs.shape[1])


def _scores(outputs: Tensor, targets: Tensor) -> Tensor:
    return _squares(outputs.softmax(dim=1), targets)


def _score_slopes(outputs: Tensor, targets: Tensor) -> Tensor:
    shares = torch.softmax(outputs, 1)
    slopes = _square_slopes(shares, targets).mul_(shares)
    return slopes.sub_(shares * slopes.sum(1, keepdim=True))


CROSS_ENTROPY = Loss("cross-entropy", _entropies, _entropy_slopes)
SQUARED = Loss("squared error", _squares, _square_slopes)
BRIER = Loss("Brier score", _scores, _score_slopes)
