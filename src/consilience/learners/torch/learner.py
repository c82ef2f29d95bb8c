"""torch modules as learners."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consilience.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.learners.base import Abilities, Kind, Learner, Phase, Pull, Steps
from consilience.learners.batching import bring
from consilience.learners.files.store import write_model
from consilience.learners.targets import usable
from consilience.learners.torch.batched.engine import Prediction, Training
from consilience.learners.torch.batched.steps import PREDICT_ROWS, Job, batches_of
from consilience.learners.torch.device import (
    ROWS,
    device_of,
    filters_channels_last,
    forward,
    given_room,
)
from consilience.learners.torch.images import augmented, check_augmentation
from consilience.learners.torch.losses import CROSS_ENTROPY, Loss, loss_for
from consilience.learners.torch.optimizer import TorchOptimizer
from consilience.learners.torch.recipe import Augmentation, Precision, TorchRecipe
from consilience.validation.arrays import Array

Factory = Callable[[tuple[int, ...], int], nn.Module]
"""Makes a module for inputs of a shape (without the row axis) and a number of outputs."""

_LARGEST_ROW = 2**26
"""Numbers in an input, such as 400 × 400 × 400: more than this a file may not ask room for."""

_PRESETS = "consilience.learners.torch.networks"


class TorchLearner(Learner):
    """A ``torch.nn.Module`` whose ``forward`` gives ``(n, n_outputs)``: logits, or values.

    It trains on soft labels as they are, minimising for row weights w of mean 1

        (1/n) Σ_i w_i ( − Σ_c p_ic log softmax(z(x_i))_c ),

    or the mean squared error for regression, and continues from its current parameters. All
    randomness (first parameters, order of rows, dropout) comes from the generator given to
    :meth:`fit`; torch's global state is left as it was. On a CPU with a fixed number of threads
    the same generator gives the same bits. Fits in several threads at once would share torch's
    one stream: use processes.

    Rows that are texts go to a module that has a method ``encode``: it turns an array of strings, shape
    ``(n,)``, into whole numbers, shape ``(n, length)``, which ``forward`` is then given.

    Args:
        module_or_factory: a module, which is copied; or a function ``(input_shape, n_outputs) ->
            module``, called before the first fit, whose own draws are then the initial parameters.
        kind: ``"classification"`` by default.
        recipe: how to train.

    Raises:
        InvalidInput: neither a module nor a function.
    """

    suffix = ".safetensors"

    def __init__(
        self,
        module_or_factory: nn.Module | Factory,
        *,
        kind: Kind | None = None,
        recipe: TorchRecipe | None = None,
    ) -> None:
        given = module_or_factory
        self.name = type(given).__name__ if isinstance(given, nn.Module) else _name_of(given)
        if isinstance(given, type) or not callable(given):
            raise InvalidInput(
                "expected a module or a function (input_shape, n_outputs) -> module",
                where=self.name,
                mend="Give an object, not a class." if isinstance(given, type) else None,
            )
        self.recipe = recipe or TorchRecipe()
        if kind == "regression" and self.recipe.loss == "cross-entropy":
            raise InvalidInput("cross-entropy is a loss for classification", where=self.name)
        self._device = device_of(self.recipe, where=self.name)
        self.abilities = Abilities(
            kind or "classification",
            "native",
            logits=kind != "regression",
            incremental=True,
            how="The loss takes soft labels as they are.",
        )
        self._given = copy.deepcopy(given) if isinstance(given, nn.Module) else given
        self._input: tuple[tuple[int, ...], str] = ((), "")
        self._fitted = False
        self.module: nn.Module | None = None
        """The module in training; ``None`` before the first fit."""

    def check(self, example: Array) -> None:
        self._build(np.asarray(example)[:2], seed=None)

    def fit(
        self,
        X: Array,
        targets: Array,
        *,
        rng: np.random.Generator,
        weights: Array | None = None,
        validation: tuple[Array, Array] | None = None,
        phase: Phase = "private",
    ) -> None:
        self._fit(X, targets, rng, weights, validation, phase, Pull())

    def fit_pulled(
        self,
        X: Array,
        targets: Array,
        *,
        rng: np.random.Generator,
        pull: Pull,
        validation: tuple[Array, Array] | None = None,
    ) -> Steps:
        """Train for the recipe's ``epochs`` as :meth:`fit` does, with gradients changed as ``pull`` says.

        Args:
            X: inputs, shape ``(n, ...)``.
            targets: shape ``(n, n_outputs)``.
            rng: the only source of randomness.
            pull: what is added to the gradient.
            validation: held-out ``(X, targets)``, for early stopping.

        Returns:
            How many steps were made, and of which size.

        Raises:
            InvalidInput: the pull is of other parameters.
        """
        return self._fit(X, targets, rng, None, validation, "private", pull)

    def check_plain_steps(self) -> None:
        """Raise ``InvalidInput`` unless training makes steps, and each is ``w − learning_rate gradient``."""
        recipe = self.recipe
        mixed = {
            f"optimizer is {recipe.optimizer!r}": recipe.optimizer != "sgd",
            f"momentum is {recipe.momentum:g}": recipe.momentum > 0,
            f"weight_decay is {recipe.weight_decay:g}": recipe.weight_decay > 0,
            "epochs is 0": recipe.epochs == 0,
        }
        for said, wrong in mixed.items():
            if wrong:
                raise InvalidInput(
                    f"{said} in its recipe, where plain gradient steps are needed",
                    where=self.name,
                    mend='Set optimizer = "sgd" without momentum and weight_decay, and epochs to 1 or more.',
                )

    def _fit(
        self,
        X: Array,
        targets: Array,
        rng: np.random.Generator,
        weights: Array | None,
        validation: tuple[Array, Array] | None,
        phase: Phase,
        pull: Pull,
    ) -> Steps:
        X = np.asarray(X)
        X, targets, weights = usable(
            X,
            targets,
            weights,
            n_outputs=self.n_outputs,
            kind=self.abilities.kind,
            where=self.name,
        )
        self.n_outputs = targets.shape[1]
        seeds = rng.integers(2**63 - 1, size=2)
        module = self._made(X[:2], seed=int(seeds[0])) if self.module is None else self.module
        if pull.correction:
            self._check_pull(pull)
        recipe = self.recipe
        epochs = {
            "first": recipe.first_epochs,
            "private": recipe.epochs,
            "distill": recipe.distill_epochs,
        }[phase]
        outputs = self._numbers(targets, module)
        rows = None if weights is None else self._numbers(weights, module)
        held_out = None
        if recipe.early_stop is not None and validation is not None and len(validation[0]):
            held_out = self._tensor(validation[0], module), self._numbers(validation[1], module)
        augment = recipe.augment
        if phase == "distill" and augment is not None and not augment.distillation:
            augment = None

        def alone() -> int:
            with self._stream(int(seeds[1])), self._blamed():
                inputs = self._tensor(X, module)
                return self._train(
                    module, inputs, outputs, rows, epochs, rng, held_out, pull, augment
                )

        memory = X.__array_interface__
        job = Job(
            module=module,
            inputs=lambda: self._tensor(X, module),
            shape=X.shape[1:],
            source=(memory["data"][0], memory["strides"], X.shape, X.dtype.str, outputs.dtype),
            targets=outputs,
            weights=rows,
            epochs=epochs,
            rng=rng,
            recipe=recipe,
            loss=self._minimised,
            pull=pull,
        )
        count = _brought(Training(job, alone, usual=held_out is None and augment is None))
        self._fitted = True
        if not all(map(_finite, module.parameters())):
            raise RunFailed(
                "training diverged: parameters are NaN or infinite",
                where=self.name,
                mend="Lower learning_rate, set gradient_clip, or scale the inputs.",
            )
        return Steps(count, recipe.learning_rate)

    def start(self, X: Array, *, rng: np.random.Generator) -> None:
        """Draw first parameters for inputs like ``X``, shape ``(n, ...)``, without training."""
        self._made(np.asarray(X)[:2], seed=int(rng.integers(2**63 - 1)))
        self._fitted = True

    def parameters(self) -> dict[str, Array]:
        """Copies of the parameters and of buffers that hold fractions, such as running means, by name.

        What several layers share is there once.
        """
        found = {}
        for name, part in self._parts().items():
            wide = part if part.dtype == torch.float64 else part.float()
            found[name] = np.array(wide.detach().cpu().numpy(), order="C")
        return found

    def trained_parameters(self) -> frozenset[str]:
        """Names of those that training changes by gradients: no buffers, nothing frozen."""
        return frozenset(name for name, part in self._parts().items() if part.requires_grad)

    def set_parameters(self, values: Mapping[str, Array]) -> None:
        """Put numbers in place of what :meth:`parameters` gives.

        Raises:
            InvalidInput: names or shapes are others.
        """
        own = self._parts()
        here = {name: tuple(part.shape) for name, part in own.items()}
        given = {name: np.shape(part) for name, part in values.items()}
        if differ := sorted(dict(here.items() ^ given.items())):
            name = differ[0]
            raise InvalidInput(
                f"parameter {name!r} has shape {given.get(name)}, here {here.get(name)}",
                where=self.name,
            )
        with torch.no_grad():
            for name, part in own.items():
                part.copy_(torch.from_numpy(np.array(values[name])))

    def _parts(self) -> dict[str, Tensor]:
        """What :meth:`parameters` copies, itself."""
        if self.module is None:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        first: dict[int, str] = {}
        found = {}
        for name, part in self.module.state_dict(keep_vars=True).items():
            if not isinstance(part, Tensor) or not part.is_floating_point():
                continue
            if first.setdefault(id(part), name) == name:
                found[name] = part
        return found

    def _train(
        self,
        module: nn.Module,
        X: Tensor,
        targets: Tensor,
        weights: Tensor | None,
        epochs: int,
        rng: np.random.Generator,
        held_out: tuple[Tensor, Tensor] | None,
        pull: Pull,
        augment: Augmentation | None,
    ) -> int:
        """Returns the number of steps that led to the parameters that are kept."""
        clip, patience = self.recipe.gradient_clip, self.recipe.early_stop
        parameters = [part for part in module.parameters() if part.requires_grad]
        optimizer = TorchOptimizer(self.recipe, parameters)
        change = self._change(pull)
        lowest, since, best = float("inf"), 0, None
        steps, kept = 0, 0
        for _ in range(epochs):
            module.train()
            order = torch.from_numpy(rng.permutation(len(X))).to(X.device)
            for rows in batches_of(order, self.recipe.batch_size):
                optimizer.zero_grad()
                batch = X[rows] if augment is None else augmented(X[rows], augment, rng)
                outputs = forward(module, batch, self.recipe.precision)
                loss = self._loss(
                    outputs, targets[rows], None if weights is None else weights[rows]
                )
                loss.backward()  # type: ignore[no-untyped-call]
                if clip is not None:
                    nn.utils.clip_grad_norm_(parameters, clip)
                if change is not None:
                    change()
                optimizer.step()
                steps += 1
            if held_out is None or patience is None:
                continue
            with torch.inference_mode():
                outputs = _forward(module, held_out[0], self.recipe.precision)
                now = float(self._loss(outputs, held_out[1], None))
            since += 1
            if now < lowest:
                lowest, since, best = now, 0, copy.deepcopy(module.state_dict())
                kept = steps
            if since >= patience:
                break
        if best is not None:
            module.load_state_dict(best)
        module.eval()
        return steps if best is None else kept

    def _check_pull(self, pull: Pull) -> None:
        parts = {name: part for name, part in self._parts().items() if part.requires_grad}
        for name, values in (pull.correction or {}).items():
            if name not in parts or np.shape(values) != tuple(parts[name].shape):
                raise InvalidInput(
                    f"a correction of shape {np.shape(values)} for parameter {name!r}, here "
                    f"{tuple(parts[name].shape) if name in parts else None}",
                    where=self.name,
                )

    def _change(self, pull: Pull) -> Callable[[], None] | None:
        """What adds a pull, from where the parameters are now, to their gradients; ``None`` for no pull."""
        given = pull.correction or {}
        if not given and pull.strength == 0:
            return None
        parts = {name: part for name, part in self._parts().items() if part.requires_grad}
        pulled = [
            (
                part,
                part.detach().clone(),
                torch.from_numpy(np.array(given[name])).to(part) if name in given else None,
            )
            for name, part in parts.items()
        ]

        def change() -> None:
            with torch.no_grad():
                for part, anchor, correction in pulled:
                    if part.grad is None:  # not used by this batch
                        part.grad = torch.zeros_like(part)
                    if correction is not None:
                        part.grad += correction
                    if pull.strength:
                        part.grad.add_(part - anchor, alpha=pull.strength)

        return change

    def _loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        losses = self._minimised
        if weights is not None:
            return (weights * losses.values(outputs, targets)).mean()
        if losses is CROSS_ENTROPY:
            return F.cross_entropy(outputs, targets)
        return losses.values(outputs, targets).mean()

    @property
    def _minimised(self) -> Loss:
        return loss_for(self.abilities.kind, self.recipe.loss)

    def predict(self, X: Array) -> Array:
        outputs = self._outputs(X)
        if self.abilities.kind == "classification":
            # With classes first: on short rows torch's softmax is many times slower.
            outputs = outputs.t().contiguous().softmax(dim=0).t().contiguous()
        return outputs.cpu().numpy()

    def logits(self, X: Array) -> Array:
        return self._outputs(X).cpu().numpy()

    def _outputs(self, X: Array) -> Tensor:
        if self.module is None:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        module, X, precision = self.module, np.asarray(X), self.recipe.precision

        def alone() -> Tensor:
            with torch.inference_mode(), self._blamed():
                return _forward(module, self._tensor(X, module), precision)

        outputs: Tensor = _brought(
            Prediction(module, lambda: self._tensor(X, module), X.shape, alone, precision)
        )
        return outputs.double()

    @property
    def fitted(self) -> bool:
        return self._fitted

    def save(self, path: Path) -> None:
        from safetensors.torch import save_model

        module = self.module
        if module is None:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        shape, dtype = self._input
        about = {"input_shape": shape, "dtype": dtype, "n_outputs": self.n_outputs}
        metadata = {"consilience": json.dumps(about)}

        write_model(Path(path), lambda part: save_model(module, str(part), metadata))

    def load(self, path: Path) -> None:
        from safetensors import safe_open
        from safetensors.torch import load_model

        try:
            with safe_open(str(path), framework="pt") as file:
                about = json.loads((file.metadata() or {})["consilience"])
                held = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            shape, n_outputs = tuple(map(int, about["input_shape"])), int(about["n_outputs"])
            if math.prod(shape) > _LARGEST_ROW:
                raise RunFailed(f"it takes inputs of shape {shape}")
            if self.n_outputs and n_outputs != self.n_outputs:
                raise RunFailed(f"it has {n_outputs} outputs, expected {self.n_outputs}")
            self.n_outputs = n_outputs
            if self._preset:
                module = self._laid_out(shape, held)
            else:
                module = self._build(np.zeros((2, *shape), dtype=about["dtype"]), seed=None)
            load_model(module, str(path), device=str(self._device))
            if self._device.type == "cuda":
                filters_channels_last(module)
        except Exception as error:  # safetensors, JSON and torch fail in their own ways
            what = error.what if isinstance(error, ConsilienceError) else str(error)
            raise RunFailed(
                f"the model file does not hold a {self.name} of ours: {what}", where=str(path)
            ) from error
        self.module, self._input, self._fitted = module.eval(), (shape, about["dtype"]), True

    def _made(self, example: Array, *, seed: int) -> nn.Module:
        self.module = self._build(example, seed=seed)
        # Not how long the longest text is: the file may be sent to others.
        texts = example.dtype.kind in "UO"
        self._input = (example.shape[1:], "<U1" if texts else example.dtype.str)
        return self.module

    def _laid_out(self, shape: tuple[int, ...], held: Mapping[str, tuple[int, ...]]) -> nn.Module:
        """A preset's module to load tensors of these shapes into.

        Few bytes can declare a huge network: there is no memory for it unless its numbers are there.
        """
        with self._blamed():
            module = self._outline(shape)
        own = {name: tuple(part.shape) for name, part in module.state_dict().items()}
        if differ := sorted(dict(own.items() ^ held.items())):
            name = differ[0]
            raise RunFailed(
                f"parameter {name!r} has shape {held.get(name)}, by its description {own.get(name)}"
            )
        return given_room(module, self._device)

    def _outline(self, shape: tuple[int, ...]) -> nn.Module:
        """A preset's module without its numbers."""
        with torch.device("meta"):
            return self._given(shape, self.n_outputs)

    @property
    def _preset(self) -> bool:
        """Whether the module is one of ours, in whose parameters nothing is but what is drawn."""
        made_by = getattr(self._given, "func", self._given)
        return getattr(made_by, "__module__", None) == _PRESETS

    def _build(self, example: Array, *, seed: int | None) -> nn.Module:
        """A module of its own, its parameters drawn from ``seed``, that fits ``example``.

        Without a seed their numbers do not matter: drawing them is most of what a large one costs.
        """
        if self.recipe.augment is not None:
            check_augmentation(self.recipe.augment, example.shape[1:], self.name)
        with self._stream(seed or 0):
            if isinstance(self._given, nn.Module):
                module = copy.deepcopy(self._given)
            elif seed is None and self._preset:
                module = given_room(self._outline(example.shape[1:]), self._device)
            else:
                module = self._given(example.shape[1:], self.n_outputs)
            module = module.to(self._device)
            # Lazy layers take their widths here; parameters made in inference mode cannot train.
            with torch.no_grad(), self._blamed():
                outputs = _forward(module, self._tensor(example, module), self.recipe.precision)
            redrawn = isinstance(self._given, nn.Module) and self.recipe.initial == "redraw"
            if seed is not None and redrawn:
                _redraw(module)
            if self._device.type == "cuda":
                filters_channels_last(module)
        if tuple(outputs.shape) != (len(example), self.n_outputs):
            raise InvalidInput(
                f"the module turned inputs of shape {example.shape} into {tuple(outputs.shape)}, "
                f"expected {(len(example), self.n_outputs)}",
                where=self.name,
                mend=f"Its last layer needs {self.n_outputs} outputs.",
            )
        other = next((p.dtype for p in module.parameters() if p.dtype != torch.float32), None)
        if other is not None and self.recipe.precision == "bfloat16":
            raise InvalidInput(
                f'precision is "bfloat16", which is for parameters of float32, and here is {other}',
                where=self.name,
                mend="Give module.float(), or leave precision out of the recipe.",
            )
        return module

    def _tensor(self, X: Array, module: nn.Module) -> Tensor:
        X = np.asarray(X)
        encode = getattr(module, "encode", None)
        if X.dtype.kind in "UO" and callable(encode):
            with self._blamed():
                return torch.from_numpy(np.array(encode(X), dtype=np.int64)).to(self._device)
        if X.dtype.kind not in "biuf":
            raise InvalidInput(
                f"the inputs are of type {X.dtype}, and a module takes numbers",
                where=self.name,
                mend="For texts take 'text-embedding' or 'transformer', or a module with a method encode.",
            )
        if X.dtype.kind in "iu" and any(
            isinstance(part, (nn.Embedding, nn.EmbeddingBag)) for part in module.modules()
        ):
            return ROWS.moved(X, torch.int64, self._device)
        return ROWS.moved(X, _dtype(module), self._device)

    def _numbers(self, values: Array, module: nn.Module) -> Tensor:
        dtype = _dtype(module)
        wide = np.float64 if dtype == torch.float64 else np.float32
        return torch.from_numpy(np.array(values, dtype=wide)).to(self._device, dtype)

    @contextmanager
    def _stream(self, seed: int) -> Iterator[None]:
        """torch's random stream started at ``seed``, and put back afterwards."""
        gpu = self._device.type == "cuda"
        with torch.random.fork_rng(devices=[torch.cuda.current_device()] if gpu else []):
            torch.default_generator.manual_seed(seed)
            if gpu:
                torch.cuda.manual_seed(seed)
            yield

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Turn what a module raises into one sentence that names it."""
        try:
            yield
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if isinstance(error, (ConsilienceError, torch.OutOfMemoryError)):
                raise
            raise InvalidInput(
                f"the module cannot use these inputs: {str(error).partition(chr(10))[0]}",
                where=self.name,
            ) from error


def _name_of(given: object) -> str:
    made_by = given.func if isinstance(given, partial) else given
    return str(getattr(made_by, "__name__", type(made_by).__name__)).lstrip("_")


def _dtype(module: nn.Module) -> torch.dtype:
    return next((part.dtype for part in module.parameters()), torch.float32)


def _redraw(module: nn.Module) -> None:
    # Children first: a parent that initialises its children's parameters has the last word.
    for part in reversed(list(module.modules())):
        reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
        if callable(reset):
            reset()


def _brought(work: Prediction | Training) -> Any:
    """Its result; within ``no_grad`` and the like, which are the whole thread's, nobody else goes on."""
    return bring(work) if torch.is_grad_enabled() else work.alone()


def _finite(part: Tensor) -> bool:
    return all(math.isfinite(end) for end in torch.aminmax(part.detach())) if part.numel() else True


def _forward(module: nn.Module, X: Tensor, precision: Precision) -> Tensor:
    module.eval()
    return torch.cat([forward(module, rows, precision) for rows in torch.split(X, PREDICT_ROWS)])
