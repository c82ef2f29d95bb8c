"""Encoders as transformers of scikit-learn: a model in a pipeline behind one reads features, not rows."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, TransformerMixin

from consilience.core.validation.arrays import Array
from consilience.models.encoders.encoders import find_encoder


class Encoded(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transform rows to an encoder's features (:mod:`consilience.models.encoders.encoders`).

    Args:
        encoder: name of the encoder.
    """

    def __init__(self, encoder: str = "static-words") -> None:
        self.encoder = encoder

    def fit(self, X: Array, y: Any = None) -> Encoded:
        """Return the transformer unchanged, because an encoder has no parameters to fit."""
        return self

    def transform(self, X: Array) -> Array:
        """Compute the features of rows, shape ``(n, d)``."""
        features: Array = find_encoder(self.encoder)(X)
        return features

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = self.encoder != "photographs"
        tags.input_tags.two_d_array = tags.input_tags.three_d_array = self.encoder != "static-words"
        tags.requires_fit = False
        return tags


def static_words() -> Encoded:
    """Make the transformer of texts to the mean of static word embeddings."""
    return _checked("static-words")


def photographs() -> Encoded:
    """Make a transformer from pictures to the features of a network pretrained on ImageNet."""
    return _checked("photographs")


def _checked(encoder: str) -> Encoded:
    find_encoder(encoder)  # says now that its package is missing
    return Encoded(encoder)
