"""Configuration of a party, ``party.toml``: its name, its data, its model and its limits.

name = "north"                        # name of the party in the federation
public = "public.csv"                 # the public rows; without this line the coordinator sends them
state = "state"                       # the folder of its model, its memory and its audit log

[data]
path = "patients.csv"                 # .csv, .parquet or .npz
target = "ill"

[model]
name = "random-forest"                # consilience list learners, "package.module:name" or "file.py:name"

[limits]
allow = ["predictions"]               # kinds of requests that the party answers
rounds = 200

File names are relative to the file itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from consilience.core.errors import ConsilienceError, InvalidInput
from consilience.core.learners import Learner
from consilience.core.messages.schema import Public
from consilience.core.numerics.coarse_ratios import Coarseness
from consilience.core.numerics.encoder import Encoder
from consilience.core.numerics.outcomes import Classes, Outcome
from consilience.core.party.party import Party
from consilience.core.party.personalizer import Purpose
from consilience.core.party.rules import Keys, PartyRules, PublicRules
from consilience.core.validation.arrays import Array
from consilience.core.validation.tables import is_table
from consilience.lab.config.party_sections import OutcomeSpec, PrivateDataSpec
from consilience.lab.config.sections import (
    Address,
    Flag,
    Name,
    Open,
    Section,
    Whole,
    first_of,
    read_toml,
)
from consilience.models.encoders.encoders import find_encoder
from consilience.models.files.transfer import TRUSTED
from consilience.models.files.trust import trusting
from consilience.models.presets import make
from consilience.privacy.accounting.privacy_of import declare_units
from consilience.privacy.secure_aggregation.party import checked_roster
from consilience.sites.party.limits import Limits
from consilience.sites.party.own_ledger import check_subjects
from consilience.sites.party.session import read_session
from consilience.sites.party.site import PartySite
from consilience.tables.files.columns import load_column
from consilience.tables.load import read_rows
from consilience.tables.outcomes.survival import Survival
from consilience.tables.predictions import Kept
from consilience.tables.reader import PrivateTable

WAIT = 60.0
"""Seconds to wait for the party's state, which another process holds while it answers."""


class ModelSpec(Open):
    """A model by name, import path, or ``"file.py:name"``; other keys are its parameters.

    Attributes:
        name: name of the preset, the class, or the function that makes the model.
        sends_rows: allow a model that contains its training rows to be sent, in protocols that exchange
            models; default false.
    """

    name: str
    sends_rows: Flag = False


class ConnectionSpec(Section):
    """Address of the coordinator, and the files with which each side authenticates the other.

    Attributes:
        address: ``"HOST:PORT"``.
        certificate: certificate of the coordinator's authority, ``ca.pem``, which every party receives.
        key: the party's private key; the coordinator has the public key.
    """

    address: Address
    certificate: Path = Path("ca.pem")
    key: Path = Path("party.key")


class PartySpec(Section):
    """A whole ``party.toml``.

    Attributes:
        name: name of the party, unique in the federation.
        public: file of public rows; ``None`` if the coordinator sends them or if models are exchanged;
            required with ``limits.epsilon``.
        state: folder of the party's state and audit log; each party needs a separate folder.
        purpose: rows for which the party wants to predict, ``"own"`` or ``"everyone"``; with ``"taught"`` the
            party uses the distilled model without mixing.
        trusts: packages whose classes the party accepts in models from other parties.
        threads: number of threads for numerical work.
        outcome: survival, quantiles of a number or several labels, the same at all parties; ``None`` for
            classes and values.
        coordinator: connection to the coordinator; ``None`` for transports other than
            ``consilience party start``.
        roster: public keys of the other parties, used to verify their keys for secure sums; with ``None`` the
            party trusts the keys that the coordinator sends.
    """

    name: Name = Field(min_length=1, max_length=100)
    public: Path | None = None
    state: Path = Path("state")
    purpose: Purpose = "own"
    trusts: tuple[str, ...] = TRUSTED
    threads: Whole = Field(default=1, ge=1)
    data: PrivateDataSpec = PrivateDataSpec()
    outcome: OutcomeSpec | None = None
    model: ModelSpec
    limits: Limits = Limits()
    coordinator: ConnectionSpec | None = None
    roster: Mapping[Name, str] | None = None
    _file: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if self.data.path is None and self.model.name != "frozen":
            raise ValueError("name the file of its rows; a frozen model alone needs none")
        if self.limits.epsilon is not None and self.public is None:
            raise ValueError(
                'with limits.epsilon name a file of public rows, public = "public.csv": none are taken from '
                "the coordinator then, since whether own rows can be read by their columns is an answer"
            )
        if (key := self.limits.needing_roster) and self.roster is None:
            raise ValueError(
                f"with limits.{key} give the others' keys in [roster]: a coordinator could invent the other "
                "parties, and subtract their share of the sum"
            )
        survival, timed = isinstance(self._outcome, Survival), self.data.time is not None
        if timed and not survival:
            raise ValueError("say the bins of time that were agreed on: outcome = { edges = […] }")
        if survival and self.labelled and not timed:
            raise ValueError("survival is of two columns: name data.time and data.event")
        return self

    @property
    def _outcome(self) -> Outcome | None:
        """Form of the targets; ``None`` for classes and values."""
        return None if self.outcome is None else self.outcome.outcome()

    @property
    def labelled(self) -> bool:
        """Return true if the party has a file of labelled rows."""
        return self.data.path is not None and self.data.labels

    @contextmanager
    def located(self) -> Iterator[None]:
        """Add the name of the configuration file to errors raised in this block."""
        try:
            yield
        except ConsilienceError as error:
            if self._file is None or str(error.where).startswith(str(self._file)):
                raise
            raise error.located(str(self._file)) from error

    def party(self) -> Party:
        """The party, the public rows of its file in its hands; reads all of its data.

        Raises:
            InvalidInput: the data, the public rows or the model cannot be used, or not together.
        """
        with self.located():
            return self._party()

    def _party(self, *, discreet: bool = False) -> Party:
        """Make the party; with ``discreet``, its errors do not reveal the contents of its rows."""
        try:
            party, public = self._with_public(discreet=discreet)
        except InvalidInput as error:
            if not discreet:
                raise
            said = "its configuration or its rows cannot be used"
            mend = "At the party: consilience party check says why."
            raise InvalidInput(said, where=f"party {self.name!r}", mend=mend) from error
        if public is not None:
            party.read_public(public)
        party.keep_answers(self.state.with_name(f"{self.state.name}-answers.jsonl"))
        return party

    def _keys(self) -> Keys:
        """Read the keys of the party."""
        identity, roster = b"", self.roster
        if self.coordinator is not None and self.coordinator.key.is_file():
            identity = self.coordinator.key.read_bytes()
        if roster is not None:
            with _key("roster"):
                roster = checked_roster(self.name, identity, roster)
        return Keys(identity=identity, roster=roster)

    def _with_public(self, *, discreet: bool) -> tuple[Party, Public | None]:
        """The party and the public rows of its file; errors name keys, and not the file."""
        public, where = None, self.data
        with _key("public"):
            if self.public is not None:
                found = read_rows(self.public, where.columns)
                public = Public(found.X, found.schema)
        check_subjects(self.data.path, self.limits)
        with _key("data"):
            labels = None if self.outcome is None else self.outcome.labels
            own, tests, classes = where.rows(labels, whole=self.limits.epsilon is not None)
        learner, outcome = self._learner(), self._outcome
        if outcome is not None and classes:
            raise InvalidInput(
                "quantiles are of a number, and the target holds classes",
                where="data.target",
                mend='Where its labels are numbers say data.kind = "regression".',
            )
        if outcome is not None and self.data.aliases:
            raise InvalidInput("aliases are of classes, and it has none", where="data.aliases")
        if outcome is not None:
            classes = True  # bins, which models of classes learn
        if classes is not None and (learner.abilities.kind == "classification") != classes:
            raise InvalidInput(
                f"{self.model.name!r} is for {learner.abilities.kind}, and the target holds "
                f"{'values' if not classes else 'classes' if outcome is None else 'bins'}",
                where="model.name",
                mend="Choose another model (consilience list learners), or say which it is: data.kind = …",
            )
        party = Party(
            self.name,
            learner,
            _as_read(own[0], where),
            own[1],
            test=None if tests is None else (_as_read(tests[0], where), tests[1]),
            calibration=self.data.calibration,
            purpose=self.purpose,
            outcome=outcome or Classes(where.classes, self.data.aliases),
            rules=PartyRules(
                trusts=self.trusts,
                sends_rows=self.model.sends_rows,
                redact_errors=discreet,
                public=PublicRules(encoder=self._encoder()),
                keys=self._keys(),
            ),
        )
        declare_units(
            party,
            None if self.limits.unit == "row" else self._column("unit"),
            self._column("arrival") if self.limits.arrival else None,
        )
        if (most := self.limits.classes) is not None and len(party.rows.classes) > most:
            raise InvalidInput(
                f"its own rows are of {len(party.rows.classes):,} classes, and it takes {most:,}",
                where="limits.classes",
                mend="Raise it, or look whether data.target is the right column.",
            )
        return party, public

    def _column(self, limit: str) -> Array | None:
        """The column of its file that a limit names, of each own row; ``None`` where there is no file."""
        if self.data.path is None:
            return None
        with _key(f"limits.{limit}"):
            return load_column(self.data.path, getattr(self.limits, limit))

    def site(self, *, wait: float = 0.0) -> PartySite:
        """The site that answers for the party; its data are read when the first request comes.

        Args:
            wait: seconds to wait for another process to let go of its state.

        Raises:
            RunFailed: another process works on its state, or it cannot be written.
        """
        return PartySite(
            lambda: self._party(discreet=True),
            self.state,
            name=self.name,
            limits=self.limits if self.labelled else _without_rows(self.limits),
            threads=self.threads,
            wait=wait,
        )

    def kept(self) -> Kept:
        """Load the model that the party holds after its last round.

        Returns:
            The model with its schema, the shape of one row, and renames and units of the columns.

        Raises:
            InvalidInput: the party has no trained model yet, or its data cannot be used.
            RunFailed: its state is damaged, or another process works on it.
        """
        session = read_session(self.state)
        if session is not None:
            with self.site(wait=WAIT) as site:
                party = site.party()
                if party is not None and party.trainer.learner.fitted:
                    return Kept(
                        model=party.trainer.model(),
                        schema=party.rows.schema,
                        row_shape=party.rows.X.shape[1:],
                        scaling=None,
                        about=f"{party.name}, {session.federation or 'its federation'}, "
                        f"round {session.round}",
                        rename=self.data.rename,
                        units=self.data.units,
                    )
        raise InvalidInput(
            "it has no trained model yet",
            where=str(self.state),
            mend="There is one after the first round that it takes part in.",
        )

    def learner(self) -> Learner:
        """The untrained model, of whatever code the file names: it is the party's own, and trusted.

        Raises:
            InvalidInput: an unknown name or parameter, with the nearest known one.
            MissingExtra: its library is not installed.
        """
        with self.located():
            return self._learner()

    def _learner(self) -> Learner:
        """The untrained model; errors name the section of the file."""
        with _key("model"), trusting():  # the file is the party's own
            options = dict(self.model.options)
            if isinstance(options.get("answer"), str):
                options["answer"] = _import_path(options["answer"])
            return make(_import_path(self.model.name), **options)

    def _encoder(self) -> Encoder | None:
        """The encoder that the file names, of whatever code."""
        if self.data.encoder is None:
            return None
        with _key("data.encoder"), trusting():
            return find_encoder(_import_path(self.data.encoder))


def _as_read(X: Any, where: Any) -> Any:
    """Say of a table how its columns are read; other rows stay as they are."""
    if not is_table(X):
        return X
    return PrivateTable(
        X, rename=where.rename, units=where.units, missing=where.missing, unknown=where.unknown
    )


def read_party(path: Path) -> PartySpec:
    """Read a ``party.toml``; file names in it are relative to its folder.

    Raises:
        InvalidInput: no such file, not TOML, or unknown keys or values, with the nearest valid name.
    """
    where, document = str(path), _document(path)
    try:
        spec = PartySpec.model_validate(_beside(document, path.resolve().parent))
        spec.limits.check_names()
    except ValidationError as error:
        raise first_of(error, where, PartySpec) from error
    except InvalidInput as error:
        raise error.located(where) from error
    spec._file = path
    return spec


def state_of(path: Path) -> Path:
    """The folder of a party's state, by a configuration that may be broken otherwise, or given itself.

    Raises:
        InvalidInput: there is no such file, or it is not TOML.
    """
    if path.is_dir() and (path / "current").exists():
        return path
    try:
        document = _document(path)
    except InvalidInput as error:
        mend = f"{error.mend or ''} Or give the folder of its state itself.".strip()
        raise InvalidInput(error.what, where=error.where, mend=mend) from error
    return path.resolve().parent / str(document.get("state", "state"))


def _without_rows(limits: Limits) -> Limits:
    """Return the limits of a party without labelled rows, which always allow density-ratio requests."""
    return limits.model_copy(update={"density_ratios": limits.density_ratios or Coarseness()})


@contextmanager
def _key(key: str) -> Iterator[None]:
    """Name a key of the file in the errors of this block."""
    try:
        yield
    except ConsilienceError as error:
        raise error.located(key) from error


def _document(path: Path) -> dict[str, Any]:
    """The contents of a party's configuration file."""
    init = "Write one with: consilience party init FOLDER"
    return read_toml(path, missing=init, file="party.toml")


def _beside(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The document, its file names completed by the folder of the file."""
    whole = {"state": "state"} | document
    for key in ("public", "state"):
        if isinstance(whole.get(key), str):
            whole[key] = str(folder / whole[key])
    if isinstance(limits := whole.get("limits"), dict) and _text(limits, "ledger"):
        whole["limits"] = limits | {"ledger": str(folder / limits["ledger"])}
    if isinstance(data := whole.get("data"), dict):
        named = {key: str(folder / data[key]) for key in ("path", "test") if _text(data, key)}
        whole["data"] = data | named
    if isinstance(connection := whole.get("coordinator"), dict):
        files = {"certificate": "ca.pem", "key": "party.key"}
        named = {key: str(folder / str(connection.get(key, file))) for key, file in files.items()}
        whole["coordinator"] = connection | named
    for section, key in (("model", "name"), ("model", "answer"), ("data", "encoder")):
        if isinstance(code := whole.get(section), dict) and _text(code, key):
            file, colon, name = code[key].rpartition(":")
            if colon and file.endswith(".py"):
                whole[section] = code | {key: f"{folder / file}:{name}"}
    return whole


def _text(section: Mapping[str, Any], key: str) -> bool:
    """Return true if a key of a section holds a text."""
    return isinstance(section.get(key), str)


def _import_path(name: str) -> str:
    """A name as it can be imported: of ``"file.py:name"`` the file is, under its own name."""
    file, colon, attribute = name.rpartition(":")
    return f"{_imported(Path(file))}:{attribute}" if colon and file.endswith(".py") else name


def _imported(file: Path) -> str:
    """Import a Python file and return its module's name, by which saved models find their classes."""
    name = file.stem
    known = sys.modules.get(name)
    if known is not None:
        if Path(getattr(known, "__file__", None) or "").resolve() != file.resolve():
            raise InvalidInput(f"a module is called {name!r} already", mend="Rename the file.")
        return name
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise InvalidInput(f"there is no file {file}")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InvalidInput(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    return name
