"""Adapters of models beyond scikit-learn, and of model files.

The names that users need are here; each is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from consilience.models.files.trust import ForeignCode as ForeignCode
    from consilience.models.files.trust import trusting as trusting
    from consilience.models.kernel_ridge import KernelRidge as KernelRidge
    from consilience.models.presets import LEARNERS as LEARNERS
    from consilience.models.presets import LearnerEntry as LearnerEntry
    from consilience.models.presets import foreign_code as foreign_code
    from consilience.models.presets import make as make
    from consilience.models.torch.recipe import Augmentation as Augmentation
    from consilience.models.torch.recipe import TorchRecipe as TorchRecipe

_HOMES = {
    "ForeignCode": "files.trust",
    "trusting": "files.trust",
    "KernelRidge": "kernel_ridge",
    "LEARNERS": "presets",
    "LearnerEntry": "presets",
    "foreign_code": "presets",
    "make": "presets",
    "Augmentation": "torch.recipe",
    "TorchRecipe": "torch.recipe",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Import a name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'consilience.models' has no attribute {name!r}")
    return getattr(import_module(f"consilience.models.{_HOMES[name]}"), name)
