"""The page on a model of a table: one file of HTML, with its pictures inside."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import AnyNDArray
from sklearn.metrics import ConfusionMatrixDisplay

from .. import __version__, plots
from .._core.files import new_file
from ..plots.display import BLUE, legend_above, plain
from ..plots.partial_dependence import MAX_PANELS, Panel, grid_of
from ..plots.view import View
from .learn import Outcome
from .model import TableModel
from .requirements import required
from .scores import COVERAGE

if TYPE_CHECKING:
    import pandas as pd

MEANINGS = {
    "R²": "R², the part of the variance that is explained",
    "mae": "MAE (mean absolute error)",
    "rmse": "RMSE (root mean squared error)",
    "nll": "NLL (mean negative log density; less is better)",
    "coverage of 90 %": "coverage of 90 % intervals",
    "width of these": "mean width of these intervals",
    "brier": "Brier score (less is better)",
    "ece": "ECE (expected calibration error)",
}
"""The names of the scores."""

MAX_ROWS = 1000
"""Not more held-out rows than these are shuffled to find the relevance of columns."""

NUM_AVERAGED = 50
"""The number of rows that partial dependence is the average over."""

NUM_VALUES = 20
"""The number of values of a column for which it is: time and memory grow with the square."""

MAX_BARS = 100
"""More rows than these are drawn without their intervals."""

MAX_LEVELS = 12
"""At most this many categories are shown, the most frequent ones."""


def write_page(outcome: Outcome, source: Path, page: Path) -> None:
    """Write the page on what was learned from the file `source`."""
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
        pictures=pictures(outcome),
        meanings=MEANINGS,
        version=__version__,
    )
    with new_file(page) as stream:
        stream.write(text.encode())


class Pictures(dict[str, str]):
    """PNG in base64, by captions."""

    def add(self, caption: str, draw: Any, size: tuple[float, float] = (5.5, 4.0)) -> Any:
        """Keep what a function draws on Axes, and return its result."""
        figure = required("matplotlib.figure").Figure(figsize=size, layout="constrained")
        drawn = draw(figure.add_subplot())
        stream = io.BytesIO()
        figure.savefig(stream, dpi=110)
        self[caption] = base64.b64encode(stream.getvalue()).decode()
        return drawn


def pictures(outcome: Outcome) -> Pictures:
    """Return the pictures; the last has a panel for each of the most relevant columns."""
    model, found = outcome.model, Pictures()
    names, table = list(model.feature_groups_), outcome.rows
    if outcome.held_out is not None and outcome.scores is not None:
        rows, y = outcome.held_out
        # What is in few rows, or in early ones alone, may have no value among those held out.
        table, X = required("pandas").concat([table, rows]), model.inputs(rows)
        add = _add_numbers if model.classes_ is None else _add_classes
        add(found, model, X, y, *outcome.scores.predicted)
        is_known = slice(None) if model.classes_ is None else np.isin(y, model.classes_)
        few = X[is_known][:MAX_ROWS], y[is_known][:MAX_ROWS]
        if len(few[1]):
            display = found.add(
                "Relevance: how much worse held-out rows are predicted when one column is "
                f"shuffled. Whiskers are standard errors over {len(few[1]):,} rows; a bar shorter "
                "than two of them may be chance.",
                lambda ax: plots.RelevanceDisplay.from_estimator(model, *few, ax=ax),
            )
            names = [names[i] for i in np.argsort(-display.relevance)]
    found.add(
        "Partial dependence: the prediction by one column, averaged over the others.",
        lambda ax: dependence(model, table, names[:MAX_PANELS]).plot(ax),
        (11.0, 5.5),
    )
    return found


def dependence(
    model: TableModel, table: pd.DataFrame, names: Sequence[str]
) -> plots.PartialDependenceDisplay:
    """Return the display of what columns do, each a panel: categories by level, dates by time."""
    typed = model.columns.typed(table)
    few = typed.sample(min(NUM_AVERAGED, len(typed)), random_state=0)
    return plots.PartialDependenceDisplay.of_panels(
        View.of(model), [_panel(model, typed, few, name) for name in names]
    )


def _panel(model: TableModel, typed: pd.DataFrame, few: pd.DataFrame, name: str) -> Panel:
    """Return the rows `few` with each of some values of a column."""
    columns, levels = model.columns, None
    if name in columns.categories:
        levels = [str(level) for level in typed[name].value_counts().index[:MAX_LEVELS]]
        grid, changed = np.arange(len(levels)), [{name: level} for level in levels]
        marks = grid
    elif name in columns.dates:
        made = columns.dates[name].names(name)
        rows = typed[made].dropna().drop_duplicates().sort_values(made[0])
        rows = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, NUM_VALUES).astype(int))]
        grid, changed = rows[made[0]].to_numpy(), rows.to_dict("records")
        marks = np.quantile(typed[made[0]].dropna(), np.linspace(0.05, 0.95, 10))
    else:
        grid, marks = grid_of(typed[name].dropna().to_numpy(), NUM_VALUES)
        changed = [{name: value} for value in grid]
        levels = ["0", "1"] if np.array_equal(grid, [0.0, 1.0]) else None
    rows = required("pandas").concat([few.assign(**values) for values in changed])
    at = model.encoder.transform(rows).reshape(len(changed), len(few), -1)
    return Panel(name, np.asarray(grid, dtype=float), at, marks, levels)


def _add_numbers(
    found: Pictures,
    model: TableModel,
    X: AnyNDArray,
    y: AnyNDArray,
    mean: AnyNDArray,
    _: Any,
    *ends: AnyNDArray,
) -> None:
    def scatter(ax: Any) -> None:
        corners = [min(y.min(), mean.min()), max(y.max(), mean.max())]
        ax.plot(corners, corners, ":", color="0.4")
        if len(y) <= MAX_BARS:
            label = f"{100 * COVERAGE:.0f} % interval"
            ax.vlines(mean, *ends, color=BLUE, alpha=0.3, label=label)
        ax.plot(mean, y, ".", color="k", ms=4, alpha=0.6, label="held-out row")
        name = plain(model.target)
        ax.set(xlabel=f"predicted {name}", ylabel=f"observed {name}")
        legend_above(ax)

    found.add(
        "Predicted against observed: held-out rows, which lie on the line where both agree.",
        scatter,
    )
    found.add(
        "Calibration: the fraction of held-out rows below each predicted quantile; in the grey "
        "band it differs from the diagonal by chance.",
        lambda ax: plots.QuantileDisplay.from_estimator(model, X, y, ax=ax),
    )


def _add_classes(
    found: Pictures, model: TableModel, X: AnyNDArray, y: AnyNDArray, p: AnyNDArray
) -> None:
    classes = np.union1d(np.asarray(model.classes_), y)

    def confusion(ax: Any) -> None:
        labels = classes[p.argmax(axis=1)]
        names = [plain(label) for label in np.unique([*y, *labels])]
        options = {"display_labels": names, "cmap": "Blues", "colorbar": False}
        ConfusionMatrixDisplay.from_predictions(y, labels, ax=ax, **options)

    found.add("Confusion matrix of the held-out rows: counts.", confusion)
    found.add(
        "Calibration: how often the held-out rows are named rightly, by how sure the model is; in "
        "the grey bars it differs from the diagonal by chance. Beside it the error rate of the "
        "rows that the model is most sure of.",
        lambda ax: plots.ClassesDisplay.from_predictions(np.searchsorted(classes, y), p, ax=ax),
        (11.0, 4.0),
    )
