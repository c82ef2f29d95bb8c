"""Make the weak learner of a boosted sum from a user's model, and list its packages."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from consilience.core.errors import InvalidInput
from consilience.core.learners import as_learner
from consilience.core.learners.base import Learner
from consilience.models.files.transfer import NETWORKS
from consilience.models.files.trust import ForeignCode
from consilience.models.files.vetting import EVERYWHERE
from consilience.models.presets import make

_REGRESS = (
    "They are fitted to gradients, which are numbers: take a regressor, such as 'tree-regressor'."
)


def weak_learner(given: Any) -> Learner:
    """Make the untrained weak learner of a sum.

    Args:
        given: a model that regresses, or a table ``{"name": …}`` with parameters, as in a configuration.

    Raises:
        InvalidInput: it does not regress, or needs held-out rows.
        ForeignCode: its name is one that a configuration may not use.
    """
    if isinstance(given, Mapping):
        table = {str(key): value for key, value in given.items()}
        if "name" not in table:
            raise InvalidInput(
                "the table of the weak learner has no name",
                where="weak",
                mend='Such as weak = { name = "tree-regressor", max_depth = 3 }.',
            )
        if table.get("kind", "regression") != "regression":
            raise InvalidInput(f"kind is {table['kind']!r}", where="weak", mend=_REGRESS)
    try:
        if isinstance(given, Mapping):
            learner = make(**{**table, "kind": "regression"})
        else:
            learner = copy.deepcopy(as_learner(given, kind="regression"))
    except ForeignCode as error:
        raise error.within("weak") from error
    except InvalidInput as error:
        raise InvalidInput(
            f"the weak learner cannot be used: {error.what}",
            where="weak",
            mend=error.mend or _REGRESS,
        ) from error
    if learner.abilities.validation:
        raise InvalidInput(
            "it chooses by held-out rows, and a functional gradient has none",
            where="weak",
            mend='Fix what it chooses, such as KernelRidge(1e-3) or KernelRidge("gcv").',
        )
    return learner


def packages_of(learner: Learner) -> tuple[str, ...]:
    """List the packages which others have to trust to build a weak learner.

    These are the packages of an estimator and its parts. For a network, they are the package and the module
    of its factory.
    """
    model = getattr(learner, "model", None)
    if model is not None:
        given = model.get_params(deep=True).values() if hasattr(model, "get_params") else ()
        named = [type(model)]
        named += [type(part) if hasattr(part, "get_params") else part for part in given]
        found = [
            str(getattr(part, "__module__", "")).partition(".")[0]
            for part in named
            if callable(part)
        ]
        return tuple(name for name in dict.fromkeys(found) if name and name not in EVERYWHERE)
    factory = getattr(learner, "factory", None)
    module = str(getattr(getattr(factory, "func", factory), "__module__", ""))
    package = module.partition(".")[0]
    return (package,) if module == NETWORKS else tuple(dict.fromkeys((package, module)))
