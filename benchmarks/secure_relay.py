"""Measure a secure relay: seconds and bytes a row, by columns, models and key length.

python benchmarks/secure_relay.py    # under a minute; writes docs/results/secure-relay.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from consilience.core.messages.wire import encode
from consilience.core.numerics.randomness import limited_threads
from consilience.lab.runs.folder import machine, versions
from consilience_papers.afonin2022.encrypted import FixedPoint, LinearModel, Questioner, Relay

PAGE = Path(__file__).parent.parent / "docs" / "results" / "secure-relay.md"
KEYS = (2048, 3072)


def timed(work: Callable[..., Any], *given: Any) -> tuple[Any, float]:
    """Call a function three times: its result, and the median time in seconds."""
    seconds = []
    for _ in range(3):
        start = perf_counter()
        value = work(*given)
        seconds.append(perf_counter() - start)
    return value, float(np.median(seconds))


def drawn(columns: int, count: int) -> list[LinearModel]:
    rng = np.random.default_rng(0)
    return [
        LinearModel(coefficients=rng.normal(size=(columns, 1)), intercept=rng.normal(size=1))
        for _ in range(count)
    ]


def inputs(columns: int, rows: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, columns))


def size(message: object) -> int:
    return len(encode([message]))


def columns() -> Iterator[str]:
    yield (
        "Ten models with one output, combined before the encrypted product; as many rows as one "
        "ciphertext holds. Milliseconds and bytes are of one row:"
    )
    yield ""
    yield (
        "| key, bits | rows | columns | party encrypts, ms | relay answers, ms | party decrypts, ms "
        "| bytes to the relay | bytes back | largest error |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for length in KEYS:
        rows, party = FixedPoint().rows(length), Questioner(key_length=length)
        for d in (5, 20, 100):
            X, relay = inputs(d, rows), Relay(drawn(d, 10))
            question, asking = timed(party.ask, X)
            answer, answering = timed(relay.answer, question)
            values, reading = timed(party.read, answer, question)
            mean = relay.combined()
            error = np.abs(values - X @ mean.coefficients - mean.intercept).max()
            times = " | ".join(f"{1e3 * t / rows:.2f}" for t in (asking, answering, reading))
            sizes = " | ".join(f"{size(sent) / rows:,.0f}" for sent in (question, answer))
            yield f"| {length} | {rows} | {d} | {times} | {sizes} | {error:.0e} |"


def models() -> Iterator[str]:
    d, rows = 20, FixedPoint().rows(3072)
    question = Questioner().ask(inputs(d, rows))
    one = drawn(d, 1)
    asked, model = size(question) + size(Relay(one).answer(question)), size(one[0])
    yield (
        f"A key of 3072 bits, {d} columns, one output, {rows} rows. *Combined first* is what the relay "
        "does; *a product for each* would be M encrypted products. Bytes are one party's, in a round: "
        "of all models, or of its question and answer."
    )
    yield ""
    yield (
        "| models M | combining, ms | relay answers, combined first, s | a product for each, s "
        "| bytes of M models | bytes by relay |"
    )
    yield "| --- | --- | --- | --- | --- | --- |"
    for count in (1, 10, 100, 1000):
        relay = Relay(drawn(d, count))
        _, combining = timed(relay.combined)
        _, together = timed(relay.answer, question)
        apart = "–"
        if count <= 10:
            singles = [Relay([model]) for model in relay.models]
            apart = f"{sum(timed(single.answer, question)[1] for single in singles):.2f}"
        yield (
            f"| {count:,} | {1e3 * combining:.2f} | {together:.2f} | {apart} "
            f"| {count * model:,} | {asked:,} |"
        )
    yield ""
    yield (
        f"A linear model of {d} columns is {model} bytes: with {rows} rows the relay takes fewer bytes "
        f"from {asked // model + 1:,} models on, and with more rows later. What it is for is that parties "
        "see no single model of another's, and the relay no inputs."
    )


def keys() -> Iterator[str]:
    yield "| key, bits | seconds to make a pair |"
    yield "| --- | --- |"
    for length in KEYS:
        made = [timed(lambda bits: Questioner(key_length=bits), length)[1] for _ in range(3)]
        yield f"| {length} | {np.median(made):.2f} |"


def main() -> None:
    packages = {**versions(), "phe": version("phe"), "gmpy2": version("gmpy2")}
    named = ("python", "consilience", "numpy", "phe", "gmpy2")
    lines = [
        "# Secure relay",
        "",
        f"`python benchmarks/secure_relay.py` · medians of three · {date.today().isoformat()}",
        "",
        f"{machine()}, on one core. {', '.join(f'{name} {packages[name]}' for name in named)}.",
        "",
        "Inputs and coefficients have 32 bits after the point, which makes 96 bits a row. Bytes are those "
        "of the wire format.",
    ]
    with limited_threads(1):
        for title, part in (("By columns", columns), ("By models", models), ("Keys", keys)):
            lines += ["", f"## {title}", "", *part()]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
