"""Shen, Hassani, Kale & Karbasi 2022: Table 2, Figure 1, the theorems on known problems, and boosted trees.

Networks are trained at a size for one core, and every table says so. With a GPU take the paper's:

    from consilience_papers.study import Study
    from consilience_papers.shen2022 import tables
    print(tables.table2(Study(folder, processes=1), size="full", data=["cifar-10"]).as_markdown())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from consilience_papers.exhibit import Exhibit
from consilience_papers.shen2022.tables import table2
from consilience_papers.shen2022.tabular import trees
from consilience_papers.shen2022.theorems import rates
from consilience_papers.shen2022.warm_start import figure1
from consilience_papers.study import Study

EXHIBITS: Mapping[str, Callable[[Study], Exhibit]] = {
    "table2": table2,
    "fig1": figure1,
    "rates": rates,
    "trees": trees,
}
"""By the name that the command line takes."""
