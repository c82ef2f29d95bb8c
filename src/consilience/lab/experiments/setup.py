"""From a configuration and a seed to parties, public data and who holds what."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from consilience.core.aggregation import Aggregator
from consilience.core.errors import InvalidInput, nearest
from consilience.core.messages.columns import Schema
from consilience.core.messages.schema import Public
from consilience.core.networks import Population
from consilience.core.numerics.outcomes import Outcome
from consilience.core.numerics.randomness import stream
from consilience.core.party.party import Party
from consilience.core.party.personalizer import Purpose
from consilience.core.validation.arrays import Array, check_alike, same_rows
from consilience.core.validation.labels import Kind, class_order
from consilience.core.validation.printing import prints_no_rows
from consilience.lab.config.experiment import Spec
from consilience.lab.config.experiment_sections import DataSpec, ModelSpec
from consilience.lab.config.methods import INFORMED
from consilience.lab.data import (
    DATASETS,
    PARTITIONS,
    Dataset,
    Holdings,
    load,
    partition,
    read_rows,
    take_public,
    who_holds_what,
)
from consilience.lab.experiments.late import LateRows, read_late, staying, with_rows
from consilience.lab.experiments.measured_rows import own_tests
from consilience.lab.experiments.oracles import class_holders, true_labels
from consilience.lab.experiments.subgroups import check_two_classes, subgroups_of
from consilience.models.encoders.encoders import find_encoder
from consilience.models.presets import make
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.accounting.party import protect
from consilience.privacy.attacks.shadows import AttackedParties
from consilience.tables.predictions import Scaling
from consilience.tables.targets import outcome_for


@prints_no_rows
@dataclass(frozen=True)
class SimulatedParties:
    """Data and parties of one seed.

    Attributes:
        dataset: where the rows come from.
        public: the rows that everybody sees, if there are any.
        public_labels: their true labels, which only experiments have; ``None`` for rows without.
        names: of the parties, sorted.
        rows: per party, which rows of the dataset are its own.
        own_tests: per party, the weights of the dataset's test rows as its own, shape ``(n_test,)``; ``None``
            where they follow from its classes (:meth:`own`).
        models: per party, the model it brings.
        calibration: share of the private rows kept from training.
        purpose: rows that every party's predictions are for.
        trusts: packages whose models every party accepts from others.
        scaling: what was done to all inputs above; ``None`` where they are as they came.
        subgroups: group of each test row that the report looks at apart; empty where none were asked for.
        outcome: what is predicted; ``None`` for classes or values.
    """

    dataset: Dataset
    public: Public
    public_labels: Array | None
    names: tuple[str, ...]
    rows: tuple[Array, ...]
    own_tests: tuple[Array, ...] | None
    models: tuple[ModelSpec, ...]
    calibration: float
    purpose: Purpose
    trusts: tuple[str, ...]
    scaling: Scaling | None
    subgroups: tuple[str, ...] = ()
    outcome: Outcome | None = None

    def parties(self, *, pooled: bool = False, budget: Budget | None = None) -> list[Party]:
        """Make new parties, measured on everyone's test rows; see :meth:`maker`."""
        return list(map(self.maker(pooled=pooled, budget=budget), self.names))

    def maker(
        self, *, pooled: bool = False, budget: Budget | None = None
    ) -> Callable[[str], Party]:
        """Give a function that makes a new party of its name.

        Args:
            pooled: whether each has all private rows.
            budget: budget of privacy of each; they declare all classes then.
        """
        rows = self.rows
        if pooled:
            labelled = [own for own, model in zip(rows, self.models, strict=True) if model.labels]
            rows = (np.sort(np.concatenate(labelled)),) * len(rows)
        test = self.dataset.X_test, self.labels(self.dataset.y_test)  # one copy for all
        held = dict(zip(self.names, zip(rows, self.own, self.models, strict=True), strict=True))

        def made(name: str) -> Party:
            own, weights, model = held[name]
            party = Party(
                name,
                make(model.name, **model.options),
                self.dataset.X[own],
                self.labels(self.dataset.y[own]) if pooled or model.labels else None,
                test=test,
                own=weights,
                calibration=self.calibration,
                trusts=self.trusts,
                sends_rows=model.sends_rows,
                purpose=self.purpose,
                outcome=self.outcome,
                classes=() if budget is None else self.dataset.classes or (),
            )
            protect(party, budget)
            return party

        return made

    def attacked(self) -> AttackedParties:
        """Make the view of the parties that attacks on privacy have."""
        data = self.dataset
        return AttackedParties(
            names=self.names,
            rows=self.rows,
            X=data.X,
            labels=self.labels(data.y),
            strata=np.zeros(len(data.y)) if data.strata_names is None else data.strata(data.y),
            by_class=data.classes is not None and self.outcome is None,
            public=self.public,
            with_rows=self._with_rows,
        )

    def _with_rows(self, name: str, rows: Array, budget: Budget | None) -> Party:
        """Make a party with other rows of the dataset; a single test row spares time."""
        model = self.models[self.names.index(name)]
        data, tests = self.dataset.take_test(np.arange(1)), (np.ones(1),)
        one = replace(
            self, names=(name,), rows=(rows,), models=(model,), own_tests=tests, dataset=data
        )
        return one.maker(budget=budget)(name)

    @property
    def own(self) -> tuple[Array, ...]:
        """Weights of the test rows as each party's own, shape ``(n_test,)`` each."""
        if self.own_tests is not None:
            return self.own_tests
        y, tests = map(self.dataset.strata, (self.dataset.y, self.dataset.y_test))
        return tuple(np.isin(tests, y[rows]).astype(np.float64) for rows in self.rows)

    @property
    def holders(self) -> dict[str, list[Any]]:
        """Party to the labels of the classes it holds."""
        return {
            name: np.unique(self.labels(self.dataset.y[rows])).tolist()
            for name, rows, model in zip(self.names, self.rows, self.models, strict=True)
            if model.labels
        }

    def informed(self, baseline: str | None) -> Aggregator | None:
        """Make the teacher of a baseline that is told the public rows' true labels.

        Returns:
            ``None`` for other methods.

        Raises:
            InvalidInput: the labels are not known, or are values, which nobody holds.
        """
        if baseline not in INFORMED:
            return None
        regression = self.dataset.classes is None
        if self.public_labels is None or (regression and baseline == "class-holders"):
            needed = "labels" if baseline == "true-labels" else "classes"
            raise InvalidInput(
                f"{baseline!r} needs public rows whose true {needed} are known", where="methods"
            )
        if baseline == "class-holders":
            return class_holders(self.public_labels, self.holders)
        known = {name for names in self.holders.values() for name in names}
        return true_labels(self.public_labels, None if regression else class_order(known))

    @property
    def holdings(self) -> Holdings:
        """Numbers of rows of each class that each party holds."""
        data = self.dataset
        return who_holds_what(data.strata(data.y), self.rows, data.strata_names, self.names)

    def labels(self, y: Array) -> Array:
        """Class names of codes; values as they are."""
        return y if self.dataset.classes is None else np.asarray(self.dataset.classes)[y]


def gather(spec: Spec, seed: int, *, checked: bool = False) -> SimulatedParties:
    """Load the data, set the public rows aside, deal out the rest and the models.

    Args:
        spec: the configuration.
        seed: one of its seeds.
        checked: the models were made for another seed before, and are not tried again.

    Raises:
        ForeignCode: a model's code is of others, outside of :func:`~consilience.models.trusting`.
        InvalidInput: the data, the public rows, the partition or a model cannot be had as asked.
    """
    if not checked:
        spec.check_models()
    grouped, options = spec.partition.name == "group", _seeded(spec.data, seed)
    groups: tuple[str, ...] = ()
    if grouped and spec.without:  # read as if the others were all that there is
        groups = _groups(spec.data.name, json.dumps(options, sort_keys=True))
        options = {**options, "groups": staying(spec, groups)}
    dataset = _load(spec.data.name, json.dumps(options, sort_keys=True))
    if spec.data.flat:
        dataset = dataset.flat()
    if spec.data.test_rows is not None and spec.data.test_rows < len(dataset.X_test):
        drawn = stream(seed, "experiment", 0, "test").permutation(len(dataset.X_test))
        dataset = dataset.take_test(np.sort(drawn[: spec.data.test_rows]))
    asked = None if spec.outcome is None else spec.outcome.outcome()
    outcome = outcome_for(asked, dataset)
    check_two_classes(spec.report, dataset)
    late = [read_late(one, dataset) for one in spec.late if one.name not in spec.without]
    whole = with_rows(dataset, late)
    subgroups = subgroups_of(spec.report, whole, spec.data.options.get("group"))
    stay, public, labels = _public(spec, dataset, seed)
    encoder = None if spec.data.encoder is None else find_encoder(spec.data.encoder)
    scaling = None
    if spec.data.standardize:
        dataset, public, scaling = _standardized(dataset, public)
        if scaling is not None:
            whole = replace(whole, X=scaling(whole.X), X_test=scaling(whole.X_test))
    deal = dict(spec.partition.options)
    parties = spec.partition.parties
    if grouped:
        if dataset.group is None:
            raise InvalidInput(
                f"dataset {dataset.name!r} has no natural groups",
                where="partition",
                mend="For a table of your own name the column: data.group = …",
            )
        deal["group"] = dataset.group[stay]
        left = len(set(groups).intersection(spec.without))
        parties = parties - left if parties else len(np.unique(dataset.group))
    if parties is None:
        raise InvalidInput("needs the option 'parties'", where=f"partition {spec.partition.name}")
    by, kinds = PARTITIONS[spec.partition.name].by, dataset.strata(dataset.y)
    y = kinds[stay]
    if by == "inputs":  # test rows are dealt by the rule that is made of the private ones
        encode = np.asarray if dataset.schema is None else dataset.schema.encode
        X = encode(np.concatenate([dataset.X[stay], dataset.X_test]))
        deal |= {"X": X, "fitted": len(stay)}
        y = np.concatenate([y, dataset.strata(dataset.y_test)])
    dealt = partition(
        spec.partition.name, y, parties, stream(seed, "experiment", 0, "partition"), **deal
    )
    for model in (*spec.models, *(one.model for one in spec.late)):
        kind = _kind(model)
        bins = outcome is not None
        if (kind == "classification") != (bins or dataset.classes is not None):
            has = "bins" if bins else "values" if dataset.classes is None else "classes"
            raise InvalidInput(
                f"it is for {kind}, and dataset {dataset.name!r} has {has}"
                + (", which models of classes learn" if bins else ""),
                where=f"model {model.name!r}",
                mend="Choose another: consilience list learners. A torch model takes kind = …; where a table "
                f'of your own is read wrongly, say data.kind = "{kind}".',
            )
    width = len(str(parties))
    names = [f"party-{i:0{width}d}" for i in range(1, parties + 1)]
    if grouped:
        names = np.unique(deal["group"]).tolist()
    held = dict(zip(names, dealt, strict=True))
    brought = dict(zip(groups or names, _dealt(spec.models, groups or names), strict=True))
    names = names if groups else staying(spec, names)
    private = [held[name][held[name] < len(stay)] for name in names]
    tests = [held[name][held[name] >= len(stay)] - len(stay) for name in names]
    setup = SimulatedParties(
        dataset=dataset,
        public=public.with_encoder(encoder),
        public_labels=labels,
        names=tuple(names),
        rows=tuple(stay[rows] for rows in private),
        own_tests=own_tests(dataset, by, names, [kinds[stay[rows]] for rows in private], tests),
        models=tuple(brought[name] for name in names),
        calibration=spec.calibration,
        purpose=spec.purpose,
        trusts=spec.trusts,
        scaling=scaling,
        subgroups=subgroups,
        outcome=outcome,
    )
    return with_late(setup, whole, late) if late else setup


def with_late(
    setup: SimulatedParties, whole: Dataset, late: Sequence[LateRows]
) -> SimulatedParties:
    """Add late parties to a setup: a party's own test rows are those of its file.

    Args:
        setup: of the parties that are there from the start.
        whole: the dataset with all rows, scaled as the setup's.
        late: the late parties.

    Raises:
        InvalidInput: two parties of one name.
    """
    first, n = len(setup.dataset.X), len(setup.dataset.X_test)
    tests = len(whole.X_test)
    found: dict[str, tuple[Array, Array, ModelSpec]] = {
        name: (rows, np.append(own, np.zeros(tests - n)), model)
        for name, rows, own, model in zip(
            setup.names, setup.rows, setup.own, setup.models, strict=True
        )
    }
    for one in late:
        if one.spec.name in found:
            raise InvalidInput(f"two parties are called {one.spec.name!r}", where="late")
        own = np.zeros(tests)
        own[n : n + len(one.y_test)] = 1
        model = one.spec.model.model_copy(update={"labels": one.spec.data.labels})
        rows = np.arange(first, first + len(one.y))
        found[one.spec.name] = rows, own if own.any() else np.ones(tests), model
        first, n = first + len(one.y), n + len(one.y_test)
    names = tuple(sorted(found))
    return replace(
        setup,
        dataset=whole,
        names=names,
        rows=tuple(found[name][0] for name in names),
        own_tests=tuple(found[name][1] for name in names),
        models=tuple(found[name][2] for name in names),
    )


def everyone(spec: Spec, setup: SimulatedParties) -> list[Party] | Population:
    """Make new parties, or have them made when they are asked, where the configuration says so."""
    if spec.network.kind == "population":
        return Population(setup.names, setup.maker(), live=spec.network.live)
    return setup.parties()


def _dealt(models: Sequence[ModelSpec], names: Sequence[str]) -> tuple[ModelSpec, ...]:
    """The model of each party: the one that names it, or the next of those that name nobody.

    Raises:
        InvalidInput: a model names no party that there is, or a party has none.
    """
    named = {model.party: model for model in models if model.party is not None}
    others = [model for model in models if model.party is None]
    for party in named:
        if party not in names:
            raise InvalidInput(
                f"no party is called {party!r}", where="models", mend=nearest(party, names)
            )
    left = [name for name in names if name not in named]
    if left and not others:
        raise InvalidInput(
            f"there is no model for party {left[0]!r}",
            where="models",
            mend=f'Add models.{left[0]} = {{ name = … }}, or models."*" for all that are not named.',
        )
    turn = {name: others[i % len(others)] for i, name in enumerate(left)}
    return tuple(named.get(name) or turn[name] for name in names)


@lru_cache(maxsize=64)  # the same for every seed
def _kind(model: ModelSpec) -> Kind:
    return make(model.name, **model.options).abilities.kind


def _public(spec: Spec, dataset: Dataset, seed: int) -> tuple[Array, Public, Array | None]:
    """Rows that stay private, public rows, and the public rows' true labels where they are known."""
    if spec.data.public_file is not None:
        X = read_rows(spec.data.public_file, dataset.columns, like=dataset.schema).X
        shared = same_rows(dataset.X_test, X)
        if shared.mean() > 0.5:
            raise InvalidInput(
                f"{shared.sum():,} of {len(shared):,} test rows are among its rows",
                where="data.public_file",
                mend="Parties would be taught on the rows that they are measured on: leave test rows out.",
            )
        return np.arange(len(dataset.X)), Public(X, _schema(dataset, X)), None
    if not spec.data.public:
        return np.arange(len(dataset.X)), Public.none(dataset.schema), None
    stay, aside = take_public(
        dataset.strata(dataset.y),
        spec.data.public,
        stream(seed, "experiment", 0, "public"),
        group=dataset.group,
    )
    classes = dataset.classes
    labels = dataset.y[aside] if classes is None else np.asarray(classes)[dataset.y[aside]]
    X = dataset.X[aside]
    return stay, Public(X, _schema(dataset, X)), None if spec.outcome or dataset.labels else labels


def _schema(dataset: Dataset, X: Array) -> Schema | None:
    """The schema of the dataset's columns, its medians and scales of the public rows alone."""
    return None if dataset.schema is None else dataset.schema.measured(X)


def _standardized(dataset: Dataset, public: Public) -> tuple[Dataset, Public, Scaling | None]:
    """All inputs on the scale of the public rows, which every party has: no private row is looked at."""
    if dataset.is_text:
        raise InvalidInput(
            f"the rows of dataset {dataset.name!r} are texts, which have no scale",
            where="data.standardize",
            mend="Leave it out.",
        )
    if dataset.schema is not None and not dataset.schema.plain:
        return dataset, public, None  # what its encoder does
    check_alike(dataset.X, public.X, where="data.standardize")
    scaling = Scaling.of(public.X)
    scaled = replace(dataset, X=scaling(dataset.X), X_test=scaling(dataset.X_test))
    X = scaling(public.X)
    return scaled, Public(X, _schema(dataset, X)), scaling


def _seeded(data: DataSpec, seed: int) -> dict[str, Any]:
    """The loader's options; one that draws the test rows itself draws them by the run's seed."""
    takes = inspect.signature(DATASETS[data.name].loader).parameters
    return {"seed": seed, **data.options} if "seed" in takes else data.options


@lru_cache(maxsize=1)
def _groups(name: str, options: str) -> tuple[str, ...]:
    """Names of all natural groups of a dataset; options as of :func:`_load`."""
    found = load(name, **json.loads(options)).group
    return () if found is None else tuple(np.unique(found).tolist())


@lru_cache(maxsize=1)
def _load(name: str, options: str) -> Dataset:
    """The dataset, kept for the next seed; options come as JSON, which can be a key where lists cannot."""
    return load(name, **json.loads(options))
