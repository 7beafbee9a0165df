"""The training curves of a model."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpflow.base import AnyNDArray

from .display import BLUE, Display
from .view import View


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
