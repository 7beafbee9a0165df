"""Curves: of one feature, with the intervals of f and of y; and of training, epoch by epoch."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from gpflow.base import AnyNDArray

from .display import BLUE, Display, legend_above, plain
from .view import View, deviations, grid, predicted


@dataclasses.dataclass
class CurveDisplay(Display):
    """The mean of a function of one feature, and intervals of f and of y."""

    x: AnyNDArray
    """[G], ascending."""
    mean: AnyNDArray
    """E y, which is E f where f is in the units of y: [G]."""
    f_interval: tuple[AnyNDArray, AnyNDArray] | None
    """The ends for the function: [G] each."""
    y_interval: tuple[AnyNDArray, AnyNDArray] | None
    """The ends for an observation: [G] each."""
    coverage: float = 0.95
    data: tuple[AnyNDArray, AnyNDArray] | None = None
    """Observations to show beside it: [N] each."""
    inducing_points: AnyNDArray | None = None
    """Shown as ticks: [M]."""
    names: tuple[str, str] = ("x", "y")

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        coverage: float = 0.95,
        output: int = 0,
        margin: float = 0.15,
        resolution: int = 400,
        ax: Any = None,
    ) -> CurveDisplay:
        """Draw what an estimator predicts.

        :param X: rows [N, 1] whose range is shown; by default that of the inducing points.
        :param y: observations there, a column for each output; those of `output` are drawn.
        :param coverage: the coverage of the intervals, conformal for y where the estimator's are.
        :param margin: how far to go beyond the rows, as a part of their range.
        :param resolution: the number of points of the curve.
        """
        view = View.of(estimator, output)
        if len(view.names) != 1 or view.classes is not None:
            raise ValueError(
                f"estimator has {len(view.names)} features"
                + (" and predicts classes" if view.classes is not None else "")
                + "; a curve is of one, and of numbers. Use PartialDependenceDisplay."
            )
        learned, rows = view.learned, view.rows(X)
        x = grid(rows, margin, resolution)  # [G, 1]
        mean, sd = view.moments(x)
        lower, upper = (np.asarray(end)[:, output] for end in learned.predict_interval(x, coverage))
        half = deviations(coverage) * sd
        return cls(
            x[:, 0],
            mean,
            (mean - half, mean + half) if view.shows_f else None,
            (lower, upper),
            coverage,
            None if y is None else (rows[:, 0], view.numbers(y, rows)),
            None if view.is_of_network else view.rows(None)[:, 0],
            (plain(view.names[0]), plain(view.target)),
        ).plot(ax)

    @classmethod
    def from_predictions(
        cls,
        x: Any,
        mean: Any,
        sd: Any,
        *,
        of: Literal["f", "y"] = "y",
        coverage: float = 0.95,
        data: tuple[Any, Any] | None = None,
        names: tuple[str, str] = ("x", "y"),
        ax: Any = None,
    ) -> CurveDisplay:
        """Draw predictions of any model.

        :param x: where: [G] or [G, 1].
        :param mean: the mean of f or y there, and its standard deviation `sd`, each [G] or [G, 1].
        :param of: what the mean and the interval are of.
        :param coverage: the coverage of the interval.
        :param data: observations (x, y), which are drawn.
        :param names: the names of the feature and of the output.
        """
        x, mean, sd = predicted(x=x, mean=mean, sd=sd)
        order = np.argsort(x)
        x, mean, half = x[order], mean[order], deviations(coverage) * sd[order]
        if data is not None:
            data = np.ravel(data[0]), np.ravel(data[1])
        ends = {of: (mean - half, mean + half)}
        return cls(x, mean, ends.get("f"), ends.get("y"), coverage, data, names=names).plot(ax)

    def _draw(self, axes: AnyNDArray) -> None:
        (ax,) = axes
        percent = f"{100.0 * self.coverage:g} %"
        for interval, alpha, what in ((self.y_interval, 0.18, "y"), (self.f_interval, 0.4, "f")):
            if interval is not None:
                label = f"{percent} interval of {what}"
                ax.fill_between(self.x, *interval, color=BLUE, alpha=alpha, lw=0, label=label)
        ax.plot(self.x, self.mean, color=BLUE, label="mean")
        if self.data is not None:
            ax.plot(*self.data, "k.", ms=3, alpha=0.7, label="data")
        if self.inducing_points is not None:
            at_bottom = np.full(len(self.inducing_points), 0.02)
            style = {"ms": 7, "mew": 0.8, "alpha": 0.6, "transform": ax.get_xaxis_transform()}
            ax.plot(self.inducing_points, at_bottom, "k|", label="inducing points", **style)
        ax.set(xlabel=self.names[0], ylabel=self.names[1], xlim=(self.x[0], self.x[-1]))
        legend_above(ax)


@dataclasses.dataclass
class HistoryDisplay(Display):
    """The loss, its terms and the held-out density, epoch by epoch: a panel for each."""

    history: dict[str, list[float]]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> HistoryDisplay:
        """Draw how Q was trained."""
        return cls.from_history(View.of(estimator).learned.history, ax=ax)

    @classmethod
    def from_history(cls, history: Any, *, ax: Any = None) -> HistoryDisplay:
        """Draw a history, such as `model.fit(...)` of Keras or of this package returns."""
        history = dict(getattr(history, "history", history))
        if not history:
            raise ValueError(
                "the history is empty: Q was not trained. Pass epochs=20 or a network to learn; "
                "print(learned.summary()) tells what was compared."
            )
        return cls(history).plot(ax)

    @property
    def num_panels(self) -> int:
        """One for each curve."""
        return len(self.history)

    def _draw(self, axes: AnyNDArray) -> None:
        for ax, (name, values) in zip(axes, self.history.items(), strict=True):
            ax.plot(range(1, len(values) + 1), values, ".-", color=BLUE)
            ax.set(xlabel="epoch", ylabel=name)
            ax.xaxis.get_major_locator().set_params(integer=True)
