"""Partial dependence: what one feature does to the prediction, averaged over the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from .display import BLUE, Display, colours, legend_above, plain
from .relevance import changes
from .view import View, deviations

MAX_PANELS = 6
"""The number of features that are shown, the most relevant ones, if none are named."""

MAX_LEVELS = 10
"""Values that are not more than these are shown as points."""


class Panel(NamedTuple):
    """The rows that show what one feature does."""

    name: str
    grid: AnyNDArray
    """The values of the feature: [G]."""
    at: AnyNDArray
    """The rows with each value, [G, n, D]."""
    marks: AnyNDArray
    """Values in the rows, shown as ticks."""
    levels: list[str] | None = None
    """What the values 0, 1, ... are, if they are categories."""


@dataclasses.dataclass
class PartialDependenceDisplay(Display):
    """The mean ḡ(x_s) = 1/n Σ_i f(x_s, x_i) over rows x_i for each feature x_s, and its interval.

    f is a Gaussian process and ḡ a linear map of it, so that it is Gaussian at each x_s, with the
    variance 1/n² Σ_ij cov(f(x_s, x_i), f(x_s, x_j)) (Moosbauer, Herbinger, Casalicchio, Lindauer
    and Bischl 2021, "Explaining hyperparameter optimization via partial dependence plots", eq. 3).
    For classes it is the average probability of each, without intervals; where f is not in the
    units of y, as for counts, the average of E y.
    """

    view: View
    panels: list[Panel]
    """One for each feature."""
    means: list[AnyNDArray]
    """The averages at its values, [G, 1], or [G, J] for J classes."""
    half_widths: list[AnyNDArray] | None
    """Half the widths of their intervals: [G]."""
    coverage: float = 0.95

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        *,
        features: Sequence[int | str] | None = None,
        coverage: float = 0.95,
        output: int = 0,
        max_rows: int = 50,
        resolution: int = 30,
        ax: Any = None,
    ) -> PartialDependenceDisplay:
        """Draw what an estimator predicts.

        :param X: the rows x_i, [N, D], such as those of the data; by default the inducing points,
            which are spread more evenly than the data are.
        :param features: names or numbers; by default the most relevant six.
        :param coverage: the coverage of the intervals.
        :param max_rows: the number n of rows; of more it is a random choice.
        :param resolution: the number of values of a feature, from its 5 % to its 95 % quantile; one
            that has fewer is shown at these.
        """
        view = View.of(estimator, output)
        every, rows = view.rows(X), view.rows(X, max_rows)
        chosen: Sequence[int] = range(len(view.names))
        if features is not None:
            chosen = [_number(feature, view.names) for feature in features]
        elif len(view.names) > MAX_PANELS:
            order = range(len(view.names)) if view.is_of_network else np.argsort(-changes(view))
            chosen = sorted(order[:MAX_PANELS])
        panels = []
        for d in chosen:
            grid, marks = grid_of(every[:, d], resolution)
            at = np.repeat(rows[None], len(grid), axis=0)
            at[:, :, d] = grid[:, None]
            panels.append(Panel(view.names[d], grid, at, marks))
        return cls.of_panels(view, panels, coverage).plot(ax)

    @classmethod
    def of_panels(
        cls, view: View, panels: list[Panel], coverage: float = 0.95
    ) -> PartialDependenceDisplay:
        """Return the display of what a model predicts at the rows of panels."""
        means, sds = zip(*(_averages(view, panel.at) for panel in panels), strict=True)
        half_widths = [deviations(coverage) * sd for sd in sds]
        has_interval = view.classes is None and view.shows_f
        return cls(view, panels, list(means), half_widths if has_interval else None, coverage)

    @property
    def num_panels(self) -> int:
        """One for each feature."""
        return len(self.panels)

    def _draw(self, axes: AnyNDArray) -> None:
        target, names, palette = plain(self.view.target), ["mean"], [BLUE]
        if (classes := self.view.classes) is not None:
            target, names = "probability", [f"p({plain(label)})" for label in classes]
            palette = colours(len(classes))
        for s, ax in enumerate(axes):
            self._draw_panel(ax, s, list(zip(palette, names, strict=True)))
            ax.set(xlabel=plain(self.panels[s].name), ylabel=target if s % 3 == 0 else "")
        ends_of = [ax.get_ylim() for ax in axes]
        for ax in axes:  # effects are compared
            ax.set_ylim(min(low for low, _ in ends_of), max(high for _, high in ends_of))
        legend_above(axes[0], ncols=2)

    def _draw_panel(self, ax: Any, s: int, styles: list[tuple[Any, str]]) -> None:
        _, x, _, marks, levels = self.panels[s]
        mean, style = self.means[s], "o" if levels else "o-" if len(x) <= MAX_LEVELS else "-"
        if self.half_widths is not None:
            label, half = f"{100.0 * self.coverage:g} % interval of f", self.half_widths[s]
            if levels:
                bars = {"fmt": "none", "ecolor": BLUE, "alpha": 0.4, "elinewidth": 5}
                ax.errorbar(x, mean[:, 0], half, label=label, **bars)
            else:
                ends = mean[:, 0] - half, mean[:, 0] + half
                ax.fill_between(x, *ends, label=label, color=BLUE, alpha=0.25, lw=0)
        for j, (colour, name) in enumerate(styles):
            ax.plot(x, mean[:, j], style, ms=4, color=colour, label=name)
        if levels:
            shown = [plain(level if len(level) <= 14 else f"{level[:13]}…") for level in levels]
            slant = {"rotation": 30, "ha": "right"} if sum(map(len, shown)) > 24 else {}
            ax.set_xticks(x, shown, **slant)
            ax.set_xlim(-0.5, len(x) - 0.5)
        else:
            at_bottom = {"transform": ax.get_xaxis_transform(), "clip_on": False}
            ax.plot(marks, np.zeros(len(marks)), "k|", ms=6, **at_bottom)
            ax.ticklabel_format(axis="x", useOffset=False)  # 2021.5, not 0.5 after 2021


def grid_of(values: AnyNDArray, resolution: int = 30) -> tuple[AnyNDArray, AnyNDArray]:
    """Return the values of a feature that are shown, and some that rows have, as marks.

    They are those of the rows if these are few: between them, a process may know little.
    """
    marks = np.quantile(values, np.linspace(0.05, 0.95, 10))
    levels = np.unique(values)
    if len(levels) <= resolution:
        return levels, marks
    return np.linspace(marks[0], marks[-1], resolution), marks


def _averages(view: View, at: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Return the average of f over rows and its standard deviation: [G, 1] and [G].

    Or that of the probabilities of classes, [G, J], or of E y, and zero.

    :param at: the rows for each value of the feature, [G, n, D].
    """
    (G, n, _), rows = at.shape, at.reshape(-1, at.shape[-1])
    if view.classes is not None or not view.shows_f:
        of_y = view.classes is None
        found = view.moments(rows)[0] if of_y else view.learned.predict_proba(rows)
        return found.reshape(G, n, -1).mean(axis=1), np.zeros(G)
    # The covariances of different values of x_s are not needed, but one call is much faster than G.
    mean, covariance = view.learned.predict_f(rows, full_cov=True)
    means = np.asarray(mean)[:, view.output].reshape(G, n).mean(axis=1)
    between = np.asarray(covariance)[view.output].reshape(G, n, G, n).mean(axis=(1, 3))
    return means[:, None], np.sqrt(np.maximum(np.diag(between), 0.0))


def _number(feature: int | str, names: list[str]) -> int:
    if feature in names:
        return names.index(str(feature))
    if feature not in range(len(names)):
        raise ValueError(f"features has {feature!r}; the features are {names}, from number 0 on.")
    return int(feature)
