"""The report of many runs."""

from .page import report

__all__ = ["report"]
