"""Answers a party's messages in forks of one long-lived process with all modules already imported.

Flower's SuperNode starts one ``flower-superexec``, which starts a command for every message; this command
would spend a second or more on imports. Here a process that imports and waits replaces the command. It never
computes, holds no rows and opens no connections. It forks for every message, and the fork ends with the
answer, so that a message cannot see data of an earlier one. The forks return only names and files of
installed modules. The process imports modules that a fork had to import before the next message. Every fork
imports a party's private files again.
"""

from __future__ import annotations

import gc
import json
import os
import select
import site
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import consilience
from consilience.sites.transport.flower.client_app import run_installed_client
from consilience.sites.transport.flower.internals import flwr, replaced

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp

_MESSAGE = "flwr-clientapp"
"""Flower's name for the task of answering a message, and for the command that does it."""

_INSTALLED = (
    *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    *site.getsitepackages(),
    str(Path(consilience.__file__).parent),
)
"""Folders of what is installed."""


def superexec(command: Sequence[str]) -> None:
    """Do what Flower's ``flower-superexec`` does for a party, with messages answered by forks.

    Args:
        command: starts the process that forks (:func:`answer_in_forks`).

    Raises:
        RunFailed: this is another flwr than the one whose insides are known here.
        MissingExtra: flwr is not installed.
    """
    flwr()
    from flwr.supercore.cli.flower_superexec import flower_superexec

    module = "flwr.supercore.superexec.run_superexec"
    replaced(module, get_executor=lambda *_, **__: ForkExecutor(command))
    flower_superexec()


class ForkExecutor:
    """Executor, in Flower's words, that has every message answered by a fork of one process.

    Args:
        command: starts that process; it is started again where it was killed.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, bufsize=0)

    def get_eligible_capacity(self, supported: set[Any], **_: Any) -> tuple[set[Any], set[str]]:
        """Return the accepted tasks: messages only, because all other tasks would run received code."""
        return {task for task in supported if task == _MESSAGE}, set()

    def launch(self, spec: Any) -> Any:
        """Start the answer to a message; return a failed result if the forking process has just ended."""
        from flwr.supercore.superexec.executor import LaunchResult

        words = ["--runtime-api-address", spec.runtime_api_address, "--token", spec.token]
        if spec.insecure:
            words.append("--insecure")
        elif spec.root_certificates_path is not None:
            words += ["--root-certificates", spec.root_certificates_path]
        if spec.parent_pid is not None:
            words += ["--parent-pid", str(spec.parent_pid)]
        if self._process.poll() is not None:
            self.close()
            self._start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
        except BrokenPipeError:
            return LaunchResult.failed("the process that answers messages has just ended")
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Required by Flower; no action is needed, because :meth:`launch` restarts a killed process."""

    def close(self) -> None:
        """End the process; active forks watch Flower's processes themselves."""
        assert self._process.stdin is not None
        self._process.stdin.close()


def answer_in_forks(client: ClientApp) -> None:
    """Answer every message of standard input with this ClientApp, in a fork each; returns in none.

    Args:
        client: what answers, whatever app came with the message.

    Raises:
        SystemExit: standard input has ended; or, in a fork, the message is answered.
    """
    import_module("flwr.supernode.cli.flwr_clientapp")
    in_forks(lambda: run_installed_client(client))


def in_forks(answer: Callable[[], None]) -> None:
    """Call a function in a fork for every line of standard input, a JSON list with the fork's arguments.

    The calling process must have one thread, and must not have computed anything: a fork has none of the
    threads of the numerical libraries.

    Args:
        answer: finds its arguments in ``sys.argv``.

    Raises:
        SystemExit: standard input has ended; or, in a fork, the answer is given.
    """
    begun: dict[int, tuple[int, bytes]] = {}
    """Forks at work and what each has said so far, under the pipes that they say it on."""
    line = b""
    while True:
        gc.freeze()  # a collection in a fork would write to every page
        for pipe in select.select([0, *begun], [], [])[0]:
            said = os.read(pipe, 1 << 16)
            if pipe:
                fork, before = begun.pop(pipe)
                if said:
                    begun[pipe] = fork, before + said
                else:
                    os.close(pipe)
                    os.waitpid(fork, 0)
                    with suppress(ValueError):  # of a fork that was killed
                        _import_ahead(json.loads(before))
                continue
            if not said:
                sys.exit()
            *lines, line = (line + said).split(b"\n")
            for words in map(json.loads, lines):
                told, tell = os.pipe()
                if fork := os.fork():
                    os.close(tell)
                    begun[told] = fork, b""
                else:
                    for other in (told, *begun):
                        os.close(other)
                    _answer(answer, words, tell)


def _answer(answer: Callable[[], None], words: list[str], tell: int) -> None:
    """Answer one message in this fork, write the imported modules to the pipe ``tell``, and end."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # the next message is not this fork's to read
    os.close(nothing)
    np.random.seed()  # noqa: NPY002 (else forks would draw alike where a library is given no seed)
    sys.argv = [_MESSAGE, *words]
    before = set(sys.modules)
    try:
        answer()
    finally:
        files = {name: getattr(sys.modules[name], "__file__", None) for name in sys.modules}
        new = {name: file for name, file in files.items() if file and name not in before}
        with os.fdopen(tell, "w", closefd=False) as pipe:  # which the end of the fork closes
            json.dump({name: file for name, file in new.items() if _is_installed(file)}, pipe)
    sys.exit()


def _is_installed(file: str) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in _INSTALLED)


def _import_ahead(files: Mapping[str, str]) -> None:
    """Import modules from the files that a fork had them from; one that cannot be is left to the forks.

    Args:
        files: name of a module to its file.
    """
    for name, file in files.items():
        with suppress(Exception):  # whatever a module raises
            found = find_spec(name)
            if found is not None and found.origin == file:
                import_module(name)
