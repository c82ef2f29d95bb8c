"""Columns of texts as an encoder's numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.core.messages.columns import Schema
from consilience.models.encoders.encoders import ENCODERS, find_encoder
from consilience.tables.table import Table

_OF_TEXT = re.compile(r"(.+): (\S+) \d+")
"""Name of a feature column of a text: column, encoder, place."""


def text_columns(table: Any, names: Sequence[str], *, encoder: str = "static-words") -> Any:
    """Replace columns of texts by an encoder's features, named after the text column and the encoder.

    ``note`` becomes ``note: static-words 0``, ``note: static-words 1`` and so on. A missing text is read as
    an empty one. If public rows have such columns, the column ``note`` of a party's table and of a model's
    prediction rows is encoded in the same way.

    Args:
        table: a pandas or pyarrow table, or a mapping of names to columns.
        names: columns of texts.
        encoder: a name of :data:`ENCODERS`, of an encoder of texts.

    Returns:
        A pandas table.

    Raises:
        InvalidInput: no such column or encoder, or a column of other values.
        MissingExtra: the encoder's package is not installed.
    """
    import pandas as pd

    if encoder not in ENCODERS:
        raise InvalidInput(f"unknown encoder {encoder!r}", mend=nearest(encoder, ENCODERS))
    found = dict(Table.of(table, where="text_columns").columns)
    for name in names:
        texts = found.get(name)
        if texts is None or texts.dtype.kind != "O":
            raise InvalidInput(
                f"column {name!r} holds no texts"
                if name in found
                else f"there is no column {name!r}",
                where="text_columns",
                mend=nearest(
                    name, (one for one, values in found.items() if values.dtype == object)
                ),
            )
        features = find_encoder(encoder)(np.array([text or "" for text in texts], dtype=object))
        parts = {f"{name}: {encoder} {i}": part for i, part in enumerate(np.asarray(features).T)}
        places = list(found.items())
        at = list(found).index(name)
        found = dict([*places[:at], *parts.items(), *places[at + 1 :]])
    return pd.DataFrame(found)


def with_text_columns(table: Table, schema: Schema) -> Table:
    """Encode the text columns for which a schema has an encoder's features (:func:`text_columns`).

    Args:
        table: the unconverted rows.
        schema: columns to read them by; it may come from another party, and cannot name code.

    Returns:
        The table with the encoded columns.

    Raises:
        MissingExtra: the encoder's package is not installed.
    """
    told = filter(
        None, map(_OF_TEXT.fullmatch, (n for n in schema.names if n not in table.columns))
    )
    for name, encoder in sorted({(one[1], one[2]) for one in told}):
        texts = table.columns.get(name)
        if texts is not None and texts.dtype.kind == "O" and encoder in ENCODERS:
            table = Table.of(text_columns(table, [name], encoder=encoder), where="text_columns")
    return table
