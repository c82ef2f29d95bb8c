"""Check cases for protocols that hide single answers, each with suitable example parties."""

from __future__ import annotations

from collections.abc import Mapping

from consilience.core.aggregation import count_weighted
from consilience.core.checks.example_parties import classifiers, regressors
from consilience.core.checks.protocol_case import ProtocolCase
from consilience.core.protocols import ensemble_distillation
from consilience.privacy.class_sums.protocol import private_sums
from consilience.privacy.secure_aggregation.rounds import SecureAggregation

PROTOCOL_CASES: Mapping[str, ProtocolCase] = {
    "private_sums": ProtocolCase(private_sums(rounds=2), classifiers),
    "private_sums, of values": ProtocolCase(
        private_sums(rounds=2, features="leaves", bounds=[-9, 9]), regressors
    ),
    "ensemble_distillation, summed": ProtocolCase(
        ensemble_distillation(aggregate=count_weighted(), rounds=2).with_options(
            secure_aggregation=SecureAggregation()
        ),
        classifiers,
        all_needed=True,  # after the first sum parties open none without one of them
    ),
}
"""As :data:`consilience.core.checks.PROTOCOL_CASES` has them."""
