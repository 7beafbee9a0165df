"""The figures of a run: data, inducing points, prediction with intervals, and the losses."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from ..learning import Learned
from ..likelihoods import are_labels
from ..plots import CurveDisplay, HistoryDisplay
from ..plots.display import GREEN, ORANGE, VERMILLION, legend_above
from .data_sets import RowsByRole

logger = logging.getLogger("gpflow_gvi")

_COLOURS = {"validation": GREEN, "calibration": ORANGE, "test": VERMILLION}
"""The colours of the rows that the model was not fitted to; the others are black."""


def draw(learned: Learned, rows_by_role: RowsByRole, folder: Path) -> None:
    """Write `losses.png`, and where inputs and outputs are numbers `prediction.png`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.info("No figures: matplotlib is not installed.")
        return
    if learned.history:
        figure = Figure(figsize=(4.0 * len(learned.history), 3.0), layout="constrained")
        HistoryDisplay.from_estimator(learned, ax=figure.subplots(1, len(learned.history)))
        figure.savefig(folder / "losses.png", dpi=100)
    X, Y = rows_by_role["train"]
    of_classes = are_labels(learned.likelihood)
    if X.shape[1] == Y.shape[1] == 1 and not of_classes:
        figure = Figure(figsize=(7.0, 3.6), layout="constrained")
        axes = figure.subplots()
        every = np.concatenate([rows.X for rows in rows_by_role.values()])
        CurveDisplay.from_estimator(learned, every, margin=0.05, ax=axes)
        for name, rows in rows_by_role.items():
            colour = _COLOURS.get(name, "black")
            axes.plot(rows.X[:, 0], rows.Y[:, 0], ".", ms=3, color=colour, label=name)
        legend_above(axes, ncols=4, markerscale=2.0)
        figure.savefig(folder / "prediction.png", dpi=140)
