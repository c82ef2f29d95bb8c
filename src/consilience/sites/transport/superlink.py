"""Flower's server, the SuperLink: its process, its command line, and its app."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from consilience.core.errors import RunFailed
from consilience.core.files import write_whole
from consilience.lab.runs.folder import is_locked
from consilience.sites.operations.processes import BIN, Processes, environment

ASK_EVERY = 15.0
"""Seconds between looks at how the run does; where nobody holds its folder, by a command that costs two."""

SLOWEST = 180.0
"""Seconds that a command of Flower's may take."""

PROJECT = """\
# Written by consilience: all that Flower is given. What is run is in coordinator.toml.
[project]
name = "consilience-federation"
version = "1.0.0"
description = "Runs the installed consilience"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "consilience"

[tool.flwr.app.components]
serverapp = "deployed:server"
clientapp = "deployed:client"

[tool.flwr.app.config]
folder = ""
"""

MODULE = """\
from consilience.sites.transport import coordinator_app

client = coordinator_app.client
server = coordinator_app.server
"""


def write_app(folder: Path) -> Path:
    """Write the folder that Flower packs and runs, without other files in it."""
    if folder.exists():
        # Flower would pack other modules in it too, and import them before what is installed.
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (folder / "deployed.py").write_text(MODULE, encoding="utf-8")
    return folder


@dataclass
class SuperLink:
    """SuperLink on the loopback device, with its runs and its registered parties.

    Args:
        folder: the coordinator's folder.
        processes: the processes to which the SuperLink belongs.
        port: port on which it listens.
    """

    folder: Path
    processes: Processes
    port: int
    _ask_at: float = field(default=0.0, init=False)
    _run: str = field(default="", init=False)

    @property
    def address(self) -> str:
        """Host and port where it listens."""
        return f"127.0.0.1:{self.port}"

    def start(self, parties: Mapping[str, str]) -> None:
        """Start it and register the parties' public keys, given by their names.

        Its database stores the keys; if they differ from the configured ones, the database is created again.
        """
        tls, home = self.folder / "tls", self.processes.folder
        known = home / "nodes.json"
        wanted = dict(parties)
        fresh = (
            not known.exists() or json.loads(known.read_text(encoding="utf-8"))["keys"] != wanted
        )
        if fresh:
            known.unlink(missing_ok=True)
            for file in home.glob("superlink.sqlite*"):
                file.unlink()
        command: list[str | Path] = [
            BIN / "flower-superlink",
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--ssl-ca-certfile", tls / "ca.pem", "--ssl-certfile", tls / "server.pem"),
            *("--ssl-keyfile", tls / "server.key", "--enable-supernode-auth"),
            *("--database", home / "superlink.sqlite"),
            "--disable-runtime-dependency-installation",
        ]
        self.processes.start("superlink", command, environment(home / "home"))
        self._wait()
        certificate = json.dumps(str(tls / "ca.pem"))
        user = home / "user"
        user.mkdir(exist_ok=True)
        write_whole(
            user / "config.toml",
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n'
            f"root-certificates = {certificate}\n",
        )
        if fresh:
            self.register(wanted)

    def register(self, parties: Mapping[str, str]) -> None:
        """Register these parties and no others during operation; removed parties are disconnected at once.

        Args:
            parties: party to its public key.
        """
        home = self.processes.folder
        known, file = home / "nodes.json", home / "user" / "key.pub"
        before = (
            json.loads(known.read_text(encoding="utf-8"))
            if known.exists()
            else {"keys": {}, "nodes": {}}
        )
        keys, nodes = before["keys"], before["nodes"]
        for name in [name for name, key in keys.items() if parties.get(name) != key]:
            flwr(home, "supernode", "unregister", nodes.pop(name))
            del keys[name]
            write_whole(known, json.dumps({"keys": keys, "nodes": nodes}))
        for name in sorted(parties.keys() - keys.keys()):
            write_whole(file, parties[name] + "\n")
            said = flwr(home, "supernode", "register", file, "--name", name)
            keys[name], nodes[name] = parties[name], str(said["node-id"])
            write_whole(known, json.dumps({"keys": keys, "nodes": nodes}))

    def submit(self) -> None:
        """Start a run of the installed consilience."""
        home = self.processes.folder
        given = f"folder={json.dumps(str(self.folder))}"
        said = flwr(home, "run", write_app(home / "app"), "--run-config", given)
        self._run = str(said["run-id"])
        self._ask_at = time.monotonic() + ASK_EVERY

    def busy(self) -> bool:
        """Return true if the SuperLink is alive and the run has not finished, as of the last check."""
        if self.processes.ended("superlink") is not None:
            return False
        if time.monotonic() > self._ask_at:
            self._ask_at = time.monotonic() + ASK_EVERY
            if is_locked(self.folder / "run"):  # its process works
                return True
            runs = flwr(self.processes.folder, "ls")["runs"]
            mine = [str(run["status"]) for run in runs if str(run["run-id"]) == self._run]
            return any(not status.startswith("finished") for status in mine)
        return True

    def _wait(self) -> None:
        """Wait until it answers, or raise ``RunFailed``."""
        until = time.monotonic() + 60.0
        while self.processes.ended("superlink") is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                return
            except OSError:
                time.sleep(0.2)
        if "Can't locate revision" in self.processes.output("superlink"):  # Alembic's words
            raise RunFailed(
                f"a newer Flower wrote the SuperLink's database than the installed one ({version('flwr')})",
                where=str(self.processes.folder / "superlink.sqlite"),
                mend="Install the Flower that wrote it. Or delete "
                f"{self.processes.folder / 'nodes.json'}: then the database is made anew, and the run "
                "goes on from its last round.",
            )
        raise RunFailed(
            f"the SuperLink does not start: {self.processes.last_lines('superlink')}",
            where=str(self.processes.folder / "superlink.log"),
        )


def flwr(home: Path, *arguments: str | Path) -> dict[str, Any]:
    """Run a command of Flower's command line and return its answer as data.

    Args:
        home: the folder of the SuperLink's processes.
        arguments: the command and its arguments.

    Returns:
        The JSON object that the command prints.

    Raises:
        RunFailed: the command failed, took too long, or no SuperLink was started.
    """
    home = home.resolve()
    if not (home / "user" / "config.toml").is_file():  # Flower would start a SuperLink of its own
        raise RunFailed("no SuperLink was started here", where=str(home))
    command = [BIN / "flwr", *arguments, "--format", "json"]
    try:
        done = subprocess.run(
            command,
            env=environment(home / "user"),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=SLOWEST,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailed(
            f"flwr {arguments[0]} took more than {SLOWEST:g} s", where=str(home)
        ) from error
    try:
        found = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        found = {"error-message": f"{done.stdout} {done.stderr}".strip()}
    if done.returncode or not found.get("success"):
        why = " ".join(str(found.get("error-message", done.stderr)).split())
        raise RunFailed(f"flwr {arguments[0]} failed: {why}", where=str(home / "superlink.log"))
    return dict(found)


def connected(home: Path) -> dict[str, str]:
    """Return the state of each party's node, as reported by the SuperLink; empty if it does not answer."""
    try:
        found = flwr(home, "supernode", "ls")["nodes"]
        nodes = json.loads((home / "nodes.json").read_text(encoding="utf-8"))["nodes"]
    except (RunFailed, OSError, ValueError):
        return {}
    states = {str(node["node-id"]): str(node["status"]) for node in found}
    return {name: states.get(node, "?") for name, node in nodes.items()}
