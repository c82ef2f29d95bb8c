"""How a torch module is trained: a value that a configuration file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from consilience.errors import InvalidInput, nearest

Optimizer = Literal["adam", "adamw", "sgd"]
Loss = Literal["cross-entropy", "mse"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bfloat16"]
Initial = Literal["redraw", "given"]


@dataclass(frozen=True)
class Augmentation:
    """Random changes to the images of every batch that a network is trained on, never to what it predicts.

    They are made on the device, drawn from the party's own stream.

    Attributes:
        crop: how many pixels of zeros are put around an image, before a window of its own size is cut out
            at random (He et al. 2016, section 4.2: 4); 0 for none.
        flip: whether it is mirrored, left to right, with a chance of one half. Not for digits and letters.
        cutout: the side of a square of zeros at a random place, cut off where it leaves the image (DeVries &
            Taylor 2017: 16 for CIFAR-10); 0 for none.
        distillation: whether public images are changed too in distillation, where the teacher's labels are
            of the unchanged ones.
    """

    crop: int = 4
    flip: bool = True
    cutout: int = 0
    distillation: bool = False

    def __post_init__(self) -> None:
        for name in ("crop", "cutout"):
            _number(name, getattr(self, name), least=0, whole=True, where="recipe.augment")
        for name in ("flip", "distillation"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(
                    f"{name} is {getattr(self, name)!r}",
                    where="recipe.augment",
                    mend="Give true or false.",
                )


@dataclass(frozen=True)
class TorchRecipe:
    """The training recipe of a :class:`consilience.learners.torch.learner.TorchLearner`.

    Attributes:
        optimizer: ``"adam"``, ``"adamw"`` or ``"sgd"``; made fresh for every fit, so that a
            party's state is its parameters alone and a resumed run is exact.
        learning_rate: step size.
        weight_decay: the optimizer's weight decay.
        momentum: of ``"sgd"``.
        batch_size: rows per step; a last batch of one row joins the batch before it.
        first_epochs: epochs of a party's first fit.
        epochs: epochs of each later fit on private data.
        distill_epochs: epochs of each distillation.
        loss: ``"cross-entropy"`` with soft labels, or ``"mse"``; by default by kind. For
            classification ``"mse"`` is the mean squared error of the softmax (Brier).
        device: ``"auto"`` takes a GPU where there is one.
        precision: ``"bfloat16"`` multiplies numbers of 16 bits: faster where the hardware does so, slower
            elsewhere. Parameters, losses and the optimizer's state stay ``"float32"``.
        early_stop: stop after this many epochs without a lower validation loss, and keep the best
            epoch's parameters; ``None``, or a fit without validation data, runs every epoch.
        gradient_clip: largest norm of the gradient, or ``None``.
        initial: ``"redraw"`` draws a given module's parameters anew (``reset_parameters`` of each
            of its parts), so that parties sharing one module start apart; ``"given"`` keeps them.
        augment: how images are changed at random in training, an :class:`Augmentation` or a table of its
            fields; ``None`` for not at all.
    """

    optimizer: Optimizer = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.0
    batch_size: int = 32
    first_epochs: int = 20
    epochs: int = 2
    distill_epochs: int = 2
    loss: Loss | None = None
    device: Device = "auto"
    precision: Precision = "float32"
    early_stop: int | None = None
    gradient_clip: float | None = None
    initial: Initial = "redraw"
    augment: Augmentation | None = None

    def __post_init__(self) -> None:
        _one_of("optimizer", self.optimizer, get_args(Optimizer))
        _one_of("device", self.device, get_args(Device))
        _one_of("precision", self.precision, get_args(Precision))
        _one_of("initial", self.initial, get_args(Initial))
        if self.loss is not None:
            _one_of("loss", self.loss, get_args(Loss))
        for name in ("learning_rate", "gradient_clip"):
            _number(name, getattr(self, name), above=0.0, optional=name == "gradient_clip")
        for name in ("weight_decay", "momentum"):
            _number(name, getattr(self, name), least=0.0)
        for name in ("first_epochs", "epochs", "distill_epochs"):
            _number(name, getattr(self, name), least=0, whole=True)
        _number("batch_size", self.batch_size, least=1, whole=True)
        _number("early_stop", self.early_stop, least=1, whole=True, optional=True)
        if isinstance(self.augment, Mapping):
            _known(self.augment, Augmentation, "recipe.augment")
            object.__setattr__(self, "augment", Augmentation(**self.augment))
        elif not isinstance(self.augment, Augmentation | None):
            raise InvalidInput(
                f"augment is {self.augment!r}",
                where="recipe",
                mend="Give a table such as { crop = 4, flip = true }.",
            )

    @classmethod
    def of(cls, given: TorchRecipe | Mapping[str, Any] | None) -> TorchRecipe:
        """The recipe itself, or the one that a table of a configuration file describes.

        >>> TorchRecipe.of({"epochs": 3}).epochs
        3
        """
        if given is None:
            return cls()
        if isinstance(given, TorchRecipe):
            return given
        _known(given, cls, "recipe")
        return cls(**given)


def _known(given: Mapping[str, Any], kind: type[Any], where: str) -> None:
    known = [field.name for field in fields(kind)]
    for name in given:
        if name not in known:
            raise InvalidInput(f"unknown key {name!r}", where=where, mend=nearest(name, known))


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInput(
            f"{name} is {value!r}", where="recipe", mend=f"Known: {', '.join(known)}."
        )


def _number(
    name: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    whole: bool = False,
    optional: bool = False,
    where: str = "recipe",
) -> None:
    if optional and value is None:
        return
    kinds: tuple[type, ...] = (int,) if whole else (int, float)
    if (
        isinstance(value, kinds)
        and not isinstance(value, bool)
        and (least is None or value >= least)  # type: ignore[operator]
        and (above is None or value > above)  # type: ignore[operator]
        and value < float("inf")  # type: ignore[operator]
    ):
        return
    bound = f"at least {least}" if above is None else f"above {above}"
    kind = "a whole number" if whole else "a number"
    raise InvalidInput(f"{name} is {value!r}, expected {kind} {bound}", where=where)
