"""What was learned, to look at and to keep: a summary, pictures, a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from .._core import plugins
from ..likelihoods import are_labels
from .summary import Summary

Kind = TypeVar("Kind", bound="Presented")


class Presented:
    """The summary, the pictures and the folder of a `Learned`."""

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything to a folder, without pickle, for `gpflow_gvi.load`."""
        plugins.registered("saving").save(self, folder, overwrite=overwrite)

    @classmethod
    def load(
        cls: type[Kind],
        folder: str | os.PathLike[str],
        *,
        custom_objects: Mapping[str, Any] | None = None,
    ) -> Kind:
        """Read what `save` wrote."""
        loaded = plugins.registered("saving").load(folder, custom_objects=custom_objects)
        if not isinstance(loaded, cls):
            raise TypeError(f"folder {folder} holds a {type(loaded).__name__}, not a Learned.")
        return loaded

    @property
    def feature_names_in_(self) -> tuple[str, ...]:
        """The names of the columns that were learned from, as of scikit-learn: only if any had."""
        inputs = cast(Any, self).inputs
        names: tuple[str, ...] | None = getattr(inputs, "inputs", inputs).names
        if names is None:
            raise AttributeError("feature_names_in_: what was learned from had no names.")
        return names

    def __repr__(self) -> str:
        """Return one line about it."""
        return f"<Learned {Summary.of(cast(Any, self)).line}>"

    def summary(self) -> Summary:
        """Return a summary of the candidates and the best of them; printed, it is a table."""
        return Summary.of(cast(Any, self))

    def plot(self, X: Any = None, y: Any = None, *, ax: Any = None, **options: Any) -> Any:
        """Draw f: a curve of one feature, maps of two, the partial dependence on each of several.

        :param X: rows [N, D], in original units; by default the inducing points.
        :param y: observations there, which are drawn as well.
        :param ax: Axes of Matplotlib to draw on.
        :param options: those of `plots.CurveDisplay`, `plots.MapDisplay` or
            `plots.PartialDependenceDisplay`.
        """
        return plugins.registered("plots").draw(self, X, y, ax=ax, **options)

    def plot_calibration(self, X: Any, y: Any, *, ax: Any = None, **options: Any) -> Any:
        """Draw the reliability of quantiles, or of probabilities, for rows that were not seen."""
        plots = plugins.registered("plots")
        kind: Any = plots.QuantileDisplay
        if are_labels(cast(Any, self).likelihood):
            kind = plots.ReliabilityDisplay
        return kind.from_estimator(self, X, y, ax=ax, **options).ax_

    def plot_history(self, *, ax: Any = None) -> Any:
        """Draw the training of Q epoch by epoch; `summary` has the scores of P."""
        return plugins.registered("plots").HistoryDisplay.from_estimator(self, ax=ax).ax_

    def plot_relevance(
        self, X: Any = None, y: Any = None, *, ax: Any = None, **options: Any
    ) -> Any:
        """Draw how much each feature matters: to P, or to predictions of rows that are given."""
        plots = plugins.registered("plots")
        return plots.RelevanceDisplay.from_estimator(self, X, y, ax=ax, **options).ax_
