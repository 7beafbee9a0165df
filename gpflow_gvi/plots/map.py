"""A function of two features: maps of its mean and standard deviation, or of classes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import entr

from .display import Display, colours, legend_above, plain
from .view import View, grid


@dataclasses.dataclass
class MapDisplay(Display):
    """Maps of the mean and the standard deviation of f, or of the classes and their entropy.

    Where f is not in the units of y, as for counts, they are those of y.
    """

    view: View
    grid: tuple[AnyNDArray, AnyNDArray]
    """The coordinates of columns and rows: [G] each."""
    mean: AnyNDArray
    """E y, [G, G]; or the probabilities of the classes, [G, G, J]."""
    sd: AnyNDArray
    """The standard deviation of f or y, or the entropy of the probabilities in nats: [G, G]."""
    data: tuple[AnyNDArray, AnyNDArray | None] | None = None
    """Rows to show, [N, 2], and their observations or class indices, [N]."""

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        output: int = 0,
        margin: float = 0.1,
        resolution: int = 60,
        ax: Any = None,
    ) -> MapDisplay:
        """Draw what an estimator predicts.

        :param X: rows [N, 2] whose range is shown; by default that of the inducing points.
        :param y: observations there, a column for each output; those of `output` are drawn.
        :param margin: how far to go beyond the rows, as a part of their range.
        :param resolution: the number of points in each direction.
        """
        view = View.of(estimator, output)
        if len(view.names) != 2:
            raise ValueError(f"estimator has {len(view.names)} features; a map is of two.")
        rows = view.rows(X)
        x0, x1 = grid(rows, margin, resolution).T  # [G] each
        at = np.stack(np.meshgrid(x0, x1), axis=-1).reshape(-1, 2)
        if view.classes is None:
            mean, sd = view.moments(at)
        else:
            mean = view.learned.predict_proba(at)
            sd = entr(mean).sum(axis=-1)
        observed = None if y is None else view.numbers(y, rows)
        shape = resolution, resolution
        maps = mean.reshape(*shape, *mean.shape[1:]), sd.reshape(shape)
        data = None if X is None else (rows, observed)
        return cls(view, (x0, x1), *maps, data).plot(ax)

    @property
    def num_panels(self) -> int:
        """Two: the prediction, and its uncertainty."""
        return 2

    def _draw(self, axes: AnyNDArray) -> None:
        left, right = axes
        x0, x1, target = map(plain, (*self.view.names, self.view.target))
        if self.view.classes is None:
            self._surface(left, self.mean, f"mean of {target}", observed=True)
            of = "f" if self.view.shows_f else target
            self._surface(right, self.sd, f"standard deviation of {of}", cmap="cividis")
        else:
            self._class_map(left)
            self._surface(right, self.sd, "entropy of the class, nats", cmap="cividis")
        if self.data is not None:
            right.plot(*self.data[0].T, "k.", ms=2, alpha=0.5)
        for ax in axes:
            ax.set(xlabel=x0, ylabel=x1)
            ax.set(xlim=self.grid[0][[0, -1]], ylim=self.grid[1][[0, -1]])

    def _surface(
        self, ax: Any, values: AnyNDArray, title: str, cmap: str = "viridis", observed: bool = False
    ) -> None:
        drawn = ax.contourf(*self.grid, values, levels=15, cmap=cmap)
        ax.figure.colorbar(drawn, ax=ax)
        if observed and self.data is not None:
            X, y = self.data
            style = {"s": 14, "linewidths": 0.5, "edgecolors": "k"}
            of = {"c": "k"} if y is None else {"c": y, "cmap": cmap, "norm": drawn.norm}
            ax.scatter(*X.T, **style, **of)
        ax.set_title(title, fontsize="medium")

    def _class_map(self, ax: Any) -> None:
        """Draw the colour of the most probable class, the paler the less probable it is."""
        from matplotlib.colors import to_rgb

        classes = np.asarray(self.view.classes)
        palette = np.array([to_rgb(colour) for colour in colours(len(classes))])
        best, K = self.mean.argmax(axis=-1), len(palette)
        certainty = (self.mean.max(axis=-1, keepdims=True) - 1.0 / K) / (1.0 - 1.0 / K)
        image = 1.0 - 0.75 * certainty * (1.0 - palette[best])
        ends = (*self.grid[0][[0, -1]], *self.grid[1][[0, -1]])
        ax.imshow(image, origin="lower", extent=ends, aspect="auto", interpolation="bilinear")
        X, y = (np.empty((0, 2)), None) if self.data is None else self.data
        for k, label in enumerate(classes):
            of_class = X[:0] if y is None else X[y == k]
            style = {"s": 14, "linewidths": 0.4, "edgecolors": "k"}
            ax.scatter(*of_class.T, color=palette[k], label=plain(label), **style)
        legend_above(ax, title=None, ncols=min(K, 5))
