"""Papers: their tables and figures, computed anew and shown beside what was published.

>>> sorted(PAPERS)
['afonin2022', 'kovalchuk2026', 'park2023', 'shen2022']
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from consilience_papers.afonin2022 import EXHIBITS as _AFONIN2022
from consilience_papers.exhibit import Exhibit
from consilience_papers.kovalchuk2026 import EXHIBITS as _KOVALCHUK2026
from consilience_papers.park2023 import EXHIBITS as _PARK2023
from consilience_papers.shen2022 import EXHIBITS as _SHEN2022
from consilience_papers.study import Study

__all__ = ["PAPERS", "Paper"]


@dataclass(frozen=True)
class Paper:
    """A paper that is reproduced.

    Attributes:
        citation: authors, title, where.
        exhibits: its tables and figures, and what goes beyond them, by name.
    """

    citation: str
    exhibits: Mapping[str, Callable[[Study], Exhibit]]


PAPERS: Mapping[str, Paper] = {
    "afonin2022": Paper(
        "Afonin & Karimireddy, Towards Model-Agnostic Federated Learning Using Knowledge Distillation, "
        "ICLR 2022",
        _AFONIN2022,
    ),
    "kovalchuk2026": Paper(
        "Kovalchuk et al., Who to Trust? Aggregating Client Predictions in Federated Distillation, 2026",
        _KOVALCHUK2026,
    ),
    "park2023": Paper(
        "Park, Hong & Hwang, Towards Understanding Ensemble Distillation in Federated Learning, "
        "ICML 2023",
        _PARK2023,
    ),
    "shen2022": Paper(
        "Shen, Hassani, Kale & Karbasi, Federated Functional Gradient Boosting, AISTATS 2022",
        _SHEN2022,
    ),
}
"""The papers by name."""
