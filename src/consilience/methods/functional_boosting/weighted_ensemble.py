"""A weighted sum of trained models as one model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.learners import as_learner
from consilience.core.learners.base import Learner
from consilience.core.validation.arrays import Array
from consilience.methods.functional_boosting.losses import on_simplex
from consilience.models.files.store import write_model
from consilience.models.files.transfer import TRUSTED, pack, unpack

BATCH = 4096
"""Rows predicted at a time."""

_BUILT: WeakValueDictionary[tuple[object, ...], Learner] = WeakValueDictionary()
"""Cache of the built models of this process's ensembles, so that the same bytes are built only once."""


class Packed(Protocol):
    """A packed model in a message, such as a :class:`~consilience.core.messages.replies.SharedModel`."""

    @property
    def about(self) -> str:
        """Description of the model, as JSON."""

    @property
    def data(self) -> Array:
        """Bytes of the model, shape ``(n_bytes,)``."""


class WeightedEnsemble:
    """Immutable weighted sum of models, ``f(x) = Σ_j w_j h_j(x)``.

    Methods that change the sum return a new ensemble. Packed models are built at their first prediction.

    Args:
        models: h_j, packed models or trained learners.
        weights: w_j, shape ``(n_models,)``; any finite numbers.
        trusted: packages with accepted models.

    Raises:
        InvalidInput: there are no models, or weights and models do not match in number, or a weight is NaN or
            infinite.

    Example:
        >>> from consilience.models.presets import make
        >>> X = np.arange(4.0)[:, None]
        >>> line = make("ridge", alpha=1e-9)
        >>> line.fit(X, 2 * X, rng=np.random.default_rng(0))
        >>> WeightedEnsemble([line, line], [1.0, -0.5]).predict([[3.0]]).round(6).tolist()
        [[3.0]]
    """

    def __init__(
        self,
        models: Sequence[Learner | Packed],
        weights: ArrayLike,
        *,
        trusted: Sequence[str] = TRUSTED,
    ) -> None:
        self.models = tuple(models)
        self.weights: Array = np.array(weights, dtype=np.float64)
        self.weights.flags.writeable = False
        self.trusted = tuple(trusted)
        if not self.models:
            raise InvalidInput("there are no models", where="ensemble")
        if self.weights.shape != (len(self.models),) or not np.isfinite(self.weights).all():
            raise InvalidInput(
                f"{len(self.models)} models with weights {self.weights.tolist()}",
                where="ensemble",
                mend="Give one finite weight for each.",
            )
        self._built: dict[int, Learner] = {}

    def __len__(self) -> int:
        """Number of models."""
        return len(self.models)

    def __deepcopy__(self, memo: Any) -> WeightedEnsemble:
        return self  # it never changes, nor do its models

    def predict(self, X: Any, *, batch: int = BATCH) -> Array:
        """Compute the sum at ``X``, shape ``(n, n_outputs)``; for classes, the largest column is the answer.

        Args:
            X: inputs, shape ``(n, ...)``.
            batch: rows at a time.

        Raises:
            KnowledgeRefused: a model is not trusted or damaged, or answers another shape or no numbers.
        """
        *_, total = self.partial_sums(X, batch=batch)
        return total

    def partial_sums(self, X: Any, *, batch: int = BATCH) -> Iterator[Array]:
        """Yield the sums of the first 1, 2, … models, as :meth:`predict` gives them."""
        X = np.asarray(X)
        total: Array | None = None
        for i, weight in enumerate(self.weights):
            learner = self.learner(i)
            parts = [learner.predict(X[at : at + batch]) for at in range(0, max(len(X), 1), batch)]
            outputs = np.concatenate(parts)
            if (total is not None and outputs.shape != total.shape) or len(outputs) != len(X):
                expected = X.shape[:1] if total is None else total.shape
                raise KnowledgeRefused(
                    f"a model that answers {outputs.shape}, expected {expected}", where="ensemble"
                )
            if not np.isfinite(outputs).all():
                raise KnowledgeRefused("a model that answers NaN or infinite", where="ensemble")
            total = weight * outputs if total is None else total + weight * outputs
            yield total

    def learner(self, i: int) -> Learner:
        """Build the i-th model; copy it before you train it, as other sums may hold it too.

        Raises:
            KnowledgeRefused: it is not trusted, or damaged.
        """
        model = self.models[i]
        if isinstance(model, Learner):
            return model
        if i not in self._built:
            digest = hashlib.sha256(np.asarray(model.data).tobytes()).digest()
            key = (model.about, digest, self.trusted)
            found = _BUILT.get(key)
            if found is None:
                found = _BUILT[key] = unpack(model.about, model.data, trusted=self.trusted)
            self._built[i] = found
        return self._built[i]

    def scaled(self, factor: float) -> WeightedEnsemble:
        """Return ``factor · f``."""
        return self._with(range(len(self)), factor * self.weights)

    def plus(self, other: WeightedEnsemble) -> WeightedEnsemble:
        """Return ``f + g``, the terms of g last."""
        trusted = tuple(dict.fromkeys([*self.trusted, *other.trusted]))
        both = WeightedEnsemble(
            [*self.models, *other.models], [*self.weights, *other.weights], trusted=trusted
        )
        shift = len(self)
        both._built = {**self._built, **{shift + i: m for i, m in other._built.items()}}
        return both

    def taken(self, kept: Iterable[int]) -> WeightedEnsemble:
        """Return the sum of the terms at these positions."""
        return self._with(kept, self.weights)

    def _with(self, kept: Iterable[int], weights: Array) -> WeightedEnsemble:
        kept = [int(i) for i in kept]
        some = WeightedEnsemble([self.models[i] for i in kept], weights[kept], trusted=self.trusted)
        some._built = {new: self._built[i] for new, i in enumerate(kept) if i in self._built}
        return some

    def distilled(self, model: Any, X: Any, *, rng: np.random.Generator) -> Learner:
        """Train one model on the ensemble's predictions for ``X``.

        Args:
            model: anything that :func:`consilience.core.learners.as_learner` takes. A regressor is fitted to
                the ensemble's predictions. For a classifier, each row of the predictions is first shifted
                by a constant to sum to 1; then negative parts are removed and the row is divided by its sum.
                The correction is needed because signed sums of probabilities can have any total.
            X: inputs without labels, shape ``(n, ...)``, such as agents' private rows or public rows.
            rng: the only source of randomness.

        Returns:
            The trained model.
        """
        X = np.asarray(X)
        learner = as_learner(model)
        targets = self.predict(X)
        if learner.abilities.kind == "classification":
            targets = on_simplex(
                targets + (1 - targets.sum(axis=1, keepdims=True)) / targets.shape[1]
            )
        learner.bind(targets.shape[1])
        learner.fit(X, targets, rng=rng, phase="first")
        return learner

    def packed(self) -> tuple[list[str], list[Array]]:
        """Return descriptions and bytes of all models.

        Raises:
            InvalidInput: a learner among them cannot be sent, nor saved.
        """
        both = [pack(m) if isinstance(m, Learner) else (m.about, m.data) for m in self.models]
        return [about for about, _ in both], [data for _, data in both]

    def save(self, path: Path) -> None:
        """Write it to one file, of bytes and plain text only.

        Raises:
            InvalidInput: one of its models cannot be saved safely.
            RunFailed: it cannot be written.
        """
        abouts, data = self.packed()
        arrays = {"weights": self.weights, **{str(i): one for i, one in enumerate(data)}}
        write_arrays(Path(path), arrays, abouts)

    @classmethod
    def load(cls, path: Path, *, trusted: Sequence[str] = TRUSTED) -> WeightedEnsemble:
        """Read what :meth:`save` wrote.

        Raises:
            RunFailed: there is no such file, or it is damaged or something else.
        """
        abouts, arrays = read_arrays(Path(path))
        try:
            return cls(described(abouts, arrays), arrays["weights"], trusted=trusted)
        except (KeyError, TypeError, InvalidInput) as error:
            raise _foreign(path, error) from error


class _AsSaved:
    """A packed model."""

    def __init__(self, about: str, data: Array) -> None:
        self.about, self.data = about, data


def described(abouts: Sequence[str], arrays: Mapping[str, Array]) -> list[Packed]:
    """Pair descriptions of models with their bytes in arrays called ``"0"``, ``"1"``, …"""
    return [_AsSaved(str(about), arrays[str(i)]) for i, about in enumerate(abouts)]


def write_arrays(path: Path, arrays: Mapping[str, Array], about: Any) -> None:
    """Write arrays and plain values, as JSON, to one file.

    Args:
        path: the file.
        arrays: by name.
        about: plain values.

    Raises:
        RunFailed: it cannot be written.
    """
    metadata = {"consilience": json.dumps(about), "digest": _digest(arrays, about)}
    write_model(path, lambda part: save_file(dict(arrays), str(part), metadata))


def _digest(arrays: Mapping[str, Array], about: Any) -> str:
    """Digest of a file's contents, by which damage is noticed."""
    digest = hashlib.sha256(json.dumps(about).encode())
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def read_arrays(path: Path) -> tuple[Any, dict[str, Array]]:
    """Read a file of :func:`write_arrays`: the plain values, and the arrays.

    Raises:
        RunFailed: there is no such file, or it is damaged or something else.
    """
    try:
        with safe_open(str(path), framework="np") as file:
            metadata = file.metadata() or {}
            about = json.loads(metadata["consilience"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata["digest"] != _digest(arrays, about):
            raise ValueError("its bytes have changed")
        return about, arrays
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise _foreign(path, error) from error


def _foreign(path: Path, error: Exception) -> RunFailed:
    return RunFailed(f"the file does not hold an ensemble ({error})", where=str(path))
