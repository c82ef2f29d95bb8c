"""``consilience parties``: differences between parties, and their coverage of public rows."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.core.errors import ConsilienceError, InvalidInput, nearest
from consilience.lab.cli.output import say

if TYPE_CHECKING:
    from consilience.lab.diagnostics.coverage import PublicCoverage
    from consilience.lab.diagnostics.heterogeneity import Heterogeneity
    from consilience.lab.experiments import SimulatedParties, Spec

SCALES = ("columns", "overall")


def check_folder(out: Path | None) -> None:
    """Raise ``InvalidInput`` if what should become a folder is a file, before any work."""
    if out is not None and out.exists() and not out.is_dir():
        raise InvalidInput("this is a file, not a folder", where=f"--out {out}")


def equalized(setup: SimulatedParties, scale: str | None) -> bool:
    """Decide if columns are brought to one scale: as asked for, and by default for tables with named columns.

    Raises:
        InvalidInput: there is no such scale.
    """
    if scale is None:
        return setup.dataset.columns is not None
    if scale not in SCALES:
        raise InvalidInput(f"unknown scale {scale!r}", where="--scale", mend=nearest(scale, SCALES))
    return scale == "columns"


def compared(setup: SimulatedParties, **options: Any) -> Heterogeneity:
    """Compare the private rows of a configuration's parties.

    Args:
        setup: from :func:`consilience.lab.experiments.gather`.
        options: of :func:`consilience.lab.diagnostics.heterogeneity.how_different`.
    """
    from consilience.lab.diagnostics.heterogeneity import how_different

    data, names = setup.dataset, setup.dataset.strata_names
    encode = np.asarray if data.schema is None else data.schema.encode
    return how_different(
        {
            name: (encode(data.X[rows]), y if names is None else np.asarray(names)[y])
            for name, rows in zip(setup.names, setup.rows, strict=True)
            for y in (data.strata(data.y[rows]),)
        },
        kind="regression" if names is None else "classification",
        classes=names,
        **options,
    )


def bound(setup: SimulatedParties) -> list[str]:
    """Write a line on the malicious parties that each class bears; none for values."""
    from consilience.core.federation.forming import bound_by_class

    said = "" if setup.dataset.classes is None else bound_by_class(setup.holders)
    return [said[0].upper() + said[1:] + "."] if said else []


def judged(spec: Spec, setup: SimulatedParties, seed: int) -> PublicCoverage | None:
    """Coverage of the public rows by the parties; ``None`` where there are none, or where it cannot be said.

    Args:
        spec: the configuration.
        setup: its parties, from :func:`consilience.lab.experiments.gather`.
        seed: the seed they were drawn with.
    """
    from consilience.lab.experiments.public_known import public_known

    if not len(setup.public):
        return None
    try:
        return public_known(spec, setup, seed)
    except ConsilienceError as error:  # how different they are holds all the same
        say(f"warning: what the parties know of the public rows cannot be said: {error}")
        return None


def facts(spec: Spec, seed: int, **options: Any) -> dict[str, Any]:
    """Facts that are needed to compute the same again."""
    from consilience.lab.runs.folder import machine, versions

    return {
        "configuration": spec.name,
        "dataset": spec.data.name,
        "partition": spec.partition.name,
        "seed": seed,
        **options,
        "date": date.today().isoformat(),
        "versions": versions(),
        "machine": machine(),
    }
