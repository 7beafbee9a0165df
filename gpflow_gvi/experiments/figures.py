"""The figures of a run: data, inducing points, prediction with intervals, and the losses."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from .._core import labels
from ..learning.learned import Learned
from ..learning.scaling import Scaling
from .data_sets import RowsByRole

logger = logging.getLogger("gpflow_gvi")


def draw(learned: Learned, rows_by_role: RowsByRole, folder: Path) -> None:
    """Write `losses.png`, and where inputs and outputs are numbers `prediction.png`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.info("No figures: matplotlib is not installed.")
        return
    if learned.history:
        figure = Figure(figsize=(4.0 * len(learned.history), 3.0), layout="constrained")
        panels = figure.subplots(1, len(learned.history), squeeze=False)[0]
        for panel, (name, values) in zip(panels, learned.history.items(), strict=True):
            panel.plot(range(1, len(values) + 1), values)
            panel.set(xlabel="epoch", title=name)
        figure.savefig(folder / "losses.png", dpi=100)
    X, Y = rows_by_role["train"]
    of_classes = labels.num_classes(learned.likelihood) is not None
    if X.shape[1] == Y.shape[1] == 1 and not of_classes:
        figure = Figure(figsize=(9.0, 4.5), layout="constrained")
        _prediction(figure.subplots(), learned, rows_by_role)
        figure.savefig(folder / "prediction.png", dpi=100)


def _prediction(axes: Any, learned: Learned, rows_by_role: RowsByRole) -> None:
    every = np.concatenate([rows.X for rows in rows_by_role.values()])
    margin = 0.05 * np.ptp(every)
    x = np.linspace(every.min() - margin, every.max() + margin, 400)[:, None]
    mean = np.asarray(learned.predict_y(x)[0])[:, 0]
    of_f = 1.96 * np.sqrt(np.asarray(learned.predict_f(x)[1])[:, 0])
    lower, upper = (np.asarray(end)[:, 0] for end in learned.predict_interval(x))
    axes.fill_between(x[:, 0], lower, upper, alpha=0.2, lw=0, label="95 % of y")
    axes.fill_between(x[:, 0], mean - of_f, mean + of_f, alpha=0.4, color="C0", lw=0, label="of f")
    axes.plot(x[:, 0], mean, "C0")
    for name, rows in rows_by_role.items():
        style = "C3." if name == "test" else "k." if name == "train" else "C2."
        axes.plot(rows.X[:, 0], rows.Y[:, 0], style, ms=2, label=name)
    points = learned.regulariser.inducing_points
    if isinstance(learned.inputs, Scaling):
        Z = learned.inputs.original(points)[:, 0]
        axes.plot(Z, np.full(len(Z), axes.get_ylim()[0]), "k|", label="inducing points")
    axes.set_xlim(x[0, 0], x[-1, 0])
    axes.legend(fontsize="small", ncols=2)
