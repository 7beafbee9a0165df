"""A metric of predictions, with its orientation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Metric:
    """A metric of predictions, with its orientation."""

    name: str
    function: Callable[[Any], float]
    orientation: Literal["lower", "higher", "target"]
    """Whether lower or higher values are better, or those close to a nominal value."""
