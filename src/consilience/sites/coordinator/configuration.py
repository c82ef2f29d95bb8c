"""A coordinator's configuration: its parties, their method, and its address.

name = "heart"                                  # of the federation; parties may limit themselves to it
address = "coordinator.example.org:9092"        # where the parties reach it
public = "public.csv"                           # sent to every party without a file of these rows

[method]
aggregate = "avg"                               # consilience list methods; or protocol = "scaffold"

[protocol]
name = "ensemble_distillation"
rounds = 10

[parties]                                       # name = the public key, as consilience party key prints it
north = "ecdsa-sha2-nistp384 AAAA… north"

File names are relative to the file itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from pydantic import Field, ValidationError, field_validator

from consilience.core.aggregation import Aggregator
from consilience.core.aggregation.guard import SecretLabels
from consilience.core.errors import InvalidInput, command
from consilience.core.messages.schema import Public
from consilience.core.messages.scores import Score
from consilience.core.numerics.encoder import LONGEST_KEY
from consilience.core.protocols import Protocol
from consilience.core.tasks.scores import score_task
from consilience.lab.config.methods import INFORMED, MethodSpec, ProtocolSpec, protocol_for
from consilience.lab.config.robustness import RobustnessSpec, mixed
from consilience.lab.config.sections import (
    Address,
    Name,
    Quorum,
    Section,
    check_address,
    first_of,
    read_toml,
)
from consilience.lab.runs.folder import CONFIGURATION as CONFIG
from consilience.lab.runs.folder import read_configuration, store_configuration
from consilience.sites.coordinator.pace import PaceSpec
from consilience.sites.operations.certificates import public_key
from consilience.sites.operations.invitation import PLAIN
from consilience.tables.load import load_own, read_rows

CONFIGURATION = "coordinator.toml"

P = ParamSpec("P")
R = TypeVar("R")


class CoordinatorSpec(Section):
    """A whole ``coordinator.toml``.

    Attributes:
        name: name of the federation; it must not change during the federation's lifetime.
        address: host and port where the parties reach it; the server's certificate is for this host.
        listen: address to listen on, if it differs: a host such as ``"0.0.0.0"``, or host and port behind a
            proxy.
        public: file of public rows, which are sent to parties without a file of them; ``None`` for protocols
            that exchange models.
        columns: names of its input columns; by default all.
        encoder: digest of the encoder with which every party compares its rows (``data.encoder`` there), as
            ``consilience list encoders`` prints it; empty for none.
        seed: seed of all random streams.
        strict: refuse a party with a single class, and a class at a single party.
        timeout: seconds a party may take to answer.
        quorum: minimum number (int) or share (float) of answering parties.
        wait: seconds to wait for the parties when a run is started or resumed.
        metrics: number of evaluations of each party in a run, within the party's limits: 1 is after the last
            round, 2 also before the parties learn from each other, and more in rounds between
            (:func:`consilience.core.federation.driver.measured_rounds`); 0 for never.
        threads: number of threads for numerical work.
        method: an aggregator with its options, or a protocol without an aggregator.
        protocol: the protocol and its options.
        robustness: caps on weights, secret labels, and rules for excluding and admitting parties.
        pace: conditions under which a round continues without late parties, and a run ends.
        parties: party to its public key.
    """

    name: str = Field(pattern=PLAIN)
    address: Address
    listen: str | None = None
    public: Path | None = None
    columns: tuple[str, ...] | None = None
    encoder: str = Field(default="", max_length=LONGEST_KEY)
    seed: int = Field(default=0, ge=0)
    strict: bool = True
    timeout: float = Field(default=600.0, ge=10)
    quorum: Quorum = 0.5
    wait: float = Field(default=600.0, gt=0)
    metrics: int = Field(default=2, ge=0)
    threads: int = Field(default=1, ge=1)
    method: MethodSpec
    protocol: ProtocolSpec = ProtocolSpec()
    robustness: RobustnessSpec = RobustnessSpec()
    pace: PaceSpec = PaceSpec()
    parties: Mapping[Name, str] = Field(min_length=1)

    @field_validator("method", mode="after")
    @classmethod
    def _can_be_deployed(cls, method: MethodSpec) -> MethodSpec:
        if method.aggregate in ("central", *INFORMED):
            raise ValueError(f"{method.aggregate!r} needs what no coordinator has")
        if method.privacy is not None:
            raise ValueError("the parties decide on their privacy: limits.epsilon in party.toml")
        return method

    @field_validator("listen", mode="after")
    @classmethod
    def _host_or_address(cls, listen: str | None) -> str | None:
        return check_address(listen) if listen is not None and ":" in listen else listen

    @property
    def methods(self) -> tuple[MethodSpec, ...]:
        """The configured method, as a tuple."""
        return (self.method,)

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The configured seed, as a tuple."""
        return (self.seed,)

    @property
    def metric(self) -> str | None:
        """The metric that counts: the usual one."""
        return None

    @property
    def host(self) -> str:
        """The host of the address."""
        return self.address.rpartition(":")[0]

    @property
    def listens(self) -> tuple[str, int]:
        """Host and port where the gate listens."""
        host, _, port = self.address.rpartition(":")
        if self.listen is None:
            return host, int(port)
        own, colon, number = self.listen.rpartition(":")
        return (own, int(number)) if colon else (self.listen, int(port))

    def make_protocol(self, secret: SecretLabels | None = None) -> Protocol:
        """Make the protocol, with the robustness and pace settings applied.

        Args:
            secret: the secret labels of the run.

        Returns:
            The protocol.

        Raises:
            InvalidInput: an unknown name or option, or an aggregator that requires exact density ratios,
                which every deployed party refuses.
        """
        found = protocol_for(self.method, self.protocol)
        aggregator = found.options.get("aggregate")
        needs: tuple[type[Score], ...] = ()
        if isinstance(aggregator, Aggregator) and aggregator.forms is None:
            needs = aggregator.needs
        if any(score_task(kind).exposure == "rows" for kind in needs):
            raise InvalidInput(
                f"{self.method.label} needs what every party refuses: rows can be rebuilt from exact density "
                "ratios and the like",
                where="method.aggregate",
                mend="Choose coarse-density-ratio, if the parties' limits allow it, or one that needs "
                "predictions alone, such as avg.",
            )
        return self.robustness.applied(self.pace.applied(found), secret)

    def check_quorum(self) -> None:
        """Raise ``InvalidInput`` on a quorum that no round, or any round, would meet."""
        whole = isinstance(self.quorum, int)
        if not 0 < self.quorum <= (len(self.parties) if whole else 1):
            raise InvalidInput(
                f"quorum is {self.quorum}, and there are {len(self.parties)} parties",
                mend=f"Give a number of parties, 1 to {len(self.parties)}, or a share such as 0.5.",
            )

    def rows(self) -> Public:
        """Read the public rows, including the rows with secret labels.

        Raises:
            InvalidInput: they cannot be read, or are missing and needed.
        """
        return self.rows_and_secret()[0]

    def rows_and_secret(self) -> tuple[Public, SecretLabels | None]:
        """Read the public rows, and the secret labels if there are any.

        Raises:
            InvalidInput: they cannot be read, or are missing and needed.
        """
        if self.public is None:
            if self.method.needs_public:
                raise InvalidInput(
                    f"there are no public rows, which {self.method.label!r} needs", where="public"
                )
            return Public.none(), None
        rows = read_rows(self.public, self.columns)
        public, (path, column) = Public(rows.X, rows.schema), self._secret
        if path is None:
            return public, None
        (_, labels), _, _ = load_own(
            path, column, test=None, kind="classification", rows_are_independent=True
        )
        inputs = read_rows(path, drop=[] if path.suffix == ".npz" else [column], like=rows.schema)
        return mixed(public, inputs.X, [str(label) for label in labels])

    @property
    def _secret(self) -> tuple[Path | None, str]:
        """File of the labelled rows, and its column of labels.

        Raises:
            InvalidInput: it is a number, as in an experiment.
        """
        given = self.robustness.secret_labels
        if isinstance(given, int):
            raise InvalidInput(
                f"secret_labels is {given}",
                where="robustness",
                mend="A number is for experiments. Give a file of labelled rows, such as root.csv.",
            )
        return given, self.robustness.label


def read_coordinator(folder: Path) -> CoordinatorSpec:
    """Read ``coordinator.toml`` in a folder; its file names are relative to it.

    Raises:
        InvalidInput: no such file, not TOML, unknown keys or values, with the nearest valid name.
    """
    check_folder(folder)
    path = folder / CONFIGURATION
    init = f"Write one with: {command('coordinator', 'init', folder)} --parties a,b"
    return checked(read_toml(path, missing=init), path)


def checked(document: dict[str, Any], path: Path) -> CoordinatorSpec:
    """Check the contents of a ``coordinator.toml``, and return the configuration.

    Args:
        document: the contents.
        path: of the file, which names of files are relative to.

    Raises:
        InvalidInput: unknown keys or values, with the nearest valid name.
    """
    folder = path.parent
    if isinstance(document.get("public"), str):
        document["public"] = str(folder.resolve() / document["public"])
    guarded = document.get("robustness")
    if isinstance(guarded, dict) and isinstance(guarded.get("secret_labels"), str):
        guarded["secret_labels"] = str(folder.resolve() / guarded["secret_labels"])
    for section in (document.get("method"), document.get("protocol")):
        if isinstance(section, dict) and isinstance(section.get("initial"), str):
            section["initial"] = str(folder.resolve() / section["initial"])
    try:
        spec = CoordinatorSpec.model_validate(document)
    except ValidationError as error:
        raise first_of(error, str(path), CoordinatorSpec) from error
    try:
        spec.make_protocol()
        spec.robustness.check_parties(tuple(spec.parties))
        spec.check_quorum()
        keys = {
            name: public_key(text, where=f"parties.{name}") for name, text in spec.parties.items()
        }
    except InvalidInput as error:
        raise error.located(str(path)) from error
    for name, key in keys.items():
        if twice := [other for other in keys if keys[other] == key and other != name]:
            raise InvalidInput(f"{name!r} and {twice[0]!r} have the same key", where=str(path))
    return spec


def edits(change: Callable[Concatenate[Path, P], R]) -> Callable[Concatenate[Path, P], R]:
    """Have a command that reads, changes and writes a folder's ``coordinator.toml`` wait for any other."""

    @wraps(change)
    def alone(folder: Path, /, *args: P.args, **options: P.kwargs) -> R:
        check_folder(folder)
        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            return change(folder, *args, **options)
        finally:
            os.close(held)

    return alone


def edited(
    path: Path, lines: Sequence[str], wanted: dict[str, Any], *, what: str, mend: str
) -> str:
    """Return the text of a ``coordinator.toml`` after an edit, and check its contents.

    Args:
        path: path of the file.
        lines: lines after the edit.
        wanted: expected contents after the edit.
        what: edited section, such as ``"[parties]"``, for the error.
        mend: instruction for an edit by hand, for the error.

    Returns:
        The text.

    Raises:
        InvalidInput: the contents differ from ``wanted``, or a coordinator could not use them.
    """
    text = "\n".join(lines) + "\n"
    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        after = {}
    if after != wanted:
        raise InvalidInput(
            f"{what} is written in a way that is not changed here", where=str(path), mend=mend
        )
    # Where the keys of some parties are still waited for it is checked when the coordinator is started.
    if all(after.get("parties", {}).values()):
        checked(after, path)
    return text


def check_folder(folder: Path) -> None:
    """Raise ``InvalidInput`` where a coordinator's folder is wanted and something else was given."""
    if folder.is_file():
        raise InvalidInput(
            "this is a file", where=str(folder), mend=f"Give its folder: {folder.parent}"
        )
    if not folder.exists():
        raise InvalidInput(
            "there is no such folder",
            where=str(folder),
            mend=f"Make one with: {command('coordinator', 'init', folder)} --parties a,b",
        )


def store_coordinator(spec: CoordinatorSpec, folder: Path) -> None:
    """Store the configuration with which a run is started or resumed; later edits of the file are ignored.

    Args:
        spec: the configuration.
        folder: the coordinator's folder.
    """
    store_configuration(folder / "run", "deployed", spec)


def stored_coordinator(folder: Path) -> CoordinatorSpec | None:
    """Read the configuration with which the run was last started or resumed; ``None`` if there is no run.

    Raises:
        RunFailed: it has another format, or is damaged.
    """
    if not (folder / "run" / CONFIG).exists():
        return None
    return deployed_spec(folder / "run")


def deployed_spec(run: Path) -> CoordinatorSpec:
    """Read the configuration in the run folder of a deployed federation.

    Raises:
        RunFailed: it has another format, or is damaged.
    """
    stored = read_configuration(run)
    if stored.kind != "deployed":
        raise stored.damaged("it is of a simulated run")
    try:
        return CoordinatorSpec.model_validate_json(json.dumps(stored.values))
    except (ValueError, RecursionError) as error:
        raise stored.damaged(error) from error
