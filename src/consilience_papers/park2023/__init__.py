"""Park, Hong & Hwang 2023: all tables and figures, and what goes beyond them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from consilience_papers.exhibit import Exhibit
from consilience_papers.park2023.beyond import anderson, rates
from consilience_papers.park2023.figures import (
    figure1,
    figure2,
    figure3,
    figure5,
)
from consilience_papers.park2023.networks import figure4
from consilience_papers.park2023.participation import figure6, figure7
from consilience_papers.park2023.tables import table1, table2
from consilience_papers.study import Study

EXHIBITS: Mapping[str, Callable[[Study], Exhibit]] = {
    "table1": table1,
    "table2": table2,
    "fig1": figure1,
    "fig2": figure2,
    "fig3": figure3,
    "fig4": figure4,
    "fig5": figure5,
    "fig6": figure6,
    "fig7": figure7,
    "rates": rates,
    "anderson": anderson,
}
"""By the name that the command line takes."""
