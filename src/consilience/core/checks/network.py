"""The contract of networks, as checks with parties that answer and parties that go wrong."""

from __future__ import annotations

from collections.abc import Callable

from consilience.core.checks.example_models import Linear, Misshapen, Raising, Slow, Undefined
from consilience.core.checks.example_parties import classifiers, with_model
from consilience.core.checks.expectations import expect, same_bits
from consilience.core.errors import InvalidInput
from consilience.core.federation.federation import federation_over
from consilience.core.messages.replies import Predictions
from consilience.core.messages.schema import Public
from consilience.core.messages.wire import encode
from consilience.core.networks import LocalNetwork, Network
from consilience.core.party.party import Party
from consilience.core.tasks.predictions import FitPrivate, PredictPublic

MakeNetwork = Callable[[list[Party], Public], Network]


def check_network(make: MakeNetwork) -> None:
    """Check that a network satisfies the contract.

    Args:
        make: creates a network from parties and public data, such as ``LocalNetwork`` or ``ProcessNetwork``;
            the classes of the models are importable.

    Raises:
        AssertionError: at the first failed check.
    """
    for check in NETWORK_CHECKS:
        check(make)


def answers_are_those_of_the_parties(make: MakeNetwork) -> None:
    """Answers come sorted by name, with the bits of a local network, and their bytes are booked."""
    expected = _asked(LocalNetwork(*classifiers()), LocalNetwork(*classifiers()).public)
    parties, public = classifiers()
    network = make(parties[::-1], public)
    try:
        got = _asked(network, public)
        expect(list(got) == sorted(got), f"answers come in the order {list(got)}")
        for name, answer in expected.items():
            expect(same_bits(answer.values, got[name].values), f"{name} answers other bits")
        for delivery in network.deliveries:
            if delivery.tasks == "PredictPublic":
                sent, back = (
                    len(encode([PredictPublic(round=1)])),
                    len(encode([got[delivery.party]])),
                )
                expect(
                    (delivery.bytes_down, delivery.bytes_up) == (sent, back),
                    f"{delivery.bytes_down} and {delivery.bytes_up} bytes are recorded, "
                    f"the messages have {sent} and {back}",
                )
        some = network.ask(PredictPublic(round=1), to=["cedar", "ash"])
        expect(some.parties == ("ash", "cedar"), f"asked ash and cedar, {some.parties} answered")
        _refuses_strangers(network)
    finally:
        network.close()


def a_party_that_goes_wrong_is_left_out(make: MakeNetwork) -> None:
    """A party that raises, predicts NaN or a wrong shape, or is late is named; the others go on."""
    parties, public = classifiers()
    models = {"ash": Raising(), "birch": Undefined(), "cedar": Misshapen(), "damson": Slow()}
    wrong = [with_model(party, models[party.name]) for party in parties]
    right = [with_model(party, Linear(), name=f"right-{party.name}") for party in parties]
    network = make([*wrong, *right], public)
    try:
        federation_over(network, public, strict=False).form()
        network.ask(FitPrivate(round=1))
        network.quorum, network.timeout = 1, Slow.seconds * 2 / 3
        replies = network.ask(PredictPublic(round=1))
        kinds = {name: failure.kind for name, failure in replies.missing.items()}
        expected = {"ash": "failed", "birch": "refused", "cedar": "refused", "damson": "late"}
        for name, kind in expected.items():
            expect(
                kinds.get(name) == kind, f"{name} is {kinds.get(name, 'accepted')}, expected {kind}"
            )
        network.timeout = None
        again = network.ask(PredictPublic(round=2))
        expected.pop("damson")
        expect(
            sorted(again.missing) == sorted(expected),
            f"in the round after, {sorted(again.missing)} are missing, expected {sorted(expected)}",
        )
    finally:
        network.close()


NETWORK_CHECKS: tuple[Callable[[MakeNetwork], None], ...] = (
    answers_are_those_of_the_parties,
    a_party_that_goes_wrong_is_left_out,
)


def _asked(network: Network, public: Public) -> dict[str, Predictions]:
    federation_over(network, public, strict=False).form()
    network.ask(FitPrivate(round=1))
    replies = network.ask(PredictPublic(round=1))
    return {answer.party: answer for answer in replies.of(Predictions)}


def _refuses_strangers(network: Network) -> None:
    try:
        network.ask(PredictPublic(round=1), to=["nobody"])
    except InvalidInput:
        return
    raise AssertionError("asking a party that is not there should raise InvalidInput")
