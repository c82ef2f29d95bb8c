"""Losses of networks, row by row, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consilience.core.validation.labels import Kind


@dataclass(frozen=True)
class TorchLoss:
    """A loss of a network's outputs for targets.

    Attributes:
        name: name for messages and for comparing losses.
        values: the losses, shape ``(n,)``, from outputs and targets ``(n, n_outputs)``.
        slopes: their gradients at the outputs, from these and targets of many networks, all
            ``(networks, n_outputs, n)``: with classes along the middle, softmax is many times faster.
    """

    name: str
    values: Callable[[Tensor, Tensor], Tensor]
    slopes: Callable[[Tensor, Tensor], Tensor]

    def mean(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """The mean loss of rows, each times its weight.

        Args:
            outputs: shape ``(n, n_outputs)``.
            targets: shape ``(n, n_outputs)``.
            weights: shape ``(n,)``, of mean 1 over all rows; ``None`` for equal weights.

        Returns:
            A scalar.
        """
        if weights is not None:
            return (weights * self.values(outputs, targets)).mean()
        if self is CROSS_ENTROPY:
            return F.cross_entropy(outputs, targets)
        return self.values(outputs, targets).mean()


def loss_for(kind: Kind, asked: str | None) -> TorchLoss:
    """Return the loss of a recipe: cross-entropy or the Brier score for classification, else squared error.

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


CROSS_ENTROPY = TorchLoss("cross-entropy", _entropies, _entropy_slopes)
SQUARED = TorchLoss("squared error", _squares, _square_slopes)
BRIER = TorchLoss("Brier score", _scores, _score_slopes)
