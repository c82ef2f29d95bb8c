"""Sections of the configuration of a run: data, partition, models, network, late parties, the page."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from consilience.lab.config.party_sections import PrivateDataSpec
from consilience.lab.config.sections import Flag, Name, Number, Open, Quorum, Section, Whole


class DataSpec(Open):
    """The rows: a dataset's name and its loader's options, and how many become public.

    Attributes:
        name: a dataset.
        public: rows set aside without labels: a number (int), or a share in (0, 1) (float); none by default.
        public_file: a file with the public rows, for user tables; replaces ``public``.
        test_rows: measure on this many of the test rows, drawn by the seed; by default on all.
        flat: give every row to the models as one vector, for images.
        standardize: centre and scale every input by the mean and standard deviation of the public rows, the
            same at every party.
        encoder: makes the features by which rows are compared: a name (``consilience list encoders``), or an
            import path, which is foreign code (:meth:`Spec.foreign_code`); by default features are derived
            from the rows without a pretrained encoder.
    """

    name: str
    public: Whole | Number | None = None
    public_file: Path | None = None
    test_rows: Whole | None = Field(default=None, ge=1)
    flat: bool = False
    standardize: bool = False
    encoder: str | None = None


class PartitionSpec(Open):
    """The division of the rows among the parties.

    Attributes:
        name: a partition.
        parties: how many; with ``"group"`` as many as there are groups.

    Where ``data`` names a column of groups, ``"group"`` is the default.
    """

    name: str = "iid"
    parties: Whole | None = Field(default=None, ge=1)


class ModelSpec(Open):
    """A model by name or import path; other keys are its parameters.

    Attributes:
        party: name of the model's party; models without a name are dealt in turn to the remaining parties.
        labels: whether its party is given labels; without them one learns only, and a frozen one has no rows.
        sends_rows: for protocols that exchange models, whether a model that contains training rows may be
            sent.
    """

    name: str
    party: str | None = None
    labels: Flag = True
    sends_rows: bool = False


class NetworkSpec(Section):
    """The network of the parties.

    Attributes:
        kind: ``"local"``; ``"wire"``, the same through bytes; ``"processes"``; ``"ray"``, Flower's
            simulation engine on Ray; or ``"population"``, for few participants drawn from many parties, each
            made at its first request (:class:`~consilience.core.networks.population.Population`).
        live: parties that stay in memory, for ``"population"``.
        processes: workers, for ``"processes"``; by default as many as keep the cores busy.
        timeout: seconds a party may take to answer.
        quorum: parties that must answer: a number, or a share.
        threads: numerical threads per process.
    """

    kind: Literal["local", "wire", "processes", "ray", "population"] = "local"
    live: Whole = Field(default=1000, ge=1)
    processes: Whole | None = Field(default=None, ge=1)
    timeout: Number | None = Field(default=None, gt=0)
    quorum: Quorum = 0.5
    threads: Whole = Field(default=1, ge=1)


class LateSpec(Section):
    """A party that joins after a round, with rows from a separate file.

    Attributes:
        name: name of the party.
        after: the round, 1 or later; under ``"local"`` and ``"central"`` it is there from the start.
        data: its rows, as in a ``party.toml``; ``calibration`` is the run's.
        model: model of the party.
    """

    name: Name
    after: Whole = Field(ge=1)
    data: PrivateDataSpec
    model: ModelSpec


class ReportSpec(Section):
    """Optional contents of the report page.

    Attributes:
        positive: the positive class, of two; by default the rarer one among the test rows.
        subgroup: the input column, or the groups' column, by whose values the report also groups test rows.
    """

    positive: str | None = None
    subgroup: str | None = None
