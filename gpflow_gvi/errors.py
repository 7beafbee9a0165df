"""Errors and warnings of the package, and values as its messages show them.

Invalid arguments raise Python's `ValueError` and `TypeError`; the classes here are for other
errors.
"""

from ._core.errors import (
    MAX_SHOWN,
    ForkedProcessError,
    NoEvidenceBoundError,
    NonFiniteLossError,
    NotPositiveDefiniteError,
    NumericsWarning,
    short_repr,
)

__all__ = [
    "MAX_SHOWN",
    "ForkedProcessError",
    "NoEvidenceBoundError",
    "NonFiniteLossError",
    "NotPositiveDefiniteError",
    "NumericsWarning",
    "short_repr",
]
