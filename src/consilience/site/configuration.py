"""Configuration of a party, ``party.toml``: its name, its data, its model and its limits.

name = "north"                        # the federation knows the party by it
public = "public.csv"                 # the rows that every party has; without it the coordinator sends them
state = "state"                       # the folder of its model, its memory and its audit log

[data]
path = "patients.csv"                 # .csv, .parquet or .npz
target = "ill"

[model]
name = "random-forest"                # consilience list learners, "package.module:name" or "file.py:name"
n_estimators = 100

[limits]
allow = ["predictions"]               # kinds of what may be asked of it
rounds = 200

File names are relative to the file itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from consilience.data.table import load_own, load_unlabelled, read_rows
from consilience.errors import ConsilienceError, InvalidInput
from consilience.learners import Learner, make, trusting
from consilience.learners.encoders import find_encoder
from consilience.learners.files.transfer import TRUSTED
from consilience.messages.schema import Public
from consilience.numerics.coarse_ratios import Coarseness
from consilience.numerics.encoder import Encoder
from consilience.party.choice import Purpose
from consilience.party.party import Party
from consilience.site.limits import Limits
from consilience.site.party_site import PartySite
from consilience.validation.labels import Kind
from consilience.validation.sections import (
    Address,
    Flag,
    Name,
    Number,
    Open,
    Section,
    Whole,
    first_of,
    read_toml,
)
from consilience.validation.table_rows import Lenient

Share = Annotated[Number, Field(gt=0, lt=1)]


class PrivateDataSpec(Section):
    """The party's own rows.

    Attributes:
        path: a ``.csv``, ``.parquet``, ``.xlsx`` or ``.npz`` file, as :func:`consilience.data.load_table`
            reads it; a frozen model needs none.
        labels: whether the rows have labels; without them the party learns only, and what it is measured on
            is a file of labelled rows, ``test``, or nothing.
        target: the column of labels or values; in an ``.npz`` the array, ``"y"`` by default.
        columns: the input columns; by default those of the public rows, in whatever order the file has them.
        kind: ``"classification"`` or ``"regression"``, where the values of the target do not say it.
        test: rows to measure on, never trained on: a share of them, or a file with the same columns.
        calibration: share of the other rows that is kept from training, for choices along the way.
        aliases: own label to the name that the federation uses, where they differ.
        encoder: makes the features that rows are compared by, where the federation agreed on one: a name
            (``consilience list encoders``), or the import path or ``"file.py:name"`` of a callable with a
            ``key``.
        rename: own name of a column to the name that the public rows have for it.
        units: the public rows' name of a column to a factor on own numbers, or ``"F to C"``, ``"C to F"``.
        missing: whether it may lack columns of the public rows, and take part with those it has.
        unknown: categories that the public rows do not have: ``"refused"``, or read as ``"missing"``.
    """

    path: Path | None = None
    labels: Flag = True
    target: str | None = None
    columns: tuple[str, ...] | None = None
    kind: Kind | None = None
    test: Share | Path = 0.2
    calibration: Number = Field(default=0.2, ge=0, lt=1)
    aliases: Mapping[str, str] = {}
    encoder: str | None = None
    rename: Mapping[str, str] = {}
    units: Mapping[str, Number | Literal["F to C", "C to F"]] = {}
    missing: Literal["refused", "allowed"] = "refused"
    unknown: Lenient = "refused"

    def rows(self) -> tuple[tuple[Any, Any], tuple[Any, Any] | None, bool | None]:
        """Load own rows and targets, test rows with theirs, and whether these are classes; ``None`` for none.

        Raises:
            InvalidInput: a file or a column is not there, or cannot be used.
        """
        tests, classes = None, None
        options: dict[str, Any] = {"columns": self.columns, "kind": self.kind}
        if self.path is not None and self.labels:
            return load_own(self.path, self.target, test=self.test, **options)
        if isinstance(self.test, Path):
            _, tests, classes = load_own(self.test, self.target, test=self.test, **options)
        X = None if self.path is None else load_unlabelled(self.path, self.columns)
        return (X, None), tests, classes


class ModelSpec(Open):
    """A model by name, import path, or ``"file.py:name"``; other keys are its parameters.

    Attributes:
        name: of the preset, the class, or the function that makes it.
        sends_rows: where models are exchanged, whether it may be sent though it holds rows it was trained on.
    """

    name: str
    sends_rows: Flag = False


class ConnectionSpec(Section):
    """Address of the coordinator, and the files by which each side knows the other.

    Attributes:
        address: ``"HOST:PORT"``.
        certificate: the certificate of its authority, ``ca.pem``, which it gives to every party.
        key: the party's private key; the coordinator knows the public one.
    """

    address: Address
    certificate: Path = Path("ca.pem")
    key: Path = Path("party.key")


class PartySpec(Section):
    """A whole ``party.toml``.

    Attributes:
        name: of the party, unique in the federation.
        public: the file of public rows; ``None`` where the coordinator sends them, or models are exchanged.
        state: the folder of its state and its audit log; one party each.
        purpose: rows that its predictions are for: ``"own"`` or ``"everyone"``'s; ``"taught"`` takes the
            taught model as it is.
        trusts: packages whose models it accepts from others, where models are exchanged.
        threads: numerical threads while it works.
        coordinator: where the coordinator is; ``None`` for other transports than ``consilience party start``.
    """

    name: Name = Field(min_length=1, max_length=100)
    public: Path | None = None
    state: Path = Path("state")
    purpose: Purpose = "own"
    trusts: tuple[str, ...] = TRUSTED
    threads: Whole = Field(default=1, ge=1)
    data: PrivateDataSpec = PrivateDataSpec()
    model: ModelSpec
    limits: Limits = Limits()
    coordinator: ConnectionSpec | None = None
    _file: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if self.data.path is None and self.model.name != "frozen":
            raise ValueError("name the file of its rows; a frozen model alone needs none")
        return self

    @property
    def labelled(self) -> bool:
        """Tell whether it has labelled rows of its own."""
        return self.data.path is not None and self.data.labels

    @contextmanager
    def located(self) -> Iterator[None]:
        """Name the file that was read in the errors of this block."""
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
        """The party; a ``discreet`` one tells a coordinator, who reads its errors, not what its rows hold."""
        try:
            party, public = self._with_public()
        except InvalidInput as error:
            if not discreet:
                raise
            raise InvalidInput(
                "its configuration or its rows cannot be used",
                where=f"party {self.name!r}",
                mend="At the party: consilience party check says why.",
            ) from error
        party.discreet = discreet
        if public is not None:
            party.public = party.read_by(public)
        party.keep_answers(self.state.with_name(f"{self.state.name}-answers.jsonl"))
        return party

    def _with_public(self) -> tuple[Party, Public | None]:
        """The party and the public rows of its file; errors name keys, and not the file."""
        public, where = None, self.data
        if self.public is not None:
            with _key("public"):
                found = read_rows(self.public, where.columns)
                public = Public(found.X, found.schema)
        with _key("data"):
            own, tests, classes = where.rows()
        learner = self._learner()
        if classes is not None and (learner.abilities.kind == "classification") != classes:
            raise InvalidInput(
                f"{self.model.name!r} is for {learner.abilities.kind}, and the target holds "
                f"{'classes' if classes else 'values'}",
                where="model.name",
                mend="Choose another model (consilience list learners), or say which it is: data.kind = …",
            )
        party = Party(
            self.name,
            learner,
            *own,
            test=tests,
            calibration=self.data.calibration,
            aliases=self.data.aliases,
            trusts=self.trusts,
            sends_rows=self.model.sends_rows,
            encoder=self._encoder(),
            purpose=self.purpose,
            rename=where.rename,
            units=where.units,
            missing=where.missing,
            unknown=where.unknown,
        )
        if (most := self.limits.classes) is not None and len(party.classes) > most:
            raise InvalidInput(
                f"its own rows are of {len(party.classes):,} classes, and it takes {most:,}",
                where="limits.classes",
                mend="Raise it, or look whether data.target is the right column.",
            )
        return party, public

    def site(self, *, wait: float = 0.0) -> PartySite:
        """The site that answers for the party; its data are read when the first request comes.

        Args:
            wait: seconds to wait for another process to let go of its state.

        Raises:
            RunFailed: another process works on its state, or it cannot be written.
        """
        return PartySite(
            partial(self._party, discreet=True),
            self.state,
            name=self.name,
            limits=self.limits if self.labelled else _without_rows(self.limits),
            threads=self.threads,
            wait=wait,
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
    """Limits of a party without labelled rows: asked how densely these lie, it may say that none do."""
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
