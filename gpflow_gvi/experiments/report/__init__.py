"""The report of many runs."""

from .writing import report

__all__ = ["report"]
