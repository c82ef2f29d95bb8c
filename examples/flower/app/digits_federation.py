"""Three hospitals, say, that each read some of the digits, and teach one another the rest.

The same data, models and protocol run here over Flower and, in this repository's tests, in one process.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from sklearn.datasets import load_digits

from consilience import Party, ensemble_distillation, uwa
from consilience.core.federation.federation import federation_over
from consilience.core.messages.schema import Public
from consilience.models import make
from consilience.sites.transport.flower.client_app import party_app
from consilience.sites.transport.flower.network import FlowerNetwork

KNOWN = {"a": range(0, 7), "b": range(3, 10), "c": [0, 1, 2, 3, 6, 7, 8, 9]}
"""The digits that each party has examples of; every digit is known to two parties or three."""

SMALLER = {"random-forest": {"n_estimators": 30}, "mlp": {"hidden": [32]}}
"""Parameters of models where the usual ones are more than this example needs."""


def public_rows() -> Public:
    """Load every fourth row, unlabelled; the server sends them to the parties."""
    return Public(load_digits().data[3::4] / 16)


def party_of(name: str, model: str) -> Party:
    """A party with its private rows: the digits that it knows, of its own third of the others."""
    digits = load_digits()
    mine = np.arange(len(digits.target)) % 4 == sorted(KNOWN).index(name)
    test = mine & (np.arange(len(digits.target)) % 20 < 4)  # a fifth, with all the digits
    train = mine & ~test & np.isin(digits.target, list(KNOWN[name]))
    X, y = digits.data / 16, digits.target
    learner = make(model, **SMALLER.get(model, {}))
    return Party(name, learner, X[train], y[train], test=(X[test], y[test]))


def from_node(context: Context) -> Party:
    """The party that this node is, as its ``--node-config`` says."""
    node = context.node_config
    return party_of(str(node["party"]), str(node["model"]))


client = party_app(from_node)
server = ServerApp()


def protocol(rounds: int):
    """The protocol of the run; nothing in it knows of Flower."""
    return ensemble_distillation(aggregate=uwa(), rounds=rounds)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run the protocol and write the teachers and what it cost to a file, whole or not at all."""
    config = context.run_config
    network = FlowerNetwork(grid, nodes=len(KNOWN), timeout=float(config["timeout"]))
    federation = federation_over(network, public_rows(), seed=int(config["seed"]))
    teachers = {}
    for round in federation.rounds(protocol(int(config["rounds"]))):
        if round.teacher is not None:
            teachers[f"teacher_{round.number}"] = round.teacher.values
    measured = federation.evaluate(round.number) if config["evaluate"] else {}
    first = network.parties[0]
    exchanges = [delivery for delivery in network.deliveries if delivery.party == first]
    output = Path(str(config["output"]))
    part = output.with_name(f"part-{output.name}")
    np.savez(
        part,
        parties=list(measured),
        accuracy=[metrics.values["accuracy"] for metrics in measured.values()],
        tasks=[delivery.tasks for delivery in exchanges],
        seconds=[delivery.seconds for delivery in exchanges],
        bytes_up=sum(delivery.bytes_up for delivery in network.deliveries),
        **teachers,
    )
    part.replace(output)
