"""A FedMD-like round written for Flower's simulation engine, for comparison.

A client is called for every message, with a ``Context`` in which its network's parameters are kept; the
server stacks what clients predict on the public rows and sends the mean. Nothing of consilience is used.
"""

from __future__ import annotations

import os

os.environ.update(
    FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0"
)

import logging
from collections.abc import Callable
from time import perf_counter, sleep

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

Answer = Callable[[int, np.ndarray | None, Context], np.ndarray]
"""Of a client's number, the mean of what all said last (none in the first round) and its context."""


def simulate(answer: Answer, *, clients: int, rounds: int) -> tuple[float, list[float]]:
    """Seconds of everything, the engine's start and end included, and of each round.

    Args:
        answer: what a client does; sent to Ray's workers.
        clients: how many.
        rounds: how often all of them are asked.
    """
    logging.getLogger("flwr").setLevel(logging.ERROR)
    seconds: list[float] = []
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        given = message.content.array_records.get("mean")
        mean = None if given is None else given.to_numpy_ndarrays()[0]
        said = answer(int(context.node_config["partition-id"]), mean, context)
        return Message(RecordDict({"said": ArrayRecord([said])}), reply_to=message)

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < clients:
            sleep(0.1)
        content = RecordDict()
        for _ in range(rounds):
            start = perf_counter()
            asked = [
                Message(content, dst_node_id=node, message_type="train")
                for node in grid.get_node_ids()
            ]
            replies = list(grid.send_and_receive(asked, timeout=300))
            assert len(replies) == clients and not any(reply.has_error() for reply in replies)
            said = [reply.content.array_records["said"].to_numpy_ndarrays()[0] for reply in replies]
            content = RecordDict({"mean": ArrayRecord([np.mean(said, axis=0, dtype=np.float32)])})
            seconds.append(perf_counter() - start)

    start = perf_counter()
    run_simulation(
        server_app=server,
        client_app=app,
        num_supernodes=clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"logging_level": "error", "log_to_driver": False},
        },
    )
    return perf_counter() - start, seconds
