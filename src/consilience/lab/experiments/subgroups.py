"""Groups of test rows that a report evaluates separately, and the positive class of a report."""

from __future__ import annotations

import numpy as np

from consilience.core.errors import InvalidInput, nearest
from consilience.lab.config.experiment_sections import ReportSpec
from consilience.lab.data import Dataset
from consilience.tables.texts import number_text

_MOST_GROUPS = 6
"""Values of a column that are groups by themselves."""


def check_two_classes(spec: ReportSpec, dataset: Dataset) -> None:
    """Raise ``InvalidInput`` if ``positive`` or ``subgroup`` is set for data without exactly two classes.

    An unknown positive class is refused too.
    """
    classes = dataset.classes or ()
    for name in ("positive", "subgroup"):
        if getattr(spec, name) is not None and len(classes) != 2:
            raise InvalidInput(
                f"is for two classes, and the data have {len(classes) or 'none'}",
                where=f"report.{name}",
                mend="Leave it out.",
            )
    if spec.positive is not None and spec.positive not in classes:
        raise InvalidInput(
            f"there is no class {spec.positive!r}",
            where="report.positive",
            mend=nearest(spec.positive, classes),
        )


def subgroups_of(spec: ReportSpec, dataset: Dataset, group: str | None) -> tuple[str, ...]:
    """Group of each test row, by the column that the report names; empty where it names none.

    Numbers of more than :data:`_MOST_GROUPS` values are parted at the thirds of all rows, the same with every
    seed.

    Args:
        spec: of the report.
        dataset: the rows, their inputs as they came.
        group: name of the groups' column; ``None`` where there is none.

    Raises:
        InvalidInput: there is no such column.
    """
    asked, names = spec.subgroup, tuple(dataset.columns or ())
    if asked is None:
        return ()
    if dataset.group_test is not None and asked == group:
        return tuple(map(str, dataset.group_test))
    if asked not in names:
        known = [*names, *filter(None, [group])]
        raise InvalidInput(
            f"there is no column {asked!r}",
            where="report.subgroup",
            mend=nearest(asked, known) if known else "The columns of this dataset have no names.",
        )
    place = names.index(asked)
    tests = dataset.X_test[:, place]
    column = None if dataset.schema is None else dataset.schema.columns[place]
    if column is not None and column.kind in ("category", "boolean"):
        said = column.categories or ("no", "yes")
        return tuple("missing" if np.isnan(v) else said[int(v)] for v in tests)
    everyone = np.concatenate([dataset.X[:, place], tests])
    known = everyone[~np.isnan(everyone)]
    if len(np.unique(known)) <= _MOST_GROUPS:
        return tuple("missing" if np.isnan(v) else number_text(v) for v in tests)
    low, high = (float(f"{np.quantile(known, third):.3g}") for third in (1 / 3, 2 / 3))
    parts = (f"up to {low:g}", f"{low:g} to {high:g}", f"above {high:g}")
    return tuple("missing" if np.isnan(v) else parts[int(v > low) + int(v > high)] for v in tests)
