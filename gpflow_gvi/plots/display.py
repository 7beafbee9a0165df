"""What all displays share: Axes in, Axes out, and colours that the colour-blind can tell apart."""

from __future__ import annotations

import abc
import math
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from typing_extensions import Self

BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, YELLOW = COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
)
"""The palette of Okabe and Ito (2008), "Color universal design"."""


class Display(abc.ABC):
    """Something that is drawn on Axes of Matplotlib."""

    ax_: Any
    """The Axes, or an array of them, of the last drawing."""

    def plot(self, ax: Any = None) -> Self:
        """Draw on Axes, or on those of a new figure, and return the display.

        :param ax: Axes; those of several panels take the place of a single one.
        """
        axes = panels(ax, self.num_panels)
        self._draw(axes)
        self.ax_ = axes if len(axes) > 1 else axes[0]
        return self

    @property
    def num_panels(self) -> int:
        """The number of Axes that are drawn on."""
        return 1

    @abc.abstractmethod
    def _draw(self, axes: AnyNDArray) -> None:
        """Draw on as many Axes as `num_panels` says."""


def panels(ax: Any, count: int) -> AnyNDArray:
    """Return an array of `count` Axes.

    :param ax: None for those of a new figure, as many Axes, or one subplot to put them in.
    :param count: how many are needed.
    """
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    if ax is None:
        plt = pyplot()
        size = (4.2 * columns if count > 1 else 5.5, 3.4 * rows)
        figure = plt.figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(rows, columns)
    else:
        given = np.ravel(np.asarray(ax, dtype=object))
        if len(given) == count:
            return given
        if len(given) != 1:
            raise ValueError(f"ax has {len(given)} Axes; give 1 or {count}, or None.")
        place = given[0].get_subplotspec()
        if place is None:  # as of figure.add_axes or an inset
            raise ValueError(
                f"ax is no subplot, so it cannot hold {count} panels; give a subplot, or {count} "
                "Axes."
            )
        given[0].axis("off")
        figure = given[0].figure
        grid = place.subgridspec(rows, columns)
    return np.array([figure.add_subplot(grid[divmod(i, columns)]) for i in range(count)])


def pyplot() -> Any:
    """Return `matplotlib.pyplot`, or raise saying how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib, which is not installed: pip install 'gpflow-gvi[plots]'"
        ) from error
    return plt


def legend_above(axes: Any, **options: Any) -> None:
    """Put the legend above the Axes, where it hides no data."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        frameon=False,
        fontsize="small",
        borderaxespad=0.2,
        **{"ncols": 3, "columnspacing": 1.0, **options},
    )


def plain(text: object) -> str:
    """Return text of a user, such as the name of a column, so that none of it is mathematics."""
    return str(text).replace("$", r"\$")


def colours(count: int) -> list[Any]:
    """Return a colour for each of several classes."""
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    return list(pyplot().get_cmap("viridis")(np.linspace(0.0, 1.0, count)))
