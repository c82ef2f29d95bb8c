"""Flower's own processes on this machine, without TLS, and runs of any app among them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "flower"))

import run as flower


class Loopback:
    """A SuperLink in a folder, and SuperNodes; leave the ``with`` block, and all are stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.user = self.folder / "homes" / "user"
        self.address = f"127.0.0.1:{flower.free_port()}"
        self._stack = ExitStack()

    def __enter__(self) -> Loopback:
        self.user.mkdir(parents=True)
        host, port = self.address.split(":")
        command = [flower.BIN / "flower-superlink", "--insecure", "--host", host, "--port", port]
        command += ["--disable-runtime-dependency-installation"]
        self._stack.enter_context(flower.process("superlink", command, self.folder))
        flower.wait_for(self.address, time.monotonic() + 120)
        (self.user / "config.toml").write_text(
            '[superlink]\ndefault = "here"\n\n'
            f'[superlink.here]\naddress = "{self.address}"\ninsecure = true\n'
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def supernode(self, number: int, programs: Path | None = None) -> None:
        """Start one; its configuration says which it is, and where its party's state may be.

        Args:
            number: which it is.
            programs: a folder of programs that take the place of Flower's.
        """
        config = f'number={number} home="{self.home(number)}"'
        command = [flower.BIN / "flower-supernode", "--insecure", "--superlink", self.address]
        command += ["--port", str(flower.free_port()), "--node-config", config]
        if programs is not None:
            found = f"{programs}{os.pathsep}{flower.BIN}{os.pathsep}{os.environ.get('PATH', '')}"
            command = ["env", f"PATH={found}", *command]
        self._stack.enter_context(flower.process(f"supernode-{number}", command, self.folder))

    def home(self, number: int) -> Path:
        """The folder for the state of a node's party."""
        return self.folder / "parties" / str(number)

    def submit(self, app: Path, config: str) -> str:
        """Start a run of an app; gives its number."""
        said = flower.flwr(self.user, "run", str(app), "--run-config", config)
        assert said["success"], said
        return str(said["run-id"])

    def wait(self, done: Callable[[], bool], run: str, *, seconds: float = 1800) -> bool:
        """Until something is done, or time is up; whether it is. The run has to go on until then."""
        now = time.monotonic()
        until, ask_at = now + seconds, now + flower.ASK_EVERY
        while not done():
            time.sleep(0.2)
            if (now := time.monotonic()) > until:
                return False
            if now > ask_at:
                runs = flower.flwr(self.user, "ls")["runs"]
                (status,) = (one["status"] for one in runs if str(one["run-id"]) == run)
                if status.startswith("finished") and not done():
                    raise SystemExit(f"the run is {status!r}; see the logs in {self.folder}")
                ask_at = time.monotonic() + flower.ASK_EVERY
        return True
