"""Models that leave a party, and training towards what models of other parties predict."""

from __future__ import annotations

import copy

from consilience.core.learners import Learner
from consilience.core.party.agreement import checked_answers
from consilience.core.party.trainer import Training
from consilience.core.validation.arrays import Array
from consilience.models.files.transfer import check_packing, check_rows, pack, unpack


class ModelSharing(Training):
    """The part of :class:`~.party.Party` for protocols that exchange models."""

    def check_sharing(self, learner: Learner | None = None) -> None:
        """Raise ``InvalidInput`` if a model would hold private rows and may not, or cannot be sent.

        Args:
            learner: the model that would be sent, such as a weak learner; by default the party's own.
        """
        learner = self.learner if learner is None else learner
        self._check_rows(learner)
        check_packing(learner)

    def share(self, learner: Learner | None = None) -> tuple[str, Array]:
        """A trained model as others can use it: its description and its bytes.

        Args:
            learner: such as a weak learner; by default the party's own, whose description has its classes.

        Raises:
            InvalidInput: it holds private rows and may not, or cannot be sent.
        """
        assert self.agreement is not None
        classes = self.agreement.classes if learner is None else ()
        learner = self.learner if learner is None else learner
        self._check_rows(learner)
        return pack(learner, classes=classes)

    def predict_private(self) -> Array:
        """Predict the private rows that are trained on with the own model, shape ``(n, n_outputs)``."""
        return self.learner.predict(self._train[0])

    def predict_private_with(self, about: str, data: Array) -> Array:
        """Predict the private rows that are trained on with another party's model.

        Args:
            about: the model's description, as :meth:`share` gives it.
            data: its bytes.

        Returns:
            Shape ``(n, n_outputs)``.

        Raises:
            KnowledgeRefused: the model is not trusted, damaged, or answers something else.
        """
        other = unpack(about, data, trusted=self.trusts)
        other.schema = self.schema
        return checked_answers(other, *self._train, self.kind)

    def fit_on_mixed_targets(
        self, round: int, predictions: Array, label_weight: float, *, warm_start: bool = False
    ) -> None:
        """Train a model on private inputs, towards ``label_weight`` times the labels plus predictions.

        Where that fails, the party keeps the model that it had.

        Args:
            round: the round, for the random stream.
            predictions: what is added to the labels, shape ``(n, n_outputs)``.
            label_weight: the weight of the private labels in [0, 1].
            warm_start: go on from the own model, if its kind trains incrementally; else train a new one.
        """
        X, y = self._train
        goes_on = warm_start and self.trained and self.learner.abilities.incremental
        new = copy.deepcopy(self.learner) if goes_on else self.untrained()
        new.fit(
            X,
            label_weight * y + predictions,
            rng=self.stream(round, "fit"),
            validation=self._validation,
            phase="first",
        )
        self.learner = new
        self.model_changed()

    def _check_rows(self, learner: Learner) -> None:
        """Raise ``InvalidInput`` if a model holds private rows and may not be sent with them."""
        if not self._sends_rows:
            check_rows(learner, self._train[0], where=self._where)
