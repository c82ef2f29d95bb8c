"""A federation with scikit-learn's manners: ``fit`` on public rows, ``predict`` for a party."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted

from consilience.core.aggregation import AGGREGATORS, Aggregator
from consilience.core.errors import InvalidInput, nearest
from consilience.core.federation.federation import Federation
from consilience.core.learners import as_learner
from consilience.core.party.party import Party
from consilience.core.party.rows import in_order
from consilience.core.protocols.ensemble_distillation import ensemble_distillation
from consilience.core.validation.arrays import Array, as_rows
from consilience.core.validation.labels import Kind, check_same_order, label_names
from consilience.core.validation.printing import described
from consilience.core.validation.tables import is_table
from consilience.lab.config.sections import known


class _PrivateRows(Mapping[str, Any]):
    """Rows of parties by name, as they were given; printing them shows the names alone.

    scikit-learn prints the parameters of an estimator, as text and as HTML, and trackers store them as text.
    """

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> Any:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<private rows: {described(self._rows)}>"


class _Federated(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Common part of both estimators."""

    _kind: ClassVar[Kind]
    _boosting: ClassVar[str]

    def __init__(
        self,
        parties: Any = None,
        *,
        model: Any = None,
        aggregator: Any = "auto",
        rounds: int = 10,
        purpose: Any = "own",
        strict: bool = True,
        random_state: int = 0,
    ) -> None:
        self.parties = parties
        self.model = model
        self.aggregator = aggregator
        self.rounds = rounds
        self.purpose = purpose
        self.strict = strict
        self.random_state = random_state

    def __setattr__(self, name: str, value: Any) -> None:
        # Here, and not in __init__, for set_params and assignments too.
        if name == "parties" and isinstance(value, Mapping) and type(value) is not _PrivateRows:
            value = _PrivateRows(value)
        super().__setattr__(name, value)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Have the parties teach one another on public rows.

        Args:
            X: public rows, without labels: a table or an array.
            y: ignored, so that tools which pass labels along work.

        Raises:
            InvalidInput: the parties, their data or their models do not go together.
        """
        parties = self._made()
        federation = Federation(parties, X, seed=self.random_state, strict=self.strict)
        rule = self.aggregator
        if not isinstance(rule, Aggregator):
            known(str(rule), AGGREGATORS, "aggregator")
            rule = AGGREGATORS[str(rule)]()
        self.history_ = federation.run(ensemble_distillation(aggregate=rule, rounds=self.rounds))
        self.federation_, self.models_ = federation, dict(self.history_.models)
        public = federation.public
        self.n_features_in_ = public.X.shape[1] if public.X.ndim > 1 else 1
        self.__dict__.pop("feature_names_in_", None)
        if is_table(X) and public.schema is not None:
            self.feature_names_in_ = np.array(public.schema.names, dtype=object)
        self._learn_names(parties)
        return self

    def _made(self) -> list[Party]:
        """The parties, made of their rows where these were given."""
        given = self.parties
        if not given:
            raise InvalidInput(
                "there are no parties",
                where="parties",
                mend='Give parties={"north": (X, y), …}, or a list of Party.',
            )
        if not isinstance(given, Mapping):
            wrong = [
                one for one in given if not isinstance(one, Party) or one.rows.kind != self._kind
            ]
            if wrong:
                raise InvalidInput(
                    f"{getattr(wrong[0], 'name', type(wrong[0]).__name__)!r} is no Party for {self._kind}",
                    where="parties",
                )
            return list(given)
        models = self.model if isinstance(self.model, Mapping) else {}
        usual = self._boosting if self.model is None else self.model
        for name, rows in given.items():
            if not isinstance(rows, tuple | list) or len(rows) != 2:
                raise InvalidInput("its rows are no pair (X, y)", where=f"party {name!r}")
            if models and name not in models:
                raise InvalidInput(
                    "it has no model", where=f"party {name!r}", mend=nearest(name, models)
                )
        return [
            Party(
                name,
                as_learner(models.get(name, usual), kind=self._kind),
                *rows,
                purpose=self.purpose,
            )
            for name, rows in given.items()
        ]

    def _learn_names(self, parties: list[Party]) -> None:
        """Store the names of the targets that ``fit`` finds."""

    def _outputs(self, X: Any, party: str | None) -> Array:
        """Outputs of a party's model, or the mean over all models, shape ``(n, n_outputs)``."""
        check_is_fitted(self, "models_")
        if party is not None and party not in self.models_:
            raise InvalidInput(
                f"no party is called {party!r}", where="predict", mend=nearest(party, self.models_)
            )
        if not is_table(X):
            X, schema = as_rows(X, where="predict"), self.federation_.public.schema
            named = hasattr(self, "feature_names_in_")
            if named and schema is not None and not (schema.plain and X.ndim == 2):
                raise InvalidInput(
                    "X is no table, and the public rows are one",
                    where="predict",
                    mend=f"Give a DataFrame with the columns {', '.join(schema.names[:5])}"
                    f"{', …' if len(schema.names) > 5 else ''}.",
                )
            if X.ndim == 2 and X.shape[1] != self.n_features_in_:
                raise InvalidInput(
                    f"X has {X.shape[1]} columns, and the public rows {self.n_features_in_}",
                    where="predict",
                )
        models = self.models_.values() if party is None else [self.models_[party]]
        return np.asarray(np.mean([one.outputs(one.rows(X)) for one in models], axis=0))

    @staticmethod
    def _like(X: Any, found: Array, columns: Any) -> Any:
        """Give an answer the form of the rows: with the index of a pandas table, or as an array."""
        if not hasattr(X, "iloc"):
            return found
        import pandas as pd

        if found.ndim == 1:
            return pd.Series(found, index=X.index, name=columns)
        return pd.DataFrame(found, index=X.index, columns=columns)


class FederatedClassifier(ClassifierMixin, _Federated):  # type: ignore[misc]
    """A federation of classifiers as one scikit-learn estimator.

    ``fit`` sets ``classes_``, ``history_`` (:class:`~consilience.core.federation.history.History`),
    ``models_`` (party to its model), ``federation_``, ``n_features_in_`` and, for tables,
    ``feature_names_in_``.

    Args:
        parties: mapping of a party's name to its rows and labels, ``{"north": (X, y), …}``; or a list of
            :class:`~consilience.core.party.party.Party`, each with its own model, test rows and purpose.
        model: model of every party: an estimator or the name of a preset; or a mapping of party names to
            models. The default, boosted trees, accepts missing values and categories.
        aggregator: aggregation rule or its name (``consilience list aggregators``).
        rounds: number of rounds.
        purpose: rows that a party's predictions are for, ``"own"`` or ``"everyone"``'s.
        strict: refuse a party with a single class, and a class that only one party holds.
        random_state: seed of all random draws.

    Example:
        >>> import numpy as np
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from consilience import FederatedClassifier
        >>> X = np.repeat(np.linspace(-1, 1, 40), 2)[:, None]
        >>> y = np.where(X[:, 0] < 0, "low", "high")
        >>> parties = {"north": (X[0::2], y[0::2]), "south": (X[1::2], y[1::2])}
        >>> federated = FederatedClassifier(parties, model=GaussianNB(), rounds=1).fit(X)
        >>> federated.predict([[-0.9], [0.9]], party="north").tolist()
        ['low', 'high']
    """

    _kind, _boosting = "classification", "gradient-boosting"

    def _learn_names(self, parties: list[Party]) -> None:
        names = self.federation_.network.agreed.classes
        if self.federation_.network.agreed.outcome:
            raise InvalidInput("its parties predict no classes", mend="Take Federation.")
        own: dict[str, Any] = {}  # labels as they were given
        if isinstance(self.parties, Mapping):
            for name in sorted(self.parties):
                labels = list(dict.fromkeys(np.asarray(self.parties[name][1]).tolist()))
                for text, label in zip(label_names(labels, where=name), labels, strict=True):
                    own.setdefault(str(text), label)
        self.classes_ = np.array([own.get(name, name) for name in names])

    def predict_proba(self, X: Any, party: str | None = None) -> Any:
        """Predict class probabilities.

        Args:
            X: inputs, shape ``(n, …)``, or a table.
            party: name of the party that predicts with its model; by default the mean of all parties' models.

        Returns:
            Probabilities, shape ``(n, n_classes)``. DataFrame input returns a DataFrame with the same index
            and the classes as columns.

        Raises:
            NotFittedError: before ``fit``.
            InvalidInput: no such party, or other columns.
        """
        return self._like(X, self._outputs(X, party), getattr(self, "classes_", None))

    def predict(self, X: Any, party: str | None = None) -> Any:
        """Predict classes.

        Args:
            X: inputs, shape ``(n, …)``, or a table.
            party: name of the party that predicts with its model; by default the mean of all parties' models.

        Returns:
            Classes, shape ``(n,)``. DataFrame input returns a Series with the same index.
        """
        places = self._outputs(X, party).argmax(axis=1)
        return self._like(X, self.classes_[places], "class")

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, party: str | None = None
    ) -> float:
        """Compute the accuracy.

        Args:
            X: inputs.
            y: their classes.
            sample_weight: weights of the rows.
            party: name of the party that predicts with its model; by default the mean of all parties' models.

        Returns:
            Share of correctly classified rows, weighted by ``sample_weight``.
        """
        check_same_order(X, y, where="score")
        return float(accuracy_score(y, self.predict(X, party), sample_weight=sample_weight))


class FederatedRegressor(RegressorMixin, _Federated):  # type: ignore[misc]
    """A federation of regressors as one scikit-learn estimator; see :class:`FederatedClassifier`.

    Args:
        parties: a party's name to its rows and values, or a list of
            :class:`~consilience.core.party.party.Party`.
        model: the model that a party brings, or a mapping of parties' names to such; by default boosted
            trees.
        aggregator: a rule, or its name.
        rounds: number of rounds.
        purpose: rows that a party's predictions are for, ``"own"`` or ``"everyone"``'s.
        strict: as in the classifier.
        random_state: everything random is keyed by it.
    """

    _kind, _boosting = "regression", "gradient-boosting-regressor"

    def _learn_names(self, parties: list[Party]) -> None:
        self._target_names = next(
            (one.rows.target_names for one in parties if one.rows.target_names), ()
        )

    def predict(self, X: Any, party: str | None = None) -> Any:
        """Predict values.

        Args:
            X: inputs, shape ``(n, …)``, or a table.
            party: name of the party that predicts with its model; by default the mean of all parties' models.

        Returns:
            Values, shape ``(n,)`` for one target and ``(n, n_targets)`` for several. DataFrame input returns
            a Series or a DataFrame with the same index.
        """
        found = self._outputs(X, party)
        if found.shape[1] == 1:
            return self._like(X, found[:, 0], None)
        return self._like(X, found, list(self._target_names) or None)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, party: str | None = None
    ) -> float:
        """Compute R².

        Args:
            X: inputs.
            y: their values.
            sample_weight: weights of the rows.
            party: name of the party that predicts with its model; by default the mean of all parties' models.

        Returns:
            R², at most 1.
        """
        check_same_order(X, y, where="score")
        y = in_order(y, self._target_names, where="score")
        return float(r2_score(y, self.predict(X, party), sample_weight=sample_weight))
