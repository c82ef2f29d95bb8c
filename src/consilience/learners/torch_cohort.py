"""Networks of one architecture that train as one: their parameters stacked, a step of all at a time.

Party i's parameters are slice i of stacked tensors. ``torch.func.vmap`` gives the outputs of all in one
forward pass, and as the loss of party i depends on slice i alone, one backward pass gives everyone's
gradient. Each has its own rows, order of rows and number of steps; what comes out is what it would have got
alone, but for rounding, since sums are taken in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from consilience.learners.base import Pull
from consilience.learners.recipe import TorchRecipe
from consilience.learners.torch_optimizer import TorchOptimizer

LAYERS = (
    nn.Sequential, nn.Identity, nn.Flatten, nn.Unflatten, nn.Linear, nn.Conv2d, nn.ZeroPad2d,
    nn.MaxPool2d, nn.AvgPool2d, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.LayerNorm,
)  # fmt: skip
"""What a network that trains with others is made of: layers which do what their kind, ``extra_repr()`` and
parameters say; a layer of one's own says so by an attribute ``says_all = True`` of its class. No dropout,
whose draws are each party's own; no batch norm, which keeps what it has seen."""


@dataclass
class Training:
    """One network's training: a :class:`~consilience.meeting.Work` whose result is its number of steps.

    Attributes:
        module: trained in place.
        inputs: makes the inputs, shape ``(n, …)``.
        source: what the inputs are made of: the same for the same, so that shared rows are held once.
        targets: shape ``(n, n_outputs)``.
        weights: of rows, shape ``(n,)``, or ``None``.
        epochs: how often all rows are gone through.
        rng: draws the order of rows.
        recipe: how.
        loss: outputs and targets, shape ``(n, n_outputs)``, to losses ``(n,)``.
        pull: what is added to gradients.
        by_itself: trains it alone.
        together_too: whether it may be trained with others.
    """

    module: nn.Module
    inputs: Callable[[], Tensor]
    source: Hashable
    targets: Tensor
    weights: Tensor | None
    epochs: int
    rng: np.random.Generator
    recipe: TorchRecipe
    loss: Callable[[Tensor, Tensor], Tensor]
    loss_name: str
    pull: Pull
    by_itself: Callable[[], int]
    together_too: bool

    @property
    def key(self) -> Hashable:
        """All that has to be the same for stacking; ``None`` where it cannot be."""
        shape = architecture(self.module) if self.together_too and self.epochs else None
        if shape is None:
            return None
        pulled = self.pull.strength, tuple(sorted(self.pull.correction or ()))
        rows = self.targets.shape[1], self.targets.dtype, str(self.targets.device)
        return shape, self.recipe, self.loss_name, self.weights is None, rows, pulled

    def alone(self) -> int:
        """Train it."""
        return self.by_itself()

    def together(self, others: Sequence[Training]) -> list[int]:
        """Train it and the others, which have the same key."""
        return _Cohort([self, *others]).trained()


def architecture(module: nn.Module) -> Hashable:
    """What modules have in common that differ in the numbers of their parameters alone.

    ``None`` for modules with other layers than :data:`LAYERS`, with hooks, buffers, or parameters that
    several layers share.
    """
    layers = []
    for name, part in module.named_modules():
        known = type(part) in LAYERS or getattr(type(part), "says_all", False)
        hooked = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks
        if not known or hooked or part._buffers or "forward" in vars(part):
            return None
        layers.append((name, type(part), part.extra_repr()))
    named = list(module.named_parameters(remove_duplicate=False))
    if not named or len({id(part) for _, part in named}) < len(named):
        return None
    shapes = [(name, tuple(p.shape), p.dtype, p.requires_grad) for name, p in named]
    return tuple(layers), tuple(shapes)


class _Cohort:
    """Trainings that go on side by side; who is done leaves the stacks."""

    def __init__(self, works: Sequence[Training]) -> None:
        self.works = works
        self.own = [dict(work.module.named_parameters()) for work in works]
        first = self.own[0]
        self.stacked = {
            name: torch.stack([parts[name].detach() for parts in self.own]).requires_grad_(
                part.requires_grad
            )
            for name, part in first.items()
        }
        self.anchors = {name: part.detach().clone() for name, part in self._trained().items()}
        self.corrections = {
            name: torch.stack(
                [torch.from_numpy(np.array((work.pull.correction or {})[name])) for work in works]
            ).to(first[name])
            for name in works[0].pull.correction or {}
        }
        self.X, self.firsts = _pooled(works)
        self.targets = torch.cat([work.targets for work in works])
        self.weights = None
        if works[0].weights is not None:
            self.weights = torch.cat([work.weights for work in works if work.weights is not None])
        self.target_firsts = _starts([len(work.targets) for work in works])
        self.optimizer = TorchOptimizer(works[0].recipe, list(self._trained().values()))
        module = works[0].module

        def outputs(parameters: dict[str, Tensor], X: Tensor) -> Tensor:
            found: Tensor = functional_call(module, parameters, (X,))
            return found

        self.outputs = vmap(outputs)

    def trained(self) -> list[int]:
        """Train all of them: their numbers of steps."""
        for work in self.works:
            work.module.train()
        steps = [0] * len(self.works)
        at_it = list(range(len(self.works)))  # by their places in the stacks
        orders = [_batches(work) for work in self.works]
        while at_it:
            batches = [next(orders[i], None) for i in at_it]
            if any(batch is None for batch in batches):
                kept = [place for place, batch in enumerate(batches) if batch is not None]
                self._leave(
                    {place: i for place, i in enumerate(at_it) if batches[place] is None}, kept
                )
                at_it = [at_it[place] for place in kept]
            if at_it:
                self._step(at_it, [batch for batch in batches if batch is not None])
            for i in at_it:
                steps[i] += 1
        for work in self.works:
            work.module.eval()
        return steps

    def _trained(self) -> dict[str, Tensor]:
        return {name: part for name, part in self.stacked.items() if part.requires_grad}

    def _step(self, at_it: list[int], batches: list[Tensor]) -> None:
        """One step of everyone who is still at it; their losses are means over their own batches."""
        work = self.works[0]
        rows, share = _aligned(batches, self.targets.dtype)
        rows, share = rows.to(self.X.device), share.to(self.X.device)
        inputs = self.X[rows + self.firsts[at_it, None]]
        own = rows + self.target_firsts[at_it, None]
        self.optimizer.zero_grad()
        outputs = self.outputs(self.stacked, inputs)
        losses = work.loss(outputs.flatten(0, 1), self.targets[own.flatten()]).view(share.shape)
        if self.weights is not None:
            losses = losses * self.weights[own]
        (losses * share).sum().backward()  # type: ignore[no-untyped-call]
        trained = self._trained()
        with torch.no_grad():
            if work.recipe.gradient_clip is not None:
                _clip(list(trained.values()), work.recipe.gradient_clip)
            for name, part in trained.items():
                self._pull(name, part, work.pull.strength)
        self.optimizer.step()

    def _pull(self, name: str, part: Tensor, strength: float) -> None:
        if name not in self.corrections and not strength:
            return
        change = torch.zeros_like(part) if part.grad is None else part.grad  # None: not used
        if name in self.corrections:
            change += self.corrections[name]
        if strength:
            change.add_(part - self.anchors[name], alpha=strength)
        part.grad = change

    def _leave(self, done: Mapping[int, int], kept: list[int]) -> None:
        """Parameters back into the modules of those who are done, by place; stacks of the others alone."""
        with torch.no_grad():
            for place, i in done.items():
                for name, part in self.own[i].items():
                    part.copy_(self.stacked[name][place])
        if not kept:
            return
        remaining = torch.tensor(kept, device=self.X.device)
        before = {name: self.optimizer.state[part] for name, part in self._trained().items()}
        self.stacked = {
            name: part.detach()[remaining].requires_grad_(part.requires_grad)
            for name, part in self.stacked.items()
        }
        self.anchors = {name: part[remaining] for name, part in self.anchors.items()}
        self.corrections = {name: part[remaining] for name, part in self.corrections.items()}
        self.optimizer = TorchOptimizer(self.works[0].recipe, list(self._trained().values()))
        for name, shrunk in self._trained().items():
            self.optimizer.state[shrunk] = {
                key: value[remaining] if isinstance(value, Tensor) and value.ndim else value
                for key, value in before[name].items()
            }


def batches_of(order: Tensor, size: int) -> list[Tensor]:
    """The rows of every step; a last one of a single row joins the one before."""
    batches = list(torch.split(order, size))
    if len(batches) > 1 and size > 1 and len(batches[-1]) == 1:  # batch norm needs two rows
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def _batches(work: Training) -> Iterator[Tensor]:
    for _ in range(work.epochs):
        order = torch.from_numpy(work.rng.permutation(len(work.targets)))
        yield from batches_of(order, work.recipe.batch_size)


def _pooled(works: Sequence[Training]) -> tuple[Tensor, Tensor]:
    """Inputs one after another, those of one source once, and where each training's begin."""
    pool: list[Tensor] = []
    at: dict[Hashable, int] = {}
    for work in works:
        if work.source not in at:
            at[work.source] = sum(map(len, pool))
            pool.append(work.inputs())
    return torch.cat(pool), torch.tensor([at[work.source] for work in works], device=pool[0].device)


def _starts(lengths: list[int]) -> Tensor:
    return torch.tensor(np.cumsum([0, *lengths[:-1]]))


def _aligned(batches: list[Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows ``(p, b)`` of batches of several lengths, and what a row's loss counts: 0 for what fills up."""
    lengths = [len(batch) for batch in batches]
    if len(set(lengths)) == 1:
        rows = torch.stack(batches)
        return rows, torch.full(rows.shape, 1 / lengths[0], dtype=dtype)
    rows = nn.utils.rnn.pad_sequence(batches, batch_first=True)
    share = torch.zeros(rows.shape, dtype=dtype)
    for place, length in enumerate(lengths):
        share[place, :length] = 1 / length
    return rows, share


def _clip(parts: list[Tensor], largest: float) -> None:
    """Every party's gradient scaled down to that norm, as ``clip_grad_norm_`` does for one."""
    gradients = [part.grad for part in parts if part.grad is not None]
    squares = torch.stack([g.flatten(1).square().sum(dim=1) for g in gradients]).sum(dim=0)
    factor = (largest / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
