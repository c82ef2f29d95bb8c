"""Send a party's model, and predict its private rows with models of other parties."""

from __future__ import annotations

import numpy as np

from consilience.core.errors import ConsilienceError, KnowledgeRefused
from consilience.core.learners import Learner
from consilience.core.party.view import PartyView
from consilience.core.validation.arrays import Array
from consilience.core.validation.labels import Kind
from consilience.models.files.transfer import TRUSTED, check_packing, check_rows, pack, unpack


def trusted_by(party: PartyView) -> tuple[str, ...]:
    """Return the packages from which a party accepts models."""
    return TRUSTED if party.rules.trusts is None else tuple(party.rules.trusts)


def check_sharing(party: PartyView, learner: Learner | None = None) -> None:
    """Raise ``InvalidInput`` if a model contains private rows against the party's rules, or cannot be sent.

    Args:
        party: the party.
        learner: the model that would be sent, such as a weak learner; by default the party's own.
    """
    learner = party.trainer.learner if learner is None else learner
    _check_rows(party, learner)
    check_packing(learner)


def share(party: PartyView, learner: Learner | None = None) -> tuple[str, Array]:
    """Pack a trained model for other parties.

    Args:
        party: the party.
        learner: the model, such as a weak learner; by default the party's own model, with its classes in the
            description.

    Returns:
        The model's description as JSON, and its bytes.

    Raises:
        InvalidInput: the model contains private rows against the party's rules, or cannot be sent.
    """
    classes = party.trainer.agreement.classes if learner is None else ()
    learner = party.trainer.learner if learner is None else learner
    _check_rows(party, learner)
    return pack(learner, classes=classes)


def predict_private_with(party: PartyView, about: str, data: Array) -> Array:
    """Predict a party's private training rows with another party's model.

    Args:
        party: the party.
        about: the model's description from :func:`share`.
        data: the model's bytes.

    Returns:
        Shape ``(n, n_outputs)``.

    Raises:
        KnowledgeRefused: the model is not trusted or damaged, or its predictions do not match the task.
    """
    other = unpack(about, data, trusted=trusted_by(party))
    other.schema = party.rows.schema
    return checked_answers(other, *party.trainer.rows.train, party.rows.kind)


def checked_answers(model: Learner, X: Array, targets: Array, kind: Kind) -> Array:
    """Predict own rows with another party's model, and refuse invalid predictions.

    Args:
        model: the model.
        X: inputs, shape ``(n, ...)``.
        targets: own targets, shape ``(n, n_outputs)``; the predictions must have the same shape.
        kind: ``"classification"`` or ``"regression"``.

    Returns:
        The predictions, shape ``(n, n_outputs)``.

    Raises:
        KnowledgeRefused: the model is for another kind or number of outputs, it fails to predict, or its
            predictions are invalid.
    """
    if model.abilities.kind != kind:
        raise KnowledgeRefused(f"a model for {model.abilities.kind}, not {kind}")
    if model.n_outputs != targets.shape[1]:
        raise KnowledgeRefused(f"a model of {model.n_outputs:,} outputs, not {targets.shape[1]}")
    try:
        values = model.predict(X)
    except KnowledgeRefused:
        raise
    except ConsilienceError as error:
        raise KnowledgeRefused(f"a model that cannot answer: {error.what}") from error
    if values.shape != targets.shape or not np.isfinite(values).all():
        raise KnowledgeRefused(
            f"a model that answers {values.shape}, expected finite {targets.shape}"
        )
    if kind == "classification" and (
        (values < 0).any() or np.abs(values.sum(axis=1) - 1).max() > 1e-3
    ):
        raise KnowledgeRefused("a model whose answers are no probabilities")
    return values


def _check_rows(party: PartyView, learner: Learner) -> None:
    """Raise ``InvalidInput`` if a model contains private rows and the party's rules forbid sending them."""
    if not party.rules.sends_rows:
        check_rows(learner, party.trainer.rows.train[0], where=f"party {party.name!r}")
