"""What to run: a configuration file, validated before anything else happens.

name = "digits"
seeds = 3                                   # 0, 1, 2; or a list
methods = ["local", "avg", "uwa", { aggregate = "suwa", temperature = 0.1 }, "central"]

[data]
name = "digits"                             # consilience list datasets
public = 500                                # rows set aside unlabelled: a number, or a share

[partition]
name = "classes"                            # consilience list partitions
parties = 10
per_party = 2

[[models]]                                  # dealt to the parties in turn
name = "random-forest"                      # consilience list learners, or "package.module:Class"
n_estimators = 100

[protocol]
name = "ensemble_distillation"              # consilience list protocols
rounds = 10
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from consilience.aggregation import (
    AGGREGATORS,
    CONSENSUS,
    Aggregator,
    ConsensusUpdate,
    Deregularization,
)
from consilience.data import DATASETS, PARTITIONS
from consilience.errors import InvalidInput, nearest
from consilience.learners import make
from consilience.options import check_options
from consilience.protocols import PROTOCOLS, Protocol

_KERNEL_RIDGE = {"regularization": 1e-3, "kernel": "rbf", "gamma": None, "degree": 3, "coef0": 1.0}
"""What de-regularisation and the models must agree on, with the models' defaults."""

BASELINES = {
    "local": "every party alone, trained as often",
    "central": "every party's model trained on all private rows pooled: what sharing data would give",
    "oracle": "a teacher that knows which parties hold each public row's true class",
}
"""Methods that only an experiment can run, beside the aggregators."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Open(BaseModel):
    """A section that names something and passes its other keys on as options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def options(self) -> dict[str, Any]:
        """The keys that are not the section's own."""
        return dict(self.model_extra or {})


class DataSpec(_Open):
    """Which rows: a dataset's name and its loader's options, and how many become public.

    Attributes:
        name: a dataset.
        public: rows set aside without labels: a number (int), or a share in (0, 1) (float).
        public_file: a file with the public rows, for a table of your own; ``public`` then does not count.
        test_rows: measure on this many of the test rows, drawn by the seed; by default on all.
        flat: give every row to the models as one vector, for images.
        standardize: centre and scale every input by the mean and standard deviation of the public rows, the
            same at every party.
    """

    name: str
    public: int | float | None = None
    public_file: Path | None = None
    test_rows: int | None = Field(default=None, ge=1)
    flat: bool = False
    standardize: bool = False


class PartitionSpec(_Open):
    """Who holds which rows.

    Attributes:
        name: a partition.
        parties: how many; with ``"group"`` as many as there are groups.
    """

    name: str = "iid"
    parties: int | None = Field(default=None, ge=1)


class ModelSpec(_Open):
    """A model by name or import path; other keys are its parameters."""

    name: str


class ProtocolSpec(_Open):
    """A protocol and its options, the aggregator aside.

    Attributes:
        consensus: a consensus step by name, with options if given as a table.
        deregularize: the arguments of :class:`~consilience.aggregation.Deregularization`, for protocols
            that take one.
    """

    name: str = "ensemble_distillation"
    rounds: int = Field(default=10, ge=1)
    consensus: str | dict[str, Any] = "replace"
    deregularize: dict[str, Any] | None = None

    def consensus_step(self) -> ConsensusUpdate:
        """The consensus step that is named."""
        chosen = {"name": self.consensus} if isinstance(self.consensus, str) else self.consensus
        name = str(chosen.get("name"))
        options = {key: value for key, value in chosen.items() if key != "name"}
        _known(name, CONSENSUS, "consensus")
        check_options(CONSENSUS[name], options, where=f"consensus {name}")
        return CONSENSUS[name](**options)

    def further_options(self) -> dict[str, Any]:
        """What is passed on beside rounds and consensus."""
        if self.deregularize is None:
            return self.options
        check_options(Deregularization, self.deregularize, where="deregularize")
        return {**self.options, "deregularize": Deregularization(**self.deregularize)}


class MethodSpec(_Open):
    """One line of the results table: a baseline, or an aggregator with its options.

    Attributes:
        aggregate: a baseline or an aggregator.
        label: as tables show it.
        protocol: options that differ from ``[protocol]`` for this method.
    """

    aggregate: str
    label: str = ""
    protocol: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _name_itself(self) -> MethodSpec:
        values = ", ".join(f"{value}" for value in self.options.values())
        if not self.label:
            object.__setattr__(self, "label", self.aggregate + (f"({values})" if values else ""))
        return self


class NetworkSpec(_Section):
    """Where the parties live.

    Attributes:
        kind: ``"local"``; ``"wire"``, the same through bytes; or ``"processes"``.
        processes: workers, for ``"processes"``.
        timeout: seconds a party may take to answer.
        quorum: parties that must answer: a number, or a share.
        threads: numerical threads per process.
    """

    kind: Literal["local", "wire", "processes"] = "local"
    processes: int = Field(default=2, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    quorum: int | float = 0.5
    threads: int = Field(default=1, ge=1)


class Spec(_Section):
    """A whole configuration file.

    Attributes:
        name: of the experiment; run folders are called after it.
        seeds: a number of seeds, 0 upwards, or a list of them.
        methods: lines of the results table.
        metric: what the results table shows.
        calibration: share of each party's rows kept from training.
        strict: refuse a party with one class, and a class that one party alone knows; by default where
            parties are natural groups, whose labels may be misspelt, and not where a partition made them.
        evaluate_every: rounds between measurements on the test rows.
        keep_models: of which seeds the trained models are kept in the run folder.
        checkpoint_seconds: no checkpoint sooner than this after the last one.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    seeds: int | tuple[int, ...] = 1
    methods: tuple[MethodSpec, ...] = ("local", "avg", "uwa", "suwa", "central")  # type: ignore[assignment]
    metric: Literal["accuracy", "accuracy_local", "log_loss", "auc", "mse", "r2"] | None = None
    calibration: float = Field(default=0.2, ge=0, lt=1)
    strict: bool | None = None
    evaluate_every: int = Field(default=1, ge=1)
    keep_models: Literal["first", "all", "none"] = "first"
    checkpoint_seconds: float = Field(default=5.0, ge=0)
    data: DataSpec
    partition: PartitionSpec = PartitionSpec()
    models: tuple[ModelSpec, ...] = Field(min_length=1)
    protocol: ProtocolSpec = ProtocolSpec()
    network: NetworkSpec = NetworkSpec()

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _methods_by_name(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            methods = given.get("methods", cls.model_fields["methods"].default)
            if isinstance(methods, Sequence) and not isinstance(methods, str):
                named = [{"aggregate": m} if isinstance(m, str) else m for m in methods]
                return {**given, "methods": named}
        return given

    @property
    def strictly(self) -> bool:
        """Whether odd class lists are refused."""
        return self.partition.name == "group" if self.strict is None else self.strict

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds, spelled out."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def check(self) -> None:
        """Raise ``InvalidInput`` on a name or option that nothing here knows."""
        seeds = self.seed_list
        if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise InvalidInput(
                f"seeds is {self.seeds}",
                where="seeds",
                mend="Give a number of seeds, 1 or more, or a list of different ones, 0 or more.",
            )
        _known(self.data.name, DATASETS, "dataset")
        check_options(
            DATASETS[self.data.name].loader,
            self.data.options,
            where=f"dataset {self.data.name}",
            also=DataSpec.model_fields,
        )
        _known(self.partition.name, PARTITIONS, "partition")
        check_options(
            PARTITIONS[self.partition.name].deal,
            self.partition.options,
            where=f"partition {self.partition.name}",
            given=("y", "parties", "rng", "group"),
        )
        for model in self.models:
            make(model.name, **model.options)
        labels = [method.label for method in self.methods]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice or not labels:
            raise InvalidInput(
                f"two methods are called {twice[0]!r}" if twice else "there are no methods",
                where="methods",
                mend="Give each a label of its own: { aggregate = …, label = … }."
                if twice
                else None,
            )
        for method in self.methods:
            self.protocol_for(method)
            if method.aggregate not in BASELINES:
                self._check_deregularized(method)

    def _check_deregularized(self, method: MethodSpec) -> None:
        """Raise ``InvalidInput`` unless de-regularisation fits every model: what it does not fit blows up."""
        given = self._protocol_of(method).deregularize
        if given is None or given["regularization"] == 0:
            return
        where = f"method {method.label}, deregularize"
        for i, model in enumerate(self.models):
            if model.name != "kernel-ridge" and not model.name.endswith(":KernelRidge"):
                raise InvalidInput(
                    f"models.{i} is {model.name}, and only kernel ridge regressions can be de-regularised",
                    where=where,
                    mend="Make every model kernel-ridge, or leave deregularize out.",
                )
            for key, usual in _KERNEL_RIDGE.items():
                ours, theirs = given.get(key, usual), model.options.get(key, usual)
                if ours != theirs:
                    raise InvalidInput(
                        f"{key} is {ours!r}, and {theirs!r} in models.{i}",
                        where=where,
                        mend="All need the same kernel and the same regularisation, a number.",
                    )

    def aggregator(self, method: MethodSpec) -> Aggregator:
        """The aggregator of a method that is not a baseline."""
        _known(method.aggregate, {**AGGREGATORS, **BASELINES}, "method")
        factory = AGGREGATORS[method.aggregate]
        check_options(factory, method.options, where=f"aggregator {method.aggregate}")
        return factory(**method.options)

    def protocol_for(self, method: MethodSpec, aggregate: Aggregator | None = None) -> Protocol:
        """The protocol of a method, ready to run; ``aggregate`` replaces the one it names."""
        if method.aggregate in ("local", "central"):
            _no_options(method)
            return PROTOCOLS["local_only"](rounds=self.protocol.rounds)
        if method.aggregate == "oracle":
            _no_options(method)
            aggregate = aggregate or AGGREGATORS["avg"]()
        spec = self._protocol_of(method)
        _known(spec.name, PROTOCOLS, "protocol")
        factory = PROTOCOLS[spec.name]
        options = {"rounds": spec.rounds, **spec.further_options()}
        given = ("network", "public", "state", "aggregate", "consensus")
        check_options(factory, options, where=f"protocol {spec.name}", given=given)
        return factory(
            aggregate=aggregate or self.aggregator(method),
            consensus=spec.consensus_step(),
            **options,
        )

    def _protocol_of(self, method: MethodSpec) -> ProtocolSpec:
        """``[protocol]``, with what the method sets otherwise."""
        try:
            return ProtocolSpec(**{**self.protocol.model_dump(), **method.protocol})
        except ValidationError as error:
            raise _first_of(error, f"method {method.label}, protocol") from error


QUICK: Mapping[str, Any] = {"seeds": 1, "protocol.rounds": 2}
"""What ``--quick`` sets: the whole path, in a fraction of the time; its figures mean nothing."""


def read_spec(
    path: Path, settings: Sequence[str] = (), *, overrides: Mapping[str, Any] = {}
) -> Spec:
    """Read a configuration file.

    Args:
        path: a TOML file.
        settings: ``key=value`` pairs that replace what the file says; dots reach into sections and
            lists (``models.0.name``), values are TOML (bare words are strings).
        overrides: the same, already parsed; they win.

    Raises:
        InvalidInput: no such file, not TOML, unknown keys or values, each with the nearest valid name.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidInput("there is no such file", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"this is not TOML: {error}", where=str(path)) from error
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(path)) from error
    given = [_setting(text) for text in settings]
    for key, value in [*given, *overrides.items()]:
        _put(document, key, value)
    return parse_spec(document, where=str(path), relative_to=path.parent)


def parse_spec(document: Mapping[str, Any], *, where: str, relative_to: Path | None = None) -> Spec:
    """Validate a parsed configuration; file names in it are relative to ``relative_to``."""
    document = json.loads(json.dumps(document, default=str))
    if relative_to is not None and isinstance(document.get("data"), dict):
        for key in ("path", "test_path", "public_file"):
            if isinstance(document["data"].get(key), str):
                document["data"][key] = str((relative_to / document["data"][key]).resolve())
    try:
        spec = Spec.model_validate(document)
    except ValidationError as error:
        raise _first_of(error, where) from error
    spec.check()
    return spec


def _first_of(error: ValidationError, where: str) -> InvalidInput:
    """The first complaint in our own words, unknown keys with their nearest valid name."""
    first = error.errors()[0]
    # Pydantic names the type it tried last, which is no place in the file.
    tried = re.compile(r"^(int|float|str|tuple\[.*|dict\[.*)$")
    place = [str(part) for part in first["loc"] if not tried.match(str(part))]
    if first["type"] == "extra_forbidden":
        section: Any = Spec
        for part in place[:-1]:
            section = section.model_fields[part].annotation if not part.isdigit() else section
        return InvalidInput(
            f"unknown key {'.'.join(place)!r}",
            where=where,
            mend=nearest(place[-1], section.model_fields),
        )
    said = (
        "it should be a table"
        if first["type"] in ("model_type", "dict_type")
        else first["msg"][:1].lower() + first["msg"][1:]
    )
    what = f"{'.'.join(place)}: {said.replace('tuple', 'list')}"
    if first["type"] not in ("missing", "too_short"):
        what += f", not {first['input']!r}"
    return InvalidInput(what, where=where)


def _known(name: str, registry: Mapping[str, Any], what: str) -> None:
    if name not in registry:
        raise InvalidInput(f"unknown {what} {name!r}", mend=nearest(name, registry))


def _no_options(method: MethodSpec) -> None:
    if method.options:
        raise InvalidInput(
            f"unknown option {next(iter(method.options))!r}", where=f"method {method.aggregate}"
        )


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidInput(f"{text!r} is not key=value", where="--set")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _put(document: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    place: Any = document
    for section in sections:
        place = (
            place.setdefault(section, {})
            if isinstance(place, dict)
            else _entry(place, section, key)
        )
    if isinstance(place, dict):
        place[last] = value
    else:
        _entry(place, last, key)
        place[int(last)] = value


def _entry(place: Any, position: str, key: str) -> Any:
    """One entry of a list, as in ``models.0.name``."""
    if not isinstance(place, list):
        raise InvalidInput(
            f"what stands before {position!r} in {key!r} is not a section", where="--set"
        )
    if not position.isdecimal() or int(position) >= len(place):
        raise InvalidInput(
            f"{position!r} in {key!r} is not from 0 to {len(place) - 1}", where="--set"
        )
    return place[int(position)]
