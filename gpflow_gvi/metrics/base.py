"""What a metric is: a figure of merit that says which way it points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Metric:
    """A figure of merit, and which way it points."""

    name: str
    function: Callable[[Any], float]
    orientation: Literal["lower", "higher", "target"]
    """Whether lower or higher values are better, or those near to a nominal value."""
