"""Afonin & Karimireddy 2022: its figures, and what goes beyond them.

Networks are trained at a size for one core, and every figure says so. With a GPU take the paper's:

    from consilience_papers.study import Study
    from consilience_papers.afonin2022 import networks
    print(networks.figure6(Study(folder, processes=1), size="full").as_markdown())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from consilience_papers.afonin2022.kernels import conjugate, figure3
from consilience_papers.afonin2022.networks import (
    averaged_apart,
    conjugate_networks,
    figure4,
    figure5,
    figure6,
    figure8,
    figure9,
    figure10,
    figure11,
    figure12,
    figure13,
    figure14,
    figure15,
)
from consilience_papers.exhibit import Exhibit
from consilience_papers.study import Study


def relay(study: Study) -> Exhibit:
    """Measure a round through the encrypted relay; its extra is imported for who asks."""
    from consilience_papers.afonin2022.encrypted.cost import relay_cost

    return relay_cost(study)


EXHIBITS: Mapping[str, Callable[[Study], Exhibit]] = {
    "fig3": figure3,
    "fig4": figure4,
    "fig5": figure5,
    "fig6": figure6,
    "fig8": figure8,
    "fig9": figure9,
    "fig10": figure10,
    "fig11": figure11,
    "fig12": figure12,
    "fig13": figure13,
    "fig14": figure14,
    "fig15": figure15,
    "conjugate": conjugate,
    "conjugate-networks": conjugate_networks,
    "averaged-apart": averaged_apart,
    "relay": relay,
}
"""By the name that the command line takes."""
