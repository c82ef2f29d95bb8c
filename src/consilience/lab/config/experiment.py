"""The configuration of a run, validated before anything else happens.

name = "digits"
seeds = 3                                   # 0, 1, 2; or a list
methods = ["local", "avg", { aggregate = "suwa", temperature = 0.1 }, "auto", "central"]
                                            # consilience list methods

[data]
name = "digits"                             # consilience list datasets
public = 500                                # rows set aside unlabelled: a number, or a share

[partition]
name = "classes"                            # consilience list partitions
parties = 10
per_party = 2

[[models]]                                  # dealt to the parties in turn; or by party:
name = "random-forest"                      # models.north = "svc", models."*" = { name = "ridge" }
n_estimators = 100                          # consilience list learners, or "package.module:Class"

[protocol]
name = "ensemble_distillation"              # consilience list protocols
rounds = 10

A method names an aggregator, which the protocol then takes, or a protocol that takes none because its parties
exchange models; other keys are its options:

methods = ["local", { protocol = "averaged_distillation", label = "AvgKD" }, "central"]

Such methods need no public rows. ``[hostile]`` has parties lie, ``[robustness]`` protects from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from consilience.core.aggregation import Aggregator
from consilience.core.aggregation.guard import SecretLabels
from consilience.core.errors import InvalidInput, nearest
from consilience.core.metrics.metrics import metric_names
from consilience.core.party.personalizer import Purpose
from consilience.core.protocols import PROTOCOLS, Protocol
from consilience.core.protocols.rounds import SECURE
from consilience.core.validation.arguments import check_arguments
from consilience.lab.config.experiment_sections import (
    DataSpec,
    LateSpec,
    ModelSpec,
    NetworkSpec,
    PartitionSpec,
    ReportSpec,
)
from consilience.lab.config.methods import PROTOCOL_METHODS, MethodSpec, ProtocolSpec, protocol_for
from consilience.lab.config.party_sections import OutcomeSpec
from consilience.lab.config.robustness import HostileSpec, RobustnessSpec
from consilience.lab.config.sections import Name, Number, Section, Whole, known
from consilience.lab.data import DATASETS, PARTITIONS
from consilience.models.encoders.encoders import ENCODERS, check_encoder_name, find_encoder
from consilience.models.files.transfer import TRUSTED
from consilience.models.files.trust import ForeignCode, trusted
from consilience.models.presets import check_name, foreign_code, make

MOST_SEEDS = 10_000
"""Seeds of one run."""


class Spec(Section):
    """A whole configuration file.

    Attributes:
        name: name of the experiment and of its run folders. By default that of its file.
        seeds: a number of seeds, 0 upwards, or a list of them.
        methods: lines of the results table; by default a choice that goes with the protocol.
        metric: main metric of the results table, on local and global test sets.
        calibration: share of each party's rows kept from training.
        purpose: rows that every party's predictions are for: ``"own"`` or ``"everyone"``'s; ``"taught"``
            takes the taught model as it is (:class:`~consilience.core.party.party.Party`).
        trusts: packages of models that the parties accept; others are foreign code (:meth:`foreign_code`).
        strict: refuse a party with one class, and a class held by a single party; by default only if
            parties are natural groups.
        evaluate_every: rounds between measurements on the test rows.
        keep_models: seeds for which the run folder keeps the trained models.
        checkpoint_seconds: shortest time between two checkpoints.
        models: a list, dealt to the parties in turn; or a table from a party's name to its model, ``"*"``
            for all others.
        late: parties that join later.
        without: excluded parties; rows are still dealt to them, but not used.
        outcome: survival, or quantiles of a number; ``None`` for classes and values.
        robustness: caps, secret labels, and parties always or never excluded.
        hostile: simulated malicious parties; ``None`` for none.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    seeds: Whole | tuple[Whole, ...] = 1
    methods: tuple[MethodSpec, ...] = ("local", "auto", "central")  # type: ignore[assignment]
    metric: str | None = None
    calibration: Number = Field(default=0.2, ge=0, lt=1)
    purpose: Purpose = "own"
    trusts: tuple[str, ...] = TRUSTED
    strict: bool | None = None
    evaluate_every: Whole = Field(default=1, ge=1)
    keep_models: Literal["first", "all", "none"] = "first"
    checkpoint_seconds: Number = Field(default=5.0, ge=0)
    data: DataSpec
    outcome: OutcomeSpec | None = None
    partition: PartitionSpec = PartitionSpec()
    models: tuple[ModelSpec, ...] = Field(min_length=1)
    protocol: ProtocolSpec = ProtocolSpec()
    network: NetworkSpec = NetworkSpec()
    report: ReportSpec = ReportSpec()
    late: tuple[LateSpec, ...] = ()
    without: tuple[Name, ...] = ()
    robustness: RobustnessSpec = RobustnessSpec()
    hostile: HostileSpec | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _what_goes_with_it(cls, given: Any) -> Any:
        """Methods for a protocol that takes no aggregator; a party a group for a table with groups."""
        if not isinstance(given, Mapping):
            return given
        protocol, data = given.get("protocol"), given.get("data")
        name = protocol.get("name") if isinstance(protocol, Mapping) else protocol
        usual: dict[str, Any] = {}
        if isinstance(name, str) and name in PROTOCOL_METHODS:
            usual["methods"] = ["local", name, "central"]
        if isinstance(data, Mapping) and "group" in data:
            usual["partition"] = "group"
        return {**usual, **given}

    @field_validator("models", mode="before")
    @classmethod
    def _models_by_party(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        if isinstance(given.get("name"), str):  # [models] in place of [[models]]
            return [given]
        tables = {
            name: {"name": one} if isinstance(one, str) else one for name, one in given.items()
        }
        return [
            {**table, "party": None if name == "*" else name}
            if isinstance(table, Mapping)
            else table
            for name, table in tables.items()
        ]

    @field_validator("metric")
    @classmethod
    def _known_metric(cls, given: str | None) -> str | None:
        if given is not None and given not in (names := metric_names()):
            raise ValueError(f"no metric is called {given!r}. {nearest(given, names)}")
        return given

    @property
    def _models(self) -> tuple[ModelSpec, ...]:
        """All models, those of late parties last."""
        return (*self.models, *(late.model for late in self.late))

    @property
    def strictly(self) -> bool:
        """Tell whether odd class lists are refused."""
        return self.partition.name == "group" if self.strict is None else self.strict

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds, spelled out."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def check(self) -> None:
        """Raise ``InvalidInput`` on an unknown name or option, without importing any model."""
        if isinstance(self.seeds, int) and self.seeds > MOST_SEEDS:
            raise InvalidInput(
                f"seeds is {self.seeds:,}", where="seeds", mend=f"Give {MOST_SEEDS:,} or fewer."
            )
        seeds = self.seed_list
        if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise InvalidInput(
                f"seeds is {self.seeds}",
                where="seeds",
                mend="Give a number of seeds, 1 or more, or a list of different ones, 0 or more.",
            )
        known(self.data.name, DATASETS, "dataset")
        check_arguments(
            DATASETS[self.data.name].loader,
            self.data.options,
            where=f"dataset {self.data.name}",
            also=DataSpec.model_fields,
        )
        known(self.partition.name, PARTITIONS, "partition")
        check_arguments(
            PARTITIONS[self.partition.name].deal,
            self.partition.options,
            where=f"partition {self.partition.name}",
            given=("y", "parties", "rng", "group", "X", "fitted"),
        )
        if self.data.encoder is not None:
            check_encoder_name(self.data.encoder)
        for model in self._models:
            check_name(model.name)
        named = Counter(model.party for model in self.models)
        if again := [party for party, count in named.items() if party and count > 1]:
            raise InvalidInput(f"two models are for party {again[0]!r}", where="models")
        labels = [method.label for method in self.methods]
        twice = sorted(label for label, count in Counter(labels).items() if count > 1)
        if twice or not labels:
            raise InvalidInput(
                f"two methods are called {twice[0]!r}" if twice else "there are no methods",
                where="methods",
                mend="Give each a label of its own: { aggregate = …, label = … }."
                if twice
                else None,
            )
        self.protocol.arguments()
        for method in self.methods:
            made = self.protocol_for(method)
            if lifted := made.options.get("deregularize"):
                lifted.check_models([(one.name, one.options) for one in self.models], method.label)
            if self.hostile is not None and self.hostile.parties and made.name != "local_only":
                _check_lies(made, f"method {method.label}, hostile")
        self._check_public()

    def foreign_code(self) -> tuple[ForeignCode, ...]:
        """List untrusted models, encoders and packages with their fields, without importing any.

        Returns:
            One entry per use of foreign code; empty if all code is trusted.

        Raises:
            InvalidInput: a parameter that a trusted model does not take.
            MissingExtra: a model's library is not installed.
        """
        found = [ForeignCode(name, "trusts") for name in self.trusts if name not in TRUSTED]
        for i, model in enumerate(self._models):
            found += [one.within(f"models.{i}") for one in foreign_code(model.name, model.options)]
        if (encoder := self.data.encoder) is not None and encoder not in ENCODERS:
            found.append(ForeignCode(encoder, "data.encoder"))
        return tuple(found)

    def check_models(self) -> None:
        """Make every model and the encoder, before anything else is done for them.

        Raises:
            ForeignCode: code of others, outside of :func:`~consilience.models.trusting`; none is
                imported.
            InvalidInput: a name or parameter that cannot be used.
            MissingExtra: a model's library is not installed.
        """
        for one in self.foreign_code():
            if not trusted(one.path):
                raise one
        for model in self._models:
            make(model.name, **model.options)
        if self.data.encoder is not None:
            find_encoder(self.data.encoder)

    def _check_public(self) -> None:
        """Public rows are there if anything needs them."""
        if self.data.public or self.data.public_file is not None:
            return
        mend = "Set data.public to a number of rows or a share of them, or data.public_file"
        for method in self.methods:
            if method.needs_public:
                raise InvalidInput(
                    f"there is no public data, which method {method.label!r} needs",
                    where="data",
                    mend=f"{mend}; or take methods that do without: local, central, "
                    f"{', '.join(n for n, p in PROTOCOL_METHODS.items() if p.needs_public is not True)}.",
                )
        if self.data.standardize:
            raise InvalidInput(
                "there is no public data, whose scale it takes",
                where="data.standardize",
                mend=f"{mend}; or leave it out, and scale inside of the models.",
            )

    def protocol_for(
        self,
        method: MethodSpec,
        aggregate: Aggregator | None = None,
        secret: SecretLabels | None = None,
    ) -> Protocol:
        """The protocol of a method, guarded and ready to run.

        Args:
            method: of this experiment.
            aggregate: takes the place of the rule that the method names.
            secret: rows among the public ones whose labels the coordinator has.
        """
        made = protocol_for(method, self.protocol, aggregate)
        alone = method.aggregate in ("local", "central")
        return made if alone else self.robustness.applied(made, secret)


def _check_lies(protocol: Protocol, where: str) -> None:
    """Raise ``InvalidInput`` if the protocol has no single predictions that a hostile party could replace."""
    if protocol.options.get(SECURE) is not None:
        raise InvalidInput(
            "liars replace single answers, and under masks none arrives",
            where=where,
            mend="Leave out one of the two. Masks stop no liar: nobody finds one in a sum.",
        )
    if not PROTOCOLS[protocol.name].takes("aggregate"):
        raise InvalidInput(
            f"liars replace predictions that an aggregator takes, and {protocol.name} has none",
            where=where,
            mend="Leave out one of the two.",
        )


QUICK: Mapping[str, Any] = {"seeds": 1, "protocol.rounds": 2}
"""What ``--quick`` sets: the whole path, in a fraction of the time; its figures mean nothing."""
