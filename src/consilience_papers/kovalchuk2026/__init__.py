"""Kovalchuk et al. 2026: Table 1, the figures, communication, and what its theory says, measured.

Networks are trained at a size for one core, and every table says so. With a GPU take the paper's:

    from consilience_papers.study import Study
    from consilience_papers.kovalchuk2026 import tables
    print(tables.table1(Study(folder, processes=1), size="full").as_markdown())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from consilience_papers.exhibit import Exhibit
from consilience_papers.kovalchuk2026.amounts import heatmap, homogeneous
from consilience_papers.kovalchuk2026.densities import order
from consilience_papers.kovalchuk2026.tables import curves, figure2, figure3, table1
from consilience_papers.kovalchuk2026.teachers import convergence, teacher
from consilience_papers.kovalchuk2026.traffic import communication
from consilience_papers.study import Study

EXHIBITS: Mapping[str, Callable[[Study], Exhibit]] = {
    "table1": table1,
    "fig2": figure2,
    "fig3": figure3,
    "curves": curves,
    "heatmap": heatmap,
    "order": order,
    "communication": communication,
    "homogeneous": homogeneous,
    "teacher": teacher,
    "convergence": convergence,
}
"""By the name that the command line takes."""
