"""What a caller of the procedure may do between its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpflow.functions import MeanFunction

    from ..regulariser.fit import Regulariser
    from .learned import Learned


class Hooks:
    """What a caller may do between the steps of the procedure: nothing, unless overridden."""

    def regulariser(self, fit: Callable[[], Regulariser]) -> Regulariser:
        """Return the fitted regulariser, by calling `fit` or from where it was kept."""
        return fit()

    def mean(self, build: Callable[[], MeanFunction]) -> MeanFunction:
        """Return the mean that Q starts with, by calling `build` or from where it was kept."""
        return build()

    def callbacks(self, epochs: int) -> list[Any]:
        """Return callbacks of Keras for a training of this number of epochs."""
        return []

    def before_refit(self, learned: Learned) -> None:
        """Receive the model that has not seen the rows for validation."""
