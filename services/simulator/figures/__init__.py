"""The paper's figures from the simulator, and our own: one small file a figure, one line here."""

from autellix.services.simulator.figures import (
    fig05,
    fig06,
    fig07,
    fig12,
    fig13,
    fig14,
    fig15,
    fig16,
    fig17,
    fig18,
    fig19,
    gate,
    residency,
    tier,
    where,
)
from autellix.services.simulator.figures.figure import Figure

FIGURES: dict[str, Figure] = {
    module.FIGURE.name: module.FIGURE
    for module in (
        fig05,
        fig06,
        fig07,
        fig12,
        fig13,
        fig14,
        fig15,
        fig16,
        fig17,
        fig18,
        fig19,
        where,
        gate,
        residency,
        tier,
    )
}
"""By name, as on the command line."""
