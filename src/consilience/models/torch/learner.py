"""torch modules as learners."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from consilience.core.errors import ConsilienceError, InvalidInput, RunFailed
from consilience.core.learners.base import Abilities, GradientCorrection, Learner, Phase, Steps
from consilience.core.learners.targets import usable
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.models.files.store import write_model
from consilience.models.torch.batched.engine import Prediction, Training
from consilience.models.torch.batched.steps import Job
from consilience.models.torch.batching import submit
from consilience.models.torch.device import filters_channels_last
from consilience.models.torch.losses import loss_for
from consilience.models.torch.modules import Factory, ModuleBuilder, forward_in_parts
from consilience.models.torch.parameters import (
    all_finite,
    check_correction,
    copies_of,
    floating_tensors,
    replace,
)
from consilience.models.torch.recipe import TorchRecipe
from consilience.models.torch.training import (
    SPELL,
    held_out_weights,
    train,
    train_to_the_end,
)

_LARGEST_ROW = 2**26
"""Largest input that a file may declare, in numbers, such as 400 × 400 × 400."""


class TorchLearner(Learner):
    """Train a ``torch.nn.Module`` whose ``forward`` gives ``(n, n_outputs)``: logits, or values.

    It trains on unchanged soft labels, minimising for row weights w of mean 1

        (1/n) Σ_i w_i ( − Σ_c p_ic log softmax(z(x_i))_c ),

    or the mean squared error for regression, and continues from its current parameters. All
    randomness (first parameters, order of rows, dropout) comes from the generator given to
    :meth:`fit`; torch's global state is left as it was. On a CPU with a fixed number of threads
    the same generator gives bit-identical results. Fits in several threads at once would share torch's
    one stream: use processes.

    Text rows require a module with a method ``encode``. It turns an array of strings, shape ``(n,)``, into
    whole numbers, shape ``(n, length)``, which are the input of ``forward``.

    Args:
        module_or_factory: a module, which is copied; or a function ``(input_shape, n_outputs) ->
            module``, called before the first fit, whose own draws are then the initial parameters.
        kind: ``"classification"`` by default.
        recipe: the optimizer and its settings.

    Raises:
        InvalidInput: ``module_or_factory`` is not a module or a function.

    Example:
        >>> learner = TorchLearner(nn.Linear(2, 3), recipe=TorchRecipe(first_epochs=1))
        >>> learner.bind(3)
        >>> learner.fit(np.eye(2), np.eye(3)[:2], rng=np.random.default_rng(0), phase="first")
        >>> learner.predict(np.eye(2)).shape
        (2, 3)
    """

    suffix = ".safetensors"

    def __init__(
        self,
        module_or_factory: nn.Module | Factory,
        *,
        kind: Kind | None = None,
        recipe: TorchRecipe | None = None,
    ) -> None:
        self.recipe = recipe or TorchRecipe()
        self.modules = ModuleBuilder(module_or_factory, self.recipe)
        self.name = self.modules.name
        if kind == "regression" and self.recipe.loss == "cross-entropy":
            raise InvalidInput("cross-entropy is a loss for classification", where=self.name)
        self.abilities = Abilities(
            kind or "classification",
            "native",
            logits=kind != "regression",
            incremental=True,
            how="The loss takes soft labels as they are.",
        )
        self._input: tuple[tuple[int, ...], str] = ((), "")
        self._fitted = False
        self.module: nn.Module | None = None
        """The module in training; ``None`` before the first fit."""

    @property
    def factory(self) -> nn.Module | Factory:
        """The module, or the function that makes one, which the learner was given."""
        return self.modules.given

    def check(self, example: Array) -> None:
        example = self.rows(example)
        self._adopt(self.modules.build(example[:2], self.n_outputs, seed=None), example)

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
        self._fit(X, targets, rng, weights, validation, phase, GradientCorrection())

    def fit_corrected(
        self,
        X: Array,
        targets: Array,
        *,
        rng: np.random.Generator,
        correction: GradientCorrection,
        validation: tuple[Array, Array] | None = None,
    ) -> Steps:
        """Train for the recipe's ``epochs`` as :meth:`fit` does, with corrected gradients.

        Args:
            X: inputs, shape ``(n, ...)``.
            targets: shape ``(n, n_outputs)``.
            rng: the only source of randomness.
            correction: added to the gradient of every step.
            validation: held-out ``(X, targets)``, for early stopping.

        Returns:
            The number of steps, and their size.

        Raises:
            InvalidInput: the correction is for other parameters.
        """
        return self._fit(X, targets, rng, None, validation, "private", correction)

    def check_plain_steps(self) -> None:
        """Raise ``InvalidInput`` unless training makes steps, and each is ``w − learning_rate gradient``."""
        self.recipe.check_plain_steps(where=self.name)

    def _fit(
        self,
        X: Array,
        targets: Array,
        rng: np.random.Generator,
        weights: Array | None,
        validation: tuple[Array, Array] | None,
        phase: Phase,
        correction: GradientCorrection,
    ) -> Steps:
        X, targets, weights = usable(
            self.rows(X),
            targets,
            weights,
            n_outputs=self.n_outputs,
            kind=self.abilities.kind,
            where=self.name,
        )
        self.n_outputs = targets.shape[1]
        seeds = rng.integers(2**63 - 1, size=2)
        module = self._new_module(X, seed=int(seeds[0])) if self.module is None else self.module
        check_correction(module, correction, where=self.name)
        recipe, modules = self.recipe, self.modules
        epochs = {
            "first": recipe.first_epochs,
            "private": recipe.epochs,
            "distill": recipe.distill_epochs,
        }[phase]
        judged = np.zeros(0, dtype=np.int64)
        if epochs is None:
            judged, weights = held_out_weights(len(X), weights)
        augment = recipe.augment
        if phase == "distill" and augment is not None and not augment.distillation:
            augment = None
        held_out = None
        if recipe.early_stop is not None and validation is not None and len(validation[0]):
            rows, values = self.rows(validation[0]), modules.values(validation[1], module)
            held_out = modules.inputs(rows, module), values
        memory = X.__array_interface__
        outputs = modules.values(targets, module)
        loss = loss_for(self.abilities.kind, recipe.loss)
        heavy = None if weights is None else modules.values(weights, module)

        def trained(seed: int) -> int:
            job = Job(
                module=module,
                inputs=lambda: modules.inputs(X, module),
                shape=X.shape[1:],
                source=(memory["data"][0], memory["strides"], X.shape, X.dtype.str, outputs.dtype),
                targets=outputs,
                weights=heavy,
                epochs=SPELL if epochs is None else epochs,
                rng=rng,
                recipe=recipe,
                loss=loss,
                correction=correction,
                seed=seed,
                held_out=held_out,
            )

            def by_itself() -> int:
                with modules.random_stream(seed), modules.errors_named():
                    return train(job, augment)

            count: int = _result(Training(job, by_itself, usual=augment is None))
            return count

        if epochs is None:
            module.eval()
            known = modules.values(targets[judged], module).double()
            count = train_to_the_end(
                module,
                lambda: trained(int(rng.integers(2**63 - 1))),
                lambda: float(loss.mean(self._outputs(X[judged]), known)),
            )
        else:
            count = trained(int(seeds[1]))
        self._fitted = True
        if not all_finite(module):
            raise RunFailed(
                "training diverged: parameters are NaN or infinite",
                where=self.name,
                mend="Lower learning_rate, set gradient_clip, or scale the inputs.",
            )
        return Steps(count, recipe.learning_rate)

    def start(self, X: Array, *, rng: np.random.Generator) -> None:
        """Draw first parameters for inputs like ``X``, shape ``(n, ...)``, without training."""
        self._new_module(self.rows(X), seed=int(rng.integers(2**63 - 1)))
        self._fitted = True

    def _new_module(self, example: Array, *, seed: int) -> nn.Module:
        """A new module for rows like ``example``, which is the learner's own from now on."""
        module = self.modules.build(example[:2], self.n_outputs, seed=seed)
        self._adopt(module, example)
        self.module = module
        # Not how long the longest text is: the file may be sent to others.
        texts = example.dtype.kind in "UO"
        self._input = (example.shape[1:], "<U1" if texts else example.dtype.str)
        return self.module

    def _adopt(self, module: nn.Module, example: Array) -> None:
        classifies = self.abilities.kind == "classification"
        self.modules.adopt(module, example, self.n_outputs, classifies=classifies)

    def trained_module(self) -> nn.Module:
        """Give the trained network.

        Raises:
            InvalidInput: it has not been trained.
        """
        if self.module is None:
            raise InvalidInput("the model has not been trained yet", where=self.name)
        return self.module

    def parameters(self) -> dict[str, Array]:
        """Copies of the parameters and of floating-point buffers, such as running means, by name.

        A tensor that several layers share is there once.
        """
        return copies_of(self.trained_module())

    def trained_parameters(self) -> frozenset[str]:
        """Names of the parameters that training changes by gradients; excludes buffers and frozen ones."""
        parts = floating_tensors(self.trained_module())
        return frozenset(name for name, part in parts.items() if part.requires_grad)

    def set_parameters(self, values: Mapping[str, Array]) -> None:
        """Replace the numbers of all :meth:`parameters`.

        Args:
            values: name to array, of the same names and shapes.

        Raises:
            InvalidInput: names or shapes differ.
        """
        replace(self.trained_module(), values, where=self.name)

    def predict(self, X: Array) -> Array:
        outputs = self._outputs(X)
        if self.abilities.kind == "classification":
            # With classes first: on short rows torch's softmax is many times slower.
            outputs = outputs.t().contiguous().softmax(dim=0).t().contiguous()
        return outputs.cpu().numpy()

    def logits(self, X: Array) -> Array:
        return self._outputs(X).cpu().numpy()

    def _outputs(self, X: Array) -> Tensor:
        module, modules, precision = self.trained_module(), self.modules, self.recipe.precision
        X = self.rows(X)

        def by_itself() -> Tensor:
            with torch.inference_mode(), modules.errors_named():
                return forward_in_parts(module, modules.inputs(X, module), precision)

        item = Prediction(module, lambda: modules.inputs(X, module), X.shape, by_itself, precision)
        outputs: Tensor = _result(item)
        return outputs.double()

    @property
    def fitted(self) -> bool:
        return self._fitted

    def save(self, path: Path) -> None:
        from safetensors.torch import save_model

        module = self.trained_module()
        shape, dtype = self._input
        about = {"input_shape": shape, "dtype": dtype, "n_outputs": self.n_outputs}
        metadata = {"consilience": json.dumps(about)}
        write_model(Path(path), lambda part: save_model(module, str(part), metadata))

    def load(self, path: Path) -> None:
        from safetensors import safe_open
        from safetensors.torch import load_model

        modules = self.modules
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
            if modules.preset:
                module = modules.empty_preset(shape, n_outputs, held)
            else:
                example = np.zeros((2, *shape), dtype=about["dtype"])
                module = modules.build(example, n_outputs, seed=None)
            load_model(module, str(path), device=str(modules.device))
            if modules.device.type == "cuda":
                filters_channels_last(module)
        except Exception as error:  # safetensors, JSON and torch fail in their own ways
            what = error.what if isinstance(error, ConsilienceError) else str(error)
            raise RunFailed(
                f"the model file does not hold a {self.name} of ours: {what}", where=str(path)
            ) from error
        self.module, self._input, self._fitted = module.eval(), (shape, about["dtype"]), True


def _result(item: Prediction | Training) -> Any:
    """Return the result of a work item, from the batch scheduler if there is one.

    While a mode of the whole thread such as ``no_grad`` is active, the item is computed at once, because no
    other party's function may run within that mode.
    """
    return submit(item) if torch.is_grad_enabled() else item.run_single()
