"""Every protocol keeps the contract of protocols, with every option that changes what is exchanged."""

from __future__ import annotations

import pytest

from consilience.core.checks import PROTOCOL_CASES
from consilience.core.checks.protocol import check_case
from consilience.core.protocols import PROTOCOLS, PYTHON_ONLY
from consilience.methods.checks import networks


@pytest.mark.parametrize("name", PROTOCOL_CASES)
def test_the_contract(name: str) -> None:
    case = PROTOCOL_CASES[name]
    if case.parties is networks:
        pytest.importorskip("torch")
    check_case(case)


@pytest.mark.slow
def test_the_contract_over_processes() -> None:
    case = PROTOCOL_CASES["ensemble_distillation"]
    check_case(case, processes=True)


def test_no_protocol_is_missing() -> None:
    """Under its own name with its usual options, and under no other name."""
    assert {name for name in PROTOCOL_CASES if "," not in name} == {*PROTOCOLS, *PYTHON_ONLY}
    for name, case in PROTOCOL_CASES.items():
        assert name.partition(",")[0] == case.protocol.name
