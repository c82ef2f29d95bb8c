"""A whole Flower deployment on this machine: a SuperLink, three SuperNodes, one run; then all is stopped.

    python examples/flower/run.py FOLDER

FOLDER gets the logs, each party's state, and ``teachers.npz``. It takes about a minute and a half.
Nothing is encrypted and anyone on this machine may connect: this is to try things out.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np

APP = Path(__file__).parent / "app"
BIN = Path(sys.executable).parent
MODELS = {
    "a": "random-forest",
    "b": "logistic-regression",
    "c": "mlp" if find_spec("torch") else "naive-bayes",
}
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",  # seconds, not 1: the work here is small
}


ASK_EVERY = 15.0
"""Seconds between looks at how the run does: the command that says it costs two of them."""


def deploy(
    folder: Path, *, models: Mapping[str, str] = MODELS, config: str = "", limit: float = 300
) -> Path:
    """Start everything, run the app to its end, stop everything; gives the file of results.

    ``config`` overrides the app's, such as ``"rounds=5 evaluate=false"``.

    Raises:
        RuntimeError: the run failed or took longer than ``limit`` seconds; FOLDER holds the logs.
    """
    deadline = time.monotonic() + limit
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "teachers.npz"
    results.unlink(missing_ok=True)
    address = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        host, port = address.split(":")
        superlink = [BIN / "flower-superlink", "--insecure", "--host", host, "--port", port]
        # Otherwise the SuperLink would install the app's dependencies on every run.
        superlink += ["--disable-runtime-dependency-installation"]
        stack.enter_context(process("superlink", superlink, folder))
        wait_for(address, deadline)
        for name, model in models.items():
            node = f'party="{name}" model="{model}" home="{folder / "parties" / name}"'
            command = [BIN / "flower-supernode", "--insecure", "--superlink", address]
            command += ["--port", str(free_port()), "--node-config", node]
            stack.enter_context(process(f"supernode-{name}", command, folder))
        user = folder / "homes" / "user"
        user.mkdir(parents=True, exist_ok=True)
        (user / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{address}"\ninsecure = true\n'
        )
        flwr(user, "run", str(APP), "--run-config", f'output="{results}" {config}')
        ask_at = time.monotonic() + ASK_EVERY
        while not results.exists():
            time.sleep(0.5)
            if (now := time.monotonic()) > ask_at:
                status = flwr(user, "ls")["runs"][0]["status"]
                if (status.startswith("finished") and not results.exists()) or now > deadline:
                    raise RuntimeError(f"the run is {status!r}; see the logs in {folder}")
                ask_at = time.monotonic() + ASK_EVERY
    return results


def flwr(home: Path, *arguments: str) -> dict:
    """Call a command of Flower's command line and return its output as data."""
    done = subprocess.run(
        [BIN / "flwr", *arguments, "--format", "json"],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode:
        raise RuntimeError(f"flwr {arguments[0]} failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


@contextmanager
def process(name: str, command: list, folder: Path) -> Iterator[None]:
    """A process and all it starts, for as long as the block lasts; its words go to FOLDER/NAME.log."""
    # A home each: Flower unpacks the app there, and two at once would write the same files.
    home = folder / "homes" / name
    home.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.log", "w") as log:
        started = subprocess.Popen(
            command,
            env=environment(home),
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            started.terminate()
            with suppress(subprocess.TimeoutExpired):
                started.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def environment(home: Path) -> dict[str, str]:
    """Ours, with a Flower home of its own, nothing reported to anyone, and Flower's commands found."""
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(address: str, deadline: float) -> None:
    """Until something listens there."""
    host, port = address.split(":")
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing listens on {address}") from None
            time.sleep(0.2)


def main() -> None:
    """The command line."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that everything is stopped then too
    found = np.load(deploy(Path(sys.argv[1])))
    for name, accuracy in zip(found["parties"], found["accuracy"], strict=True):
        print(f"party {name}  {MODELS[str(name)]:<20} accuracy {accuracy:.3f}")
    for tasks, seconds in zip(found["tasks"], found["seconds"], strict=True):
        print(f"{seconds:6.1f} s  {tasks}")
    print(f"{int(found['bytes_up']) / 1e3:.0f} kB left the parties")


if __name__ == "__main__":
    main()
