"""The page on a model of a table: one file of HTML, with its pictures inside."""

from __future__ import annotations

import base64
import io
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.metrics import ConfusionMatrixDisplay

from .. import __version__, plots
from .._core.files import new_file
from .._core.row_blocks import by_blocks
from ..plots.display import BLUE, legend_above, plain
from .learn import Outcome
from .model import TableModel
from .requirements import required

MEANINGS = {
    "nll": "NLL (mean negative log density; less is better)",
    "rmse": "RMSE (root mean squared error)",
    "coverage of 95 %": "coverage of 95 % intervals",
    "width of these": "mean width of these intervals",
    "ece": "ECE (expected calibration error)",
}
"""What the scores are called."""

MAX_ROWS = 1000
"""Not more held-out rows than these are shuffled to find the relevance of columns."""


def write_page(outcome: Outcome, source: Path, page: Path) -> None:
    """Write the page.

    :param outcome: what was learned.
    :param source: the file that it was learned from.
    :param page: where to.
    """
    jinja2 = required("jinja2")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = resources.files(__package__).joinpath("page.html").read_text("utf-8")
    model = outcome.model
    text = environment.from_string(template).render(
        title=f"{model.target}, from {source.name}",
        outcome=outcome,
        columns=model.columns,
        classes=None if model.classes_ is None else [str(label) for label in model.classes_],
        summary=model.learned_.summary(),
        pictures=_pictures(outcome),
        meanings=MEANINGS,
        version=__version__,
    )
    with new_file(page) as stream:
        stream.write(text.encode())


def _pictures(outcome: Outcome) -> dict[str, str]:
    """Return pictures, PNG in base64, by their captions."""
    model, drawn, rows = outcome.model, {}, None
    if outcome.held_out is not None:
        table, y = outcome.held_out
        rows = model.inputs(table)
        drawn = (_of_numbers if model.classes_ is None else _of_classes)(model, rows, y)
        few = rows[:MAX_ROWS], y[:MAX_ROWS]
        drawn["Relevance: the loss in prediction when one column is shuffled."] = _png(
            lambda ax: plots.RelevanceDisplay.from_estimator(model, *few, ax=ax)
        )
    # The last one has panels, and the width of the page.
    drawn["Partial dependence: the prediction by one column, averaged over the others."] = _png(
        lambda ax: plots.PartialDependenceDisplay.from_estimator(model, rows, ax=ax), (11.0, 5.5)
    )
    return drawn


def _of_numbers(model: TableModel, X: AnyNDArray, y: AnyNDArray) -> dict[str, str]:
    def residuals(ax: Any) -> None:
        mean, variance = (p[:, 0] for p in by_blocks(model.learned_.predict_y, X))
        ax.axhspan(-1.96, 1.96, color="0.88", lw=0, label="95 %")
        ax.axhline(0.0, color="0.4", ls=":")
        ax.plot(mean, (y - mean) / np.sqrt(variance), ".", color=BLUE, ms=4)
        ax.set(xlabel=f"predicted {plain(model.target)}", ylabel="residual / predicted sd")
        legend_above(ax)

    return {
        "Calibration: the fraction of held-out rows below each predicted quantile.": _png(
            lambda ax: plots.QuantileDisplay.from_estimator(model, X, y, ax=ax)
        ),
        "Residuals of the held-out rows, in predicted standard deviations.": _png(residuals),
    }


def _of_classes(model: TableModel, X: AnyNDArray, y: AnyNDArray) -> dict[str, str]:
    def confusion(ax: Any) -> None:
        labels = np.asarray(model.classes_)[model.learned_.predict_proba(X).argmax(axis=1)]
        names = [plain(label) for label in np.unique([*y, *labels])]
        options = {"display_labels": names, "cmap": "Blues", "colorbar": False}
        ConfusionMatrixDisplay.from_predictions(y, labels, ax=ax, **options)

    return {
        "Reliability: accuracy of the held-out rows by confidence.": _png(
            lambda ax: plots.ReliabilityDisplay.from_estimator(model, X, y, ax=ax)
        ),
        "What held-out rows are taken for.": _png(confusion),
    }


def _png(draw: Any, size: tuple[float, float] = (5.5, 4.0)) -> str:
    figure = required("matplotlib.figure").Figure(figsize=size, layout="constrained")
    draw(figure.add_subplot())
    stream = io.BytesIO()
    figure.savefig(stream, dpi=110)
    return base64.b64encode(stream.getvalue()).decode()
