"""Methods and protocols of a configuration: the tables of a TOML file, their checks, and their objects.

A method is one line of a results table: a baseline, an aggregator under a protocol, or a protocol that takes
no aggregator. Experiments and coordinators use the same names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import Field, ValidationError, model_validator

from consilience.core.aggregation import (
    AGGREGATORS,
    CONSENSUS,
    Aggregator,
    Deregularization,
)
from consilience.core.errors import InvalidInput, odd_name
from consilience.core.protocols import ALSO_CALLED, PROTOCOLS, PYTHON_ONLY, Protocol
from consilience.core.protocols.rounds import SECURE
from consilience.core.validation.arguments import check_arguments
from consilience.lab.config.sections import Open, Whole, first_of, known
from consilience.methods.compression.codec import CODECS, chain
from consilience.privacy.accounting.budget import Budget
from consilience.privacy.secure_aggregation.rounds import SecureAggregation

T = TypeVar("T")

BASELINES = {
    "local": "every party alone, trained as often",
    "central": "every party's model trained on all private rows pooled: what sharing data would give",
    "class-holders": "the mean of the parties that hold each public row's true class",
    "true-labels": "true labels of the public rows as the teacher: what is to be had of these rows",
}
"""Methods that only an experiment can run, beside the aggregators."""

INFORMED = ("class-holders", "true-labels")
"""Baselines whose teacher reads the public rows' true labels."""


PROTOCOL_METHODS = {
    name: factory
    for name, factory in PROTOCOLS.items()
    if factory.exchanges is not None and not factory.takes("aggregate")
}
"""Protocols that are a method by themselves: parties exchange models or parameters."""


def method_lines() -> dict[str, str]:
    """Give every method that a configuration can name, with a line about it."""
    return BASELINES | first_lines(AGGREGATORS) | first_lines(PROTOCOL_METHODS)


def first_lines(functions: Mapping[str, Any]) -> dict[str, str]:
    """Give the first line of the docstring of every function."""
    lines = {name: inspect.getdoc(function) or "" for name, function in functions.items()}
    return {name: line.partition("\n")[0].replace("``", "") for name, line in lines.items()}


def check_protocol_name(name: str, registry: Mapping[str, Any], what: str) -> None:
    """Raise ``InvalidInput`` unless a registry has that name, with a hint for names of Python alone."""
    if name in PYTHON_ONLY:
        raise InvalidInput(
            f"{name!r} cannot be run from a file: {PYTHON_ONLY[name]}",
            mend=f"In Python: from consilience.core.protocols import {name}.",
        )
    known(name, registry, what, {**ALSO_CALLED, "oracle": "class-holders"})


class ProtocolSpec(Open):
    """A protocol and its options, without the aggregator.

    Attributes:
        consensus: a consensus step by name, with options if given as a table; by default the protocol's own.
        deregularize: the arguments of :class:`~consilience.core.aggregation.Deregularization`, for protocols
            that take one.
        codec: compression of messages: a codec by name, with options if given as a table, or a list of
            codecs; none by default.
        secure_aggregation: the arguments of
            :class:`~consilience.privacy.secure_aggregation.rounds.SecureAggregation`, or an empty table: the
            coordinator sees sums of the parties' answers, and no single one.
    """

    name: str = "ensemble_distillation"
    rounds: Whole = Field(default=10, ge=1)
    consensus: str | dict[str, Any] | None = None
    deregularize: dict[str, Any] | None = None
    codec: str | dict[str, Any] | tuple[str | dict[str, Any], ...] | None = None
    secure_aggregation: dict[str, Any] | None = None

    def arguments(self) -> dict[str, Any]:
        """Make the options of the protocol, its aggregator aside.

        Raises:
            InvalidInput: there is no such protocol, or it does not take an option.
        """
        check_protocol_name(self.name, PROTOCOLS, "protocol")
        options = {"rounds": self.rounds, **self.options}
        if self.consensus is not None:
            options["consensus"] = _named(self.consensus, CONSENSUS, "consensus")
        if self.deregularize is not None:
            check_arguments(Deregularization, self.deregularize, where="deregularize")
            options["deregularize"] = Deregularization(**self.deregularize)
        if self.codec is not None:
            given_codecs = self.codec if isinstance(self.codec, tuple) else (self.codec,)
            options["codec"] = chain(*(_named(one, CODECS, "codec") for one in given_codecs))
        if self.secure_aggregation is not None:
            check_arguments(SecureAggregation, self.secure_aggregation, where=SECURE)
            options[SECURE] = SecureAggregation(**self.secure_aggregation)
        given = ("network", "public", "state", "aggregate")
        check_arguments(PROTOCOLS[self.name], options, where=f"protocol {self.name}", given=given)
        return options


def _named(
    chosen: str | Mapping[str, Any], registry: Mapping[str, Callable[..., T]], what: str
) -> T:
    """Make the consensus step or codec that a configuration spells as a name or as a table."""
    options = {"name": chosen} if isinstance(chosen, str) else dict(chosen)
    if "name" not in options:
        raise InvalidInput(
            f"the {what} has options and no name", mend=f"name = … is one of {', '.join(registry)}."
        )
    name = str(options.pop("name"))
    known(name, registry, what)
    check_arguments(registry[name], options, where=f"{what} {name}")
    return registry[name](**options)


class MethodSpec(Open):
    """One line of the results table: a baseline, an aggregator, or a protocol that takes none.

    Other keys are options of the named baseline, aggregator or protocol.

    Attributes:
        aggregate: a baseline or an aggregator; ``None`` if the protocol takes none.
        label: label in tables.
        protocol: a protocol by name, or a table of options that replace those of ``[protocol]`` for this
            method. A protocol other than the one in ``[protocol]`` ignores inapplicable options from there.
        privacy: in an experiment, privacy budget of every party: the arguments of
            :class:`~consilience.privacy.accounting.stage.Budget`, such as ``{ epsilon = 3.0 }``; between
            sites the parties decide.
    """

    aggregate: str | None = None
    label: str = ""
    privacy: dict[str, Any] | None = None
    protocol: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, given: Any) -> Any:
        """A table for a name alone; options of a protocol in its own table."""
        if isinstance(given, str):
            given = {"protocol": given} if given in PROTOCOL_METHODS else {"aggregate": given}
        if not isinstance(given, Mapping) or "protocol" not in given:
            return given
        protocol = given["protocol"]
        table = {"name": protocol} if isinstance(protocol, str) else protocol
        if given.get("aggregate") is not None or not isinstance(table, Mapping):
            return {**given, "protocol": table}
        named = {key: value for key, value in given.items() if key in cls.model_fields}
        options = {key: value for key, value in given.items() if key not in named}
        return {**named, "protocol": {**table, **options}}

    @model_validator(mode="after")
    def _name_itself(self) -> MethodSpec:
        options = self.options or ({} if self.aggregate else self.protocol)
        values = ", ".join(f"{value}" for key, value in options.items() if key != "name")
        if not self.label:
            object.__setattr__(self, "label", self.named + (f"({values})" if values else ""))
        if why := odd_name(self.label):
            raise ValueError(f"this is no label of a method: {why}")
        return self

    @property
    def named(self) -> str:
        """Name of the method's baseline, aggregator or protocol."""
        return self.aggregate or str(self.protocol.get("name", ""))

    @property
    def needs_public(self) -> bool:
        """Tell whether it cannot do without public rows."""
        if self.aggregate is not None:
            return self.aggregate not in ("local", "central")
        needs = PROTOCOLS[self.named].needs_public if self.named in PROTOCOLS else False
        return bool(self.protocol.get(needs)) if isinstance(needs, str) else needs


def sums_without_noise(method: MethodSpec) -> bool:
    """Whether a method collects sums of rows by class without noise from the parties or from the masks."""
    if method.aggregate is not None or method.privacy is not None:
        return False
    made = PROTOCOLS.get(method.protocol.get("name", ""))
    secure = method.protocol.get(SECURE)
    return (
        made is not None
        and made.summed == "class sums"
        and not (isinstance(secure, Mapping) and secure.get("epsilon") is not None)
    )


def budget_of(method: MethodSpec) -> Budget | None:
    """Make the privacy budget of every party in a method; metrics are released outside of it.

    Returns:
        The budget; ``None`` if the method has none.

    Raises:
        InvalidInput: the budget is invalid, or the method requests data without a stated privacy cost.
    """
    if method.privacy is None:
        return None
    where = f"method {method.label}, privacy"
    check_arguments(Budget, method.privacy, where=where, given=("measured", "unit", "arrivals"))
    try:
        budget = Budget(**method.privacy, measured=True)
    except InvalidInput as error:
        raise error.located(where) from error
    if budget.training is None and method.named != "private_sums":
        raise InvalidInput(
            f"{method.named} asks parties with a budget for what has no stated cost",
            where=where,
            mend='Write { protocol = "private_sums", privacy = { epsilon = 3.0 } }.',
        )
    return budget


def aggregator_of(method: MethodSpec) -> Aggregator:
    """Make the aggregator of a method other than a baseline.

    Raises:
        InvalidInput: an unknown name or option, or the name of a protocol.
    """
    name = str(method.aggregate)
    check_protocol_name(name, {**AGGREGATORS, **BASELINES, **PROTOCOL_METHODS}, "method")
    if name in PROTOCOL_METHODS:
        raise InvalidInput(
            f"{name!r} is a protocol",
            where=f"method {method.label}",
            mend=f'Write {{ protocol = "{name}" }}.',
        )
    check_arguments(AGGREGATORS[name], method.options, where=f"aggregator {name}")
    return AGGREGATORS[name](**method.options)


def protocol_for(
    method: MethodSpec, shared: ProtocolSpec, aggregate: Aggregator | None = None
) -> Protocol:
    """Make the protocol of a method, ready to run.

    Args:
        method: the method.
        shared: the ``[protocol]`` section.
        aggregate: in place of the aggregator that the method names.

    Returns:
        The protocol with all its options.

    Raises:
        InvalidInput: an unknown name or option, or ones that do not go together.
    """
    budget = budget_of(method)
    if method.aggregate in ("local", "central"):
        _no_options(method)
        return PROTOCOLS["local_only"](rounds=shared.rounds)
    if method.aggregate in INFORMED:
        _no_options(method)
        aggregate = aggregate or AGGREGATORS["avg"]()
    elif method.aggregate is not None:
        aggregate = aggregate or aggregator_of(method)
    spec = _protocol_of(method, shared)
    arguments = spec.arguments()
    _goes_together(method, spec.name)
    if budget is not None and budget.noise == "shared":
        arguments[SECURE] = _sharing(arguments.get(SECURE), budget, method)
    if aggregate is not None:
        arguments["aggregate"] = aggregate
    return PROTOCOLS[spec.name](**arguments)


def _sharing(
    secure: SecureAggregation | None, budget: Budget, method: MethodSpec
) -> SecureAggregation:
    """The secure sums of a method whose parties share noise, with an ε for one of their releases."""
    if secure is None:
        raise InvalidInput(
            'noise = "shared" is for secure sums, and there are none',
            where=f"method {method.label}, privacy",
            mend="Write protocol.secure_aggregation = {}.",
        )
    if secure.epsilon is not None:
        return secure
    return replace(
        secure,
        epsilon=budget.epsilon if budget.each is None else budget.each,
        delta=budget.delta,
        colluding=budget.colluding,
        adjacency=budget.adjacency,
    )


def _protocol_of(method: MethodSpec, shared: ProtocolSpec) -> ProtocolSpec:
    """Merge the ``[protocol]`` section with the method's own settings, which take precedence."""
    options = shared.model_dump(exclude_none=True)
    name = method.protocol.get("name", shared.name)
    if name != shared.name:
        check_protocol_name(str(name), PROTOCOLS, "protocol")
        if SECURE in options and not PROTOCOLS[name].takes(SECURE):
            raise InvalidInput(
                f"{name} shows the coordinator more than sums",
                where=f"method {method.label}, {SECURE}",
                mend="Run it by itself, without this table; masks are for "
                + ", ".join(one for one, factory in PROTOCOLS.items() if factory.summed)
                + ".",
            )
        options = {key: given for key, given in options.items() if PROTOCOLS[name].takes(key)}
    try:
        return ProtocolSpec(**{**options, **method.protocol})
    except ValidationError as error:
        raise first_of(error, f"method {method.label}, protocol", ProtocolSpec) from error


def _goes_together(method: MethodSpec, protocol: str) -> None:
    """Raise ``InvalidInput`` if a protocol lacks its aggregator, or gets one that cannot be used."""
    where = f"method {method.label}" if method.label else "methods"
    if method.aggregate is None and "name" not in method.protocol:
        raise InvalidInput(
            "a method names neither an aggregator nor a protocol",
            where=where,
            mend="Write { aggregate = … } or { protocol = … }: consilience list methods.",
        )
    if method.aggregate is None and protocol not in PROTOCOL_METHODS:
        raise InvalidInput(
            f"protocol {protocol} is no method by itself",
            where=where,
            mend=f"Give it an aggregator, or take one of {', '.join(PROTOCOL_METHODS)}.",
        )
    if method.aggregate is not None and not PROTOCOLS[protocol].takes("aggregate"):
        raise InvalidInput(
            f"protocol {protocol} takes no aggregator",
            where=where,
            mend=f'Write "{protocol}" for the protocol alone; give {method.aggregate!r} one that takes it: '
            f'{{ aggregate = "{method.aggregate}", protocol = "ensemble_distillation" }}.',
        )


def _no_options(method: MethodSpec) -> None:
    if method.options:
        raise InvalidInput(
            f"unknown option {next(iter(method.options))!r}", where=f"method {method.named}"
        )
