"""Pictures of what was learned, as `Display` objects like those of scikit-learn.

`Display.from_estimator(estimator, X, y, ax=None)` computes what is drawn, draws it, and returns the
display; `Display.from_predictions` does so with predictions of any model; `.plot(ax=None)` draws
it once more. `ax` is one Axes, or as many as there are panels, or None for those of a new figure;
`ax_` has those that were drawn on. An estimator is what `learn` returns, or a fitted `GVIRegressor`
or `GVIClassifier`; `output` says which of several outputs is drawn. Matplotlib is imported when
something is drawn.
"""

from __future__ import annotations

from typing import Any

from .curve import CurveDisplay, HistoryDisplay
from .map import MapDisplay
from .partial_dependence import PartialDependenceDisplay
from .relevance import RelevanceDisplay
from .reliability import ClassesDisplay, QuantileDisplay, ReliabilityDisplay
from .view import View

__all__ = [
    "ClassesDisplay",
    "CurveDisplay",
    "HistoryDisplay",
    "MapDisplay",
    "PartialDependenceDisplay",
    "QuantileDisplay",
    "RelevanceDisplay",
    "ReliabilityDisplay",
    "draw",
]


def draw(estimator: Any, X: Any = None, y: Any = None, *, ax: Any = None, **options: Any) -> Any:
    """Draw the picture that suits the number of features, and return its Axes."""
    view = View.of(estimator)
    kind: Any = PartialDependenceDisplay
    if len(view.names) == 2:
        kind = MapDisplay
    elif len(view.names) == 1 and view.classes is None:
        kind = CurveDisplay
    rows = {"X": X} if kind is PartialDependenceDisplay else {"X": X, "y": y}
    return kind.from_estimator(estimator, **rows, ax=ax, **options).ax_
