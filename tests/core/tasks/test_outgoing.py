"""Replies and failures leave a party by one door, and failures say little."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import consilience
from consilience.core.errors import InvalidInput, KnowledgeRefused, RunFailed
from consilience.core.messages.replies import Failure, Metrics
from consilience.core.tasks.outgoing import LONGEST_REASON, answer, failure_of
from consilience.core.tasks.predictions import FitPrivate
from helpers.party_sites import agreement, one_party

SOURCE = Path(consilience.__file__).parent

DOOR = ("core/tasks/outgoing.py", "answer")
"""The caller of ``Task.run``."""

NO_TASKS = {
    "_DeployedRun(grid, folder, spec, ledger, **options)",
    "asyncio",
    "case",
    "core/checks/protocol_case.py self",
    "context",
    "copy_context()",
    "lab/estimators.py federation",
    "sites/pages/server.py server",
    "subprocess",
}
"""All else that has a method ``run`` in the library."""

AT_THE_COORDINATOR = {
    "core/checks/protocol.py",
    "sites/coordinator/membership.py",
    "sites/coordinator/rounds.py",
    "sites/transport/flower/network.py",
    "core/networks/incoming.py",
    "core/networks/processes.py _lost",
}
"""Failures that the coordinator makes itself, of parties that it does not hear, or does not believe."""


def found(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every node below one, with the function that it is in."""
    nodes = [(function, node)]
    while nodes:
        function, node = nodes.pop()
        inner = node.name if isinstance(node, ast.FunctionDef) else function
        for child in ast.iter_child_nodes(node):
            yield inner, child
            nodes.append((inner, child))


@cache
def library() -> list[tuple[str, str, ast.AST]]:
    """Every name, attribute and call, with file and function, in files that hold a word asked for below."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    return [
        (path.relative_to(SOURCE).as_posix(), function, node)
        for path, text in texts.items()
        if re.search(r"\.\s*run\b|getattr|caller|Failure", text)
        for function, node in found(ast.parse(text))
        if isinstance(node, ast.Name | ast.Attribute | ast.Call)
    ]


def called(node: ast.AST) -> str:
    """The last word of what is called; nothing where a node is no call."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


def test_one_function_alone_runs_tasks() -> None:
    callers = set()
    for file, function, node in library():
        if isinstance(node, ast.Attribute) and node.attr == "run":
            whose = ast.unparse(node.value)
            if not {whose, f"{file} {whose}"} & NO_TASKS:
                callers.add((file, function))
        if called(node).endswith(("getattr", "caller")):
            assert isinstance(node, ast.Call)
            assert "'run'" not in map(ast.unparse, node.args), f"{file}: {ast.unparse(node)}"
    (runs,) = callers
    if runs != DOOR:  # then a helper that it alone calls
        assert runs[0] == DOOR[0] and runs[1].startswith("_")
        users = {
            (file, function)
            for file, function, node in library()
            if isinstance(node, ast.Name) and node.id == runs[1] and file == DOOR[0]
        }
        assert users == {DOOR}


def test_one_function_alone_makes_failures_of_a_party() -> None:
    makers = {
        (file, function)
        for file, function, node in library()
        if called(node).endswith("Failure")
        and not {file, f"{file} {function}"} & AT_THE_COORDINATOR
    }
    assert makers == {("core/tasks/outgoing.py", "failure_of")}


@pytest.mark.parametrize("error", [InvalidInput, KnowledgeRefused, RunFailed])
def test_reason_and_advice_are_cut_alike(error: type) -> None:
    long = "3.14 \udc80" * 1000
    failure = failure_of("a", error(long, where="party 'a'", mend=long))
    for text in (failure.reason, failure.mend):
        assert len(text) == LONGEST_REASON + len(" …") and text.encode()
    assert failure.reason.startswith("party 'a': 3.14")


def test_the_kind_says_whose_turn_it_is() -> None:
    kinds = {InvalidInput: "invalid", KnowledgeRefused: "refused", RunFailed: "failed"}
    for error, kind in kinds.items():
        failure = failure_of("a", error("no", mend="Do.", code="not-joined"))
        assert (failure.kind, failure.reason, failure.mend) == (kind, "no", "Do.")
        assert (failure.party, failure.code) == ("a", "not-joined")
    failure = failure_of("a", ZeroDivisionError("division by zero"))
    assert (failure.kind, failure.reason) == ("failed", "ZeroDivisionError")
    failure = failure_of("a", ZeroDivisionError("division by zero"), trusted=True)
    assert (failure.kind, failure.reason) == ("failed", "ZeroDivisionError: division by zero")


def test_a_reply_is_of_the_type_that_its_task_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits judge a task by this type: whether it is masked, and whether a measurement counts."""
    party = one_party()
    party.join(agreement())
    party.trainer.fit_private(0)
    metrics = Metrics(party=party.name, round=0, rows=1, values={"accuracy": 1.0})
    monkeypatch.setattr(FitPrivate, "run", lambda task, party: metrics)
    failure = answer(party, (FitPrivate(round=0),))
    assert isinstance(failure, Failure) and "replies with Metrics" in failure.reason
