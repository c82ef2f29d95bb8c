"""Every protocol keeps the contract of protocols, with every option that changes what is exchanged."""

from __future__ import annotations

import pytest

from consilience.core.checks import PROTOCOL_CASES, check_protocol
from consilience.core.checks.example_parties import networks
from consilience.core.protocols import PROTOCOLS, PYTHON_ONLY


@pytest.mark.parametrize("name", PROTOCOL_CASES)
def test_the_contract(name: str) -> None:
    case = PROTOCOL_CASES[name]
    if case.parties is networks:
        pytest.importorskip("torch")
    check_protocol(case.protocol, parties=case.parties, all_needed=case.all_needed)


@pytest.mark.slow
def test_the_contract_over_processes() -> None:
    case = PROTOCOL_CASES["ensemble_distillation"]
    check_protocol(case.protocol, parties=case.parties, processes=True)


def test_no_protocol_is_missing() -> None:
    """Under its own name with its usual options, and under no other name."""
    assert {name for name in PROTOCOL_CASES if "," not in name} == {*PROTOCOLS, *PYTHON_ONLY}
    for name, case in PROTOCOL_CASES.items():
        assert name.partition(",")[0] == case.protocol.name
