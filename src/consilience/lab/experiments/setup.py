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
from consilience.core.numerics.outcomes import Classes, Outcome
from consilience.core.numerics.randomness import stream
from consilience.core.party.party import Party
from consilience.core.party.personalizer import Purpose
from consilience.core.party.rules import PartyRules
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
        dataset: dataset of all rows.
        public: the public rows, possibly none.
        public_labels: their true labels, which only experiments have; ``None`` for rows without.
        names: names of the parties, sorted.
        rows: per party, indices of its private rows in the dataset.
        own_tests: per party, weights of the dataset's test rows as its local test set, shape ``(n_test,)``;
            ``None`` if they follow from its classes (:meth:`own`).
        models: per party, its model.
        calibration: share of the private rows kept from training.
        purpose: rows that every party's predictions are for.
        trusts: packages of models that every party accepts from others.
        scaling: scaling applied to all inputs above; ``None`` if they are unscaled.
        subgroups: group of each test row, for the report by subgroup; empty without configured subgroups.
        outcome: predicted outcome; ``None`` for classes or values.
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
        declared = None if budget is None else Classes(self.dataset.classes or ())

        def made(name: str) -> Party:
            own, weights, model = held[name]
            party = Party(
                name,
                make(model.name, **model.options),
                self.dataset.X[own],
                self.labels(self.dataset.y[own]) if pooled or model.labels else None,
                test=(*test, weights),
                calibration=self.calibration,
                purpose=self.purpose,
                outcome=self.outcome or declared,
                rules=PartyRules(trusts=self.trusts, sends_rows=model.sends_rows),
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
        """Make a party with other rows of the dataset, and the public rows; a single test row spares time."""
        model = self.models[self.names.index(name)]
        data, tests = self.dataset.take_test(np.arange(1)), (np.ones(1),)
        one = replace(
            self, names=(name,), rows=(rows,), models=(model,), own_tests=tests, dataset=data
        )
        party = one.maker(budget=budget)(name)
        party.hold_public(self.public)
        return party

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
        """Make the teacher of an oracle baseline, which uses the public rows' true labels.

        Returns:
            The aggregator; ``None`` for other methods.

        Raises:
            InvalidInput: the labels are unknown, or ``class-holders`` is used for values.
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
        return _labels(self.dataset, y)


@prints_no_rows
@dataclass(frozen=True)
class _Source:
    """Dataset of a configuration, before any row is set aside.

    Attributes:
        dataset: rows of the parties present from the start.
        groups: names of all natural groups if some are excluded; empty otherwise.
        outcome: predicted outcome; ``None`` for classes or values.
        late: rows of the parties that join later.
        subgroups: group of each test row, those of late parties included.
    """

    dataset: Dataset
    groups: tuple[str, ...]
    outcome: Outcome | None
    late: tuple[LateRows, ...]
    subgroups: tuple[str, ...]


@prints_no_rows
@dataclass(frozen=True)
class _Rows:
    """Rows of a dataset, divided into private and public ones.

    Attributes:
        dataset: all rows.
        stay: indices of the private rows.
        public: public rows.
        labels: true labels of the public rows; ``None`` if they are unknown.
        scaling: transformation of all inputs; ``None`` for none.
    """

    dataset: Dataset
    stay: Array
    public: Public
    labels: Array | None
    scaling: Scaling | None = None


@prints_no_rows
@dataclass(frozen=True)
class _Share:
    """Share of one party in the rows.

    Attributes:
        rows: indices of its private rows.
        kinds: classes or values of its private rows, by which rows are dealt.
        tests: indices of the test rows dealt to it by their inputs.
    """

    rows: Array
    kinds: Array
    tests: Array


def gather(spec: Spec, seed: int, *, checked: bool = False) -> SimulatedParties:
    """Load the data, set the public rows aside, deal out the rest and the models.

    Args:
        spec: the configuration.
        seed: one of its seeds.
        checked: the models were made for another seed before, and are not tried again.

    Returns:
        Data and parties of the seed.

    Raises:
        ForeignCode: a model's code is foreign, outside of :func:`~consilience.models.trusting`.
        InvalidInput: the data, the public rows, the partition or a model cannot be made as configured.
    """
    if not checked:
        spec.check_models()
    source = _read(spec, seed)
    rows = _scaled(spec.data, _set_aside(spec, source.dataset, seed))
    shares = _deal_rows(spec, source.groups, rows, seed)
    _check_kinds(spec, source)
    models = _deal_models(spec.models, source.groups or tuple(shares))
    names = tuple(shares if source.groups else staying(spec, tuple(shares)))
    held, by = [shares[name] for name in names], PARTITIONS[spec.partition.name].by
    kinds, tests = [one.kinds for one in held], [one.tests for one in held]
    setup = SimulatedParties(
        dataset=rows.dataset,
        public=rows.public,
        public_labels=rows.labels,
        names=names,
        rows=tuple(one.rows for one in held),
        own_tests=own_tests(rows.dataset, by, names, kinds, tests),
        models=tuple(models[name] for name in names),
        calibration=spec.calibration,
        purpose=spec.purpose,
        trusts=spec.trusts,
        scaling=rows.scaling,
        subgroups=source.subgroups,
        outcome=source.outcome,
    )
    return _with_late(setup, source.late)


def everyone(
    spec: Spec, names: Sequence[str], make: Callable[[str], Party]
) -> list[Party] | Population:
    """Make new parties: all at once, or on demand if the configured network is a population.

    Args:
        spec: the configuration.
        names: names of the parties.
        make: function that makes a new party from its name.

    Returns:
        The parties, or the population that makes them on demand.
    """
    if spec.network.kind == "population":
        return Population(names, make, live=spec.network.live)
    return list(map(make, names))


# The stages of gathering, in their order.


def _read(spec: Spec, seed: int) -> _Source:
    """Load the dataset and the rows of late parties."""
    options, groups = _seeded(spec.data, seed), tuple[str, ...]()
    if spec.partition.name == "group" and spec.without:
        # Read as if the others were all that there is.
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
    late = tuple(read_late(one, dataset) for one in spec.late if one.name not in spec.without)
    column = spec.data.options.get("group")
    subgroups = subgroups_of(spec.report, with_rows(dataset, late), column)
    return _Source(dataset, groups, outcome, late, subgroups)


def _set_aside(spec: Spec, dataset: Dataset, seed: int) -> _Rows:
    """Choose the public rows, or read them from their file."""
    everything = np.arange(len(dataset.X))
    if spec.data.public_file is not None:
        X = read_rows(spec.data.public_file, dataset.columns, like=dataset.schema).X
        shared = same_rows(dataset.X_test, X)
        if shared.mean() > 0.5:
            raise InvalidInput(
                f"{shared.sum():,} of {len(shared):,} test rows are among its rows",
                where="data.public_file",
                mend="Parties would be taught on the rows that they are measured on: leave test rows out.",
            )
        return _Rows(dataset, everything, Public(X, _schema(dataset, X)), None)
    if not spec.data.public:
        return _Rows(dataset, everything, Public.none(dataset.schema), None)
    stay, aside = take_public(
        dataset.strata(dataset.y),
        spec.data.public,
        stream(seed, "experiment", 0, "public"),
        group=dataset.group,
    )
    X = dataset.X[aside]
    known = None if spec.outcome or dataset.labels else _labels(dataset, dataset.y[aside])
    return _Rows(dataset, stay, Public(X, _schema(dataset, X)), known)


def _scaled(spec: DataSpec, rows: _Rows) -> _Rows:
    """Scale all inputs by the public rows if configured, and set the encoder of the public rows.

    The scaling uses only public rows, which every party has; no private row is used.
    """
    encoder = None if spec.encoder is None else find_encoder(spec.encoder)
    dataset, public, scaling = rows.dataset, rows.public, None
    if spec.standardize and dataset.is_text:
        raise InvalidInput(
            f"the rows of dataset {dataset.name!r} are texts, which have no scale",
            where="data.standardize",
            mend="Leave it out.",
        )
    # An encoder scales the columns of a schema that is not plain.
    if spec.standardize and (dataset.schema is None or dataset.schema.plain):
        check_alike(dataset.X, public.X, where="data.standardize")
        scaling = Scaling.of(public.X)
        dataset = replace(dataset, X=scaling(dataset.X), X_test=scaling(dataset.X_test))
        X = scaling(public.X)
        public = Public(X, _schema(dataset, X))
    return replace(rows, dataset=dataset, public=public.with_encoder(encoder), scaling=scaling)


def _deal_rows(spec: Spec, groups: Sequence[str], rows: _Rows, seed: int) -> dict[str, _Share]:
    """Divide the private rows among the parties, by name."""
    dataset, stay, chosen = rows.dataset, rows.stay, spec.partition
    options, parties = dict(chosen.options), chosen.parties
    if chosen.name == "group":
        if dataset.group is None:
            raise InvalidInput(
                f"dataset {dataset.name!r} has no natural groups",
                where="partition",
                mend="For a table of your own name the column: data.group = …",
            )
        options["group"] = dataset.group[stay]
        left = len(set(groups).intersection(spec.without))
        parties = parties - left if parties else len(np.unique(dataset.group))
    if parties is None:
        raise InvalidInput("needs the option 'parties'", where=f"partition {chosen.name}")
    y = dataset.strata(dataset.y)[stay]
    if PARTITIONS[chosen.name].by == "inputs":
        # Test rows are dealt by the rule that is made of the private ones.
        encode = np.asarray if dataset.schema is None else dataset.schema.encode
        X = encode(np.concatenate([dataset.X[stay], dataset.X_test]))
        options |= {"X": X, "fitted": len(stay)}
        y = np.concatenate([y, dataset.strata(dataset.y_test)])
    draws = stream(seed, "experiment", 0, "partition")
    dealt = partition(chosen.name, y, parties, draws, **options)
    names = [f"party-{i:0{len(str(parties))}d}" for i in range(1, parties + 1)]
    if chosen.name == "group":
        names = np.unique(options["group"]).tolist()
    n = len(stay)
    return {
        name: _Share(stay[own := held[held < n]], y[own], held[held >= n] - n)
        for name, held in zip(names, dealt, strict=True)
    }


def _check_kinds(spec: Spec, source: _Source) -> None:
    """Raise ``InvalidInput`` if a model predicts another kind of target than the dataset has."""
    dataset, bins = source.dataset, source.outcome is not None
    for model in (*spec.models, *(one.model for one in spec.late)):
        kind = _kind(model)
        if (kind == "classification") != (bins or dataset.classes is not None):
            has = "bins" if bins else "values" if dataset.classes is None else "classes"
            raise InvalidInput(
                f"it is for {kind}, and dataset {dataset.name!r} has {has}"
                + (", which models of classes learn" if bins else ""),
                where=f"model {model.name!r}",
                mend="Choose another: consilience list learners. A torch model takes kind = …; where a table "
                f'of your own is read wrongly, say data.kind = "{kind}".',
            )


def _deal_models(models: Sequence[ModelSpec], names: Sequence[str]) -> dict[str, ModelSpec]:
    """Give each party the model configured for its name, or the next of the unnamed models in turn.

    Raises:
        InvalidInput: a model names a party that does not exist, or a party has no model.
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
    return {name: named.get(name) or turn[name] for name in names}


def _with_late(setup: SimulatedParties, late: Sequence[LateRows]) -> SimulatedParties:
    """Add late parties to a setup: a party's own test rows are those of its file.

    Raises:
        InvalidInput: two parties of one name.
    """
    if not late:
        return setup
    if (scaling := setup.scaling) is not None:
        late = [replace(one, X=scaling(one.X), X_test=scaling(one.X_test)) for one in late]
    whole = with_rows(setup.dataset, late)
    first, n, tests = len(setup.dataset.X), len(setup.dataset.X_test), len(whole.X_test)
    brought = zip(setup.rows, setup.own, setup.models, strict=True)
    held = [(rows, np.append(own, np.zeros(tests - n)), model) for rows, own, model in brought]
    found = dict(zip(setup.names, held, strict=True))
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
    rows_of, own_of, models = zip(*(found[name] for name in names), strict=True)
    return replace(setup, dataset=whole, names=names, rows=rows_of, own_tests=own_of, models=models)


# What the stages use.


@lru_cache(maxsize=64)  # the same for every seed
def _kind(model: ModelSpec) -> Kind:
    return make(model.name, **model.options).abilities.kind


def _schema(dataset: Dataset, X: Array) -> Schema | None:
    """The schema of the dataset's columns, its medians and scales of the public rows alone."""
    return None if dataset.schema is None else dataset.schema.measured(X)


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


def _labels(dataset: Dataset, y: Array) -> Array:
    """Class names of codes; values as they are."""
    return y if dataset.classes is None else np.asarray(dataset.classes)[y]
