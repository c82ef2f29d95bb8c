"""Shared feature spaces of all parties: the features of a row depend only on the row and the public rows.

Every party has the public rows and computes the same space from them. The space is therefore never sent, and
no party's data influence it. The form of the rows determines the kind of features:

- texts: words and pairs of words, hashed, weighted by their rarity among the public texts, of length 1;
- pictures, shape ``(n, height, width)`` with or without an axis of one to four channels: the response of each
  quarter of a picture to small patches of public pictures (Coates, Lee & Ng 2011);
- all other rows: columns.

If the parties agreed on an encoder (:mod:`consilience.models.encoders.encoders`), it computes the features
instead.

Columns, patch responses and encoder features are centred and scaled by the public rows' statistics, and
clipped at three standard deviations, so that a nearly constant pixel or column does not dominate the
distances. Principal directions of the features are used if a method needs few numbers per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
from scipy.sparse import issparse

from consilience.core.errors import InvalidInput
from consilience.core.numerics.encoder import Encoder
from consilience.core.validation.arrays import Array
from consilience.core.validation.memory import check_memory

Features = Callable[[Array], Any]
"""Rows to features, shape ``(n, d)``; a sparse matrix for texts."""

FILTERS = 100
"""Patches of public pictures that pictures are compared with."""

DIRECTIONS = 30
"""Principal directions, at most."""

_SMALLEST_PICTURE = 12
"""Pixels a side; below, quarters hold too few patches, and a picture is its pixels."""
_SIDE, _STEP = 6, 2
"""Pixels of a patch's side, and from patch to patch."""
_EXAMPLES = 10_000
"""Patches that the whitening is computed of."""
_CHUNK = 16
"""Number of pictures in a batch; the intermediate results of a batch fit into a core's cache."""


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Features computed from public rows only, the same at every party.

    Attributes:
        features: function from rows in the form of the public rows to their features.
        public: features of the public rows, shape ``(n_public, d)``.
    """

    features: Features
    public: Any

    def __call__(self, X: Array) -> Any:
        """Compute the features of rows, shape ``(n, d)``."""
        return self.features(X)


def public_feature_space(
    public: Array,
    rng: np.random.Generator,
    encoder: Encoder | None = None,
) -> FeatureSpace:
    """Make the feature space of public rows.

    Args:
        public: public inputs, numbers of shape ``(n, …)`` or texts of shape ``(n,)``.
        rng: draws the patches of pictures; the same at every party.
        encoder: makes the features; ``None`` for words, patches or columns, as the rows are.

    Raises:
        InvalidInput: no two public rows differ, public texts hold no words, or the encoder cannot take the
            rows.

    Source:
        Coates, Lee & Ng 2011, "An analysis of single-layer networks in unsupervised feature learning",
        for pictures, with patches themselves as the dictionary and half a standard deviation as the
        threshold.
    """
    if encoder is not None:
        return _scaled(_encoded(encoder), public)
    if public.dtype.kind in "UO":
        return _texts(public)
    if picture_axes(public.shape) is not None:
        return _scaled(_patches(public, rng), public)
    return _scaled(_columns(public), public)


def count_features(shape: tuple[int, ...]) -> int:
    """Count the features of a row of numbers, compared without an encoder.

    Args:
        shape: shape of the array of rows.

    >>> count_features((5, 3, 32, 32)), count_features((5, 64))
    (400, 64)
    """
    return 4 * FILTERS if picture_axes(shape) is not None else prod(shape[1:])


def principal_directions(features: Any) -> Callable[[Any], Array]:
    """Find up to :data:`DIRECTIONS` directions of a space in which the public rows spread most.

    They are the leading right singular vectors of the public rows' features. Of texts only words that
    stand in two public texts or more take part, and weights have length 1 over these: words of one text
    alone would set public texts, which are made of known words, apart from private ones.

    Args:
        features: of the public rows, shape ``(n_public, d)``, dense, or sparse for texts.

    Returns:
        A function of features, shape ``(n, d)``, to coordinates along these directions, ``(n, k)``.

    Raises:
        InvalidInput: no two public texts share a word.
    """
    common = common_columns(features)
    axes = _leading(common(features))
    return lambda features: np.asarray(common(features) @ axes.T)


def common_columns(features: Any) -> Callable[[Any], Any]:
    """Find the features that two public rows or more have; of texts, the public texts' own vocabulary.

    Args:
        features: of the public rows, shape ``(n_public, d)``, dense, or sparse for texts.

    Returns:
        A function of features to these columns of them, those of texts of length 1 again.

    Raises:
        InvalidInput: no two public texts share a word.
    """
    common = np.flatnonzero((features != 0).sum(axis=0) > 1)
    if not len(common):
        raise InvalidInput(
            "no two public texts share a word, and none can lie near another",
            where="public data",
            mend="Give more texts.",
        )

    def columns(features: Any) -> Any:
        if not issparse(features):
            return features[:, common]
        from sklearn.preprocessing import normalize

        return normalize(features[:, common])

    return columns


def picture_axes(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the order of axes that turns pictures into ``(n, height, width, channels)``.

    Args:
        shape: shape of the array of rows.

    Returns:
        The axes; ``None`` for other rows than pictures, and for pictures smaller than 12 pixels a side.

    >>> picture_axes((5, 3, 32, 32)), picture_axes((5, 28, 28)), picture_axes((5, 64))
    ((0, 2, 3, 1), (0, 1, 2), None)
    """
    if len(shape) == 3:
        axes: tuple[int, ...] = (0, 1, 2)
    elif len(shape) == 4 and min(shape[1], shape[3]) <= 4:
        axes = (0, 2, 3, 1) if shape[1] <= 4 else (0, 1, 2, 3)
    else:
        return None
    return axes if min(shape[axes[1]], shape[axes[2]]) >= _SMALLEST_PICTURE else None


def _leading(features: Any) -> Array:
    """Compute up to :data:`DIRECTIONS` leading right singular vectors by subspace iteration.

    scikit-learn's ``randomized_svd`` does the same, but its import takes a second, and a run of neural
    networks has no other use for it.

    Returns:
        Shape ``(k, d)``.

    Source:
        Halko, Martinsson & Tropp 2011, Algorithm 4.4.
    """
    width = min(DIRECTIONS + 10, *features.shape)
    _check_memory(width * sum(features.shape), features.shape)
    found = np.random.default_rng(0).normal(size=(features.shape[1], width))
    for _ in range(7):
        found, _ = np.linalg.qr(features @ found)
        found, _ = np.linalg.qr(features.T @ found)
    _, _, axes = np.linalg.svd(features @ found, full_matrices=False)
    return np.asarray((axes @ found.T)[:DIRECTIONS])


def _check_memory(numbers: int, shape: tuple[int, ...]) -> None:
    """Raise ``InvalidInput`` if so many float64 numbers, and intermediate results, do not fit into memory."""
    check_memory(
        4 * 8 * numbers,
        f"the space of public rows of shape {shape}",
        where="public data",
        mend="Give fewer public rows, or take an aggregator that does not compare them.",
    )


def _columns(public: Array) -> Features:
    """Columns as they are. A gap, which only a party's rows have, is filled with the public median."""
    medians = cache(lambda: np.median(public.reshape(len(public), -1), axis=0))

    def features(X: Array) -> Array:
        flat = X.reshape(len(X), -1).astype(np.float64)
        gaps = np.isnan(flat)
        return np.where(gaps, medians(), flat) if gaps.any() else flat

    return features


def _encoded(encoder: Encoder) -> Features:
    """An encoder's features, checked, in double precision: kernels of single ones are not definite."""

    def features(X: Array) -> Array:
        found = np.asarray(encoder(X))
        fits = found.ndim == 2 and len(found) == len(X) and found.dtype.kind in "fiu"
        if not fits or not np.isfinite(found).all():
            raise InvalidInput(
                f"of {len(X)} rows it made {found.dtype} of shape {found.shape}, which are not "
                f"numbers, one row a row",
                where="encoder",
                mend="Return finite numbers of shape (n, d).",
            )
        return found.astype(np.float64)

    return features


def _scaled(features: Features, public: Array) -> FeatureSpace:
    """Features as numbers of standard deviations from their mean on the public rows, from -3 to 3."""
    _check_memory(len(public) * features(public[:1]).size, public.shape)
    told = features(public)
    mean, spread = told.mean(axis=0), told.std(axis=0)
    # A column that is constant on the public rows has a spread of rounding size, not always 0, and says
    # nothing of where private rows lie among them.
    varies = spread > 1e-9 * np.abs(told).max(axis=0)
    if not varies.any():
        raise InvalidInput(
            "no two public rows differ, and nothing can lie near one rather than another",
            where="public data",
            mend="Give public rows that are spread as the private ones are.",
        )
    mean, spread = mean[varies], spread[varies]

    def scaled(found: Array) -> Array:
        kept = found[:, varies]  # a copy: rows with many categories take much memory
        kept -= mean
        kept /= spread
        return np.clip(kept, -3, 3, out=kept)

    return FeatureSpace(lambda X: scaled(features(X)), scaled(told))


def single_words(public: Array) -> FeatureSpace:
    """Make the space of words that two public texts have, without pairs: sums with noise are better in it.

    Args:
        public: texts, shape ``(n,)``.

    Raises:
        InvalidInput: public texts hold no words, or no two share one.
    """
    space = _texts(public, longest=1)
    common = common_columns(space.public)
    return FeatureSpace(lambda texts: common(space(texts)), common(space.public))


def _texts(public: Array, longest: int = 2) -> FeatureSpace:
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    count = HashingVectorizer(ngram_range=(1, longest), norm=None, alternate_sign=False)
    counts = count.transform(public)
    if not counts.nnz:
        raise InvalidInput(
            "the public texts hold no words",
            where="public data",
            mend="Give texts of two letters or more.",
        )
    weigh = TfidfTransformer(sublinear_tf=True).fit(counts)
    return FeatureSpace(
        lambda texts: weigh.transform(count.transform(texts)), weigh.transform(counts)
    )


def _patches(public: Array, rng: np.random.Generator) -> Features:
    """Features of pictures: responses of their quarters to whitened public patches."""
    axes = picture_axes(public.shape)
    brightness = public.mean(dtype=np.float64)

    def windows(X: Array, step: int) -> Array:
        """All patches, shape ``(n, rows, columns, channels, side, side)``, as a view."""
        pictures = (X.transpose(axes) - brightness).astype(np.float32)
        pictures = pictures[..., None] if pictures.ndim == 3 else pictures
        seen = np.lib.stride_tricks.sliding_window_view(pictures, (_SIDE, _SIDE), axis=(1, 2))
        return seen[:, ::step, ::step]

    everywhere = windows(public, 1)
    picked = tuple(rng.integers(count, size=_EXAMPLES) for count in everywhere.shape[:3])
    patches = everywhere[picked].reshape(_EXAMPLES, -1).astype(np.float64)
    least = 0.01 * float(patches.var()) or 1.0  # of public pictures of one colour nothing is left
    patches -= patches.mean(axis=1, keepdims=True)
    patches /= np.sqrt(patches.var(axis=1, keepdims=True) + least)

    mean = patches.mean(axis=0)
    # V f(Λ) Vᵀ depends neither on the signs of eigenvectors nor on the choice within an eigenspace, which
    # they are known up to: it is the same matrix on every machine.
    values, vectors = np.linalg.eigh(np.cov(patches, rowvar=False))
    whitening = (vectors / np.sqrt(np.maximum(values, 0) + 0.1)) @ vectors.T
    dictionary = (patches[:FILTERS] - mean) @ whitening
    lengths = np.linalg.norm(dictionary, axis=1, keepdims=True)
    filters = whitening @ (dictionary / np.where(lengths > 0, lengths, 1)).T
    strength = (patches - mean) @ filters
    offsets = (mean @ filters + 0.5 * strength.std()).astype(np.float32)
    filters = filters.astype(np.float32)

    def answers(X: Array) -> Array:
        pooled = []
        for start in range(0, len(X), _CHUNK):
            seen = windows(X[start : start + _CHUNK], _STEP)
            count, height, width = seen.shape[:3]
            flat = seen.reshape(count, height * width, -1)
            flat -= flat.mean(axis=2, keepdims=True)
            variances = np.einsum("npi,npi->np", flat, flat) / flat.shape[2]
            flat /= np.sqrt(variances + np.float32(least))[:, :, None]
            strength = flat @ filters
            strength -= offsets
            np.maximum(strength, 0, out=strength)
            pooled.append((_quarters(height, width) @ strength).reshape(count, -1))
        return np.concatenate(pooled).astype(np.float64)

    return answers


def _quarters(height: int, width: int) -> Array:
    """Weights of the means over each quarter of a grid, ``(4, height * width)``; a middle is in both."""
    halves = [
        np.array([np.arange(n) < (n + 1) // 2, np.arange(n) >= n // 2]) for n in (height, width)
    ]
    inside = np.einsum("ir,jc->ijrc", *halves).reshape(4, -1)
    return np.asarray(inside / inside.sum(axis=1, keepdims=True), dtype=np.float32)
