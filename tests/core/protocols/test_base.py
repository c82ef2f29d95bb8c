"""What a protocol says of itself where it is defined, and nowhere else."""

from __future__ import annotations

import pytest

from consilience.core.checks import classifiers
from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import federation_over
from consilience.core.networks import LocalNetwork
from consilience.core.protocols import (
    ALSO_CALLED,
    PROTOCOLS,
    PYTHON_ONLY,
    ensemble_distillation,
    local_only,
)
from consilience.lab.config.methods import PROTOCOL_METHODS, MethodSpec
from consilience.methods.model_exchange.conjugate_distillation import conjugate_distillation
from consilience.methods.parameters.federated_averaging import federated_averaging


def test_a_protocol_says_what_leaves_a_party() -> None:
    assert ensemble_distillation.exchanges == "predictions"
    assert federated_averaging.exchanges == "parameters"
    assert conjugate_distillation.exchanges == "models"
    assert local_only.exchanges is None


def test_names_of_papers_lead_to_protocols_that_a_file_can_name() -> None:
    assert ALSO_CALLED["fedavg"] == "federated_averaging"
    assert set(ALSO_CALLED.values()) <= set(PROTOCOLS)
    assert "conjugate_distillation" in PYTHON_ONLY and not PYTHON_ONLY.keys() & PROTOCOLS.keys()


def test_a_method_by_itself_takes_no_aggregator_and_sends_something() -> None:
    assert "scaffold" in PROTOCOL_METHODS and "ensemble_distillation" not in PROTOCOL_METHODS
    assert "local_only" not in PROTOCOL_METHODS


@pytest.mark.parametrize(
    ("protocol", "needs"),
    [
        ({"name": "scaffold"}, False),
        ({"name": "federated_fusion"}, True),
        ({"name": "functional_gradient_boosting"}, False),
        ({"name": "functional_gradient_boosting", "distill": True}, True),
    ],
)
def test_public_rows_are_needed_as_the_protocol_says(protocol: dict, needs: bool) -> None:
    assert MethodSpec(protocol=protocol).needs_public is needs


def test_options_go_by_name() -> None:
    with pytest.raises(InvalidInput, match="takes options by name"):
        federated_averaging(3)


def test_a_protocol_is_checked_by_itself_and_nothing_is_asked() -> None:
    parties, public = classifiers()
    network = LocalNetwork(parties, public)
    federation_over(network, public, strict=False).form()
    network.deliveries.clear()
    first = local_only(rounds=1).check(network, public)
    assert [type(task).__name__ for task in first] == ["FitPrivate"] and not network.deliveries
    with pytest.raises(InvalidInput, match="rounds is 0"):
        local_only(rounds=0).check(network, public)
    with pytest.raises(InvalidInput, match="no parameters to average"):
        federated_averaging(rounds=1).check(network, public)
