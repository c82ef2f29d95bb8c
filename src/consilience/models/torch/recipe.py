"""Training recipes of torch modules: values that a configuration file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from consilience.core.errors import InvalidInput, nearest
from consilience.core.validation.numbers import check_choice, check_flag, check_number

Optimizer = Literal["adam", "adamw", "sgd"]
LossName = Literal["cross-entropy", "mse"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bfloat16"]
Initial = Literal["redraw", "given"]

_CHOICES = {
    "optimizer": get_args(Optimizer),
    "device": get_args(Device),
    "precision": get_args(Precision),
    "initial": get_args(Initial),
    "loss": get_args(LossName),
}
_AUGMENT = "recipe.augment"


@dataclass(frozen=True)
class Augmentation:
    """Random changes to the images of every training batch, never to the inputs of predictions.

    They are computed on the device and drawn from the party's own stream.

    Attributes:
        crop: width in pixels of the border of zeros around an image, before a window of the original size is
            cut out at random (He et al. 2016, section 4.2: 4); 0 for none.
        flip: mirror an image, left to right, with a probability of one half. Not for digits and letters.
        cutout: the side of a square of zeros at a random place, cut off at the edge of the image (DeVries &
            Taylor 2017: 16 for CIFAR-10); 0 for none.
        distillation: change public images too in distillation, although the teacher's labels are
            of the unchanged ones.
    """

    crop: int = 4
    flip: bool = True
    cutout: int = 0
    distillation: bool = False

    def __post_init__(self) -> None:
        for name in ("crop", "cutout"):
            check_number(name, getattr(self, name), at_least=0, whole=True, where=_AUGMENT)
        for name in ("flip", "distillation"):
            check_flag(name, getattr(self, name), where=_AUGMENT)


@dataclass(frozen=True)
class TorchRecipe:
    """The training recipe of a :class:`consilience.models.torch.learner.TorchLearner`.

    Attributes:
        optimizer: ``"adam"``, ``"adamw"`` or ``"sgd"``; made fresh for every fit, so that a
            party's state is its parameters alone and a resumed run is exact.
        learning_rate: step size.
        weight_decay: the optimizer's weight decay.
        momentum: momentum of ``"sgd"``.
        batch_size: rows per step; a last batch of one row joins the batch before it.
        first_epochs: epochs of a party's first fit.
        epochs: epochs of each later fit on private data.
        distill_epochs: epochs of each distillation; by default it continues until the loss to the teacher,
            on a tenth of the rows held out, stops falling (:func:`.training.train_to_the_end`).
        loss: ``"cross-entropy"`` with soft labels, or ``"mse"``; by default by kind. For
            classification ``"mse"`` is the mean squared error of the softmax (Brier).
        device: ``"auto"`` takes a GPU if there is one.
        precision: ``"bfloat16"`` multiplies numbers of 16 bits: faster on hardware with support for it,
            slower elsewhere. Parameters, losses and the optimizer's state stay ``"float32"``.
        early_stop: stop after this many epochs without a lower validation loss, and keep the best
            epoch's parameters; ``None``, or a fit without validation data, runs every epoch.
        gradient_clip: largest norm of the gradient, or ``None``.
        initial: ``"redraw"`` redraws a given module's parameters (``reset_parameters`` of each
            of its parts), so that parties with the same module start apart; ``"given"`` keeps them.
        augment: random changes of images in training, an :class:`Augmentation` or a table of its
            fields; ``None`` for not at all.
    """

    optimizer: Optimizer = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.0
    batch_size: int = 32
    first_epochs: int = 20
    epochs: int = 2
    distill_epochs: int | None = None
    loss: LossName | None = None
    device: Device = "auto"
    precision: Precision = "float32"
    early_stop: int | None = None
    gradient_clip: float | None = None
    initial: Initial = "redraw"
    augment: Augmentation | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if callable(plain := getattr(getattr(self, field.name), "item", None)):
                object.__setattr__(self, field.name, plain())  # numpy's numbers are not JSON's
        for name, known in _CHOICES.items():
            if name != "loss" or self.loss is not None:
                check_choice(name, getattr(self, name), known, where="recipe")
        check_number("learning_rate", self.learning_rate, above=0, where="recipe")
        check_number("gradient_clip", self.gradient_clip, above=0, optional=True, where="recipe")
        check_number(
            "early_stop", self.early_stop, above=0, whole=True, optional=True, where="recipe"
        )
        check_number("batch_size", self.batch_size, above=0, whole=True, where="recipe")
        for name in ("first_epochs", "epochs", "distill_epochs"):
            optional = name == "distill_epochs"
            value = getattr(self, name)
            check_number(name, value, at_least=0, whole=True, optional=optional, where="recipe")
        for name in ("weight_decay", "momentum"):
            check_number(name, getattr(self, name), at_least=0, where="recipe")
        if isinstance(self.augment, Mapping):
            _check_keys(self.augment, Augmentation, _AUGMENT)
            object.__setattr__(self, "augment", Augmentation(**self.augment))
        elif not isinstance(self.augment, Augmentation | None):
            raise InvalidInput(
                f"augment is {self.augment!r}",
                where="recipe",
                mend="Give a table such as { crop = 4, flip = true }.",
            )

    def check_plain_steps(self, *, where: str) -> None:
        """Raise ``InvalidInput`` unless training makes steps, and each is ``w − learning_rate gradient``."""
        mixed = {
            f"optimizer is {self.optimizer!r}": self.optimizer != "sgd",
            f"momentum is {self.momentum:g}": self.momentum > 0,
            f"weight_decay is {self.weight_decay:g}": self.weight_decay > 0,
            "epochs is 0": self.epochs == 0,
        }
        for setting, wrong in mixed.items():
            if wrong:
                raise InvalidInput(
                    f"{setting} in its recipe, where plain gradient steps are needed",
                    where=where,
                    mend='Set optimizer = "sgd" without momentum and weight_decay, and epochs to 1 or more.',
                )

    @classmethod
    def of(cls, given: TorchRecipe | Mapping[str, Any] | None) -> TorchRecipe:
        """Return a recipe as it is, or make one of a table of a configuration file.

        Args:
            given: a recipe, a table of its fields, or ``None`` for the defaults.

        Raises:
            InvalidInput: an unknown key, or a value out of range.

        >>> TorchRecipe.of({"epochs": 3}).epochs
        3
        """
        if given is None:
            return cls()
        if isinstance(given, TorchRecipe):
            return given
        _check_keys(given, cls, "recipe")
        return cls(**given)


def _check_keys(given: Mapping[str, Any], kind: type[Any], where: str) -> None:
    known = [field.name for field in fields(kind)]
    for name in given:
        if name not in known:
            raise InvalidInput(f"unknown key {name!r}", where=where, mend=nearest(name, known))
