"""Errors and warnings of the package.

Invalid arguments raise Python's `ValueError` and `TypeError`; the classes here are for other
errors. Every message names the argument, its value and the remedy.
"""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

MAX_SHOWN = 200
"""The maximal length of a value in a message."""


class _Repr(reprlib.Repr):
    """Numbers and text of NumPy are written as Python's, not as np.float64(1.0)."""

    def repr1(self, x: Any, level: int) -> str:
        return super().repr1(x.item() if isinstance(x, np.generic) else x, level)


def short_repr(value: Any) -> str:
    """Return a value as Python writes it, shortened and on one line."""
    short = _Repr()
    short.maxstring = short.maxother = short.maxlong = 100
    text = " ".join(short.repr(value).split())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


class NotPositiveDefiniteError(ArithmeticError):
    """A matrix that should be a covariance has no Cholesky factor, even with the maximal jitter."""


class NonFiniteLossError(ArithmeticError):
    """The training loss is NaN or infinite; the message names the term."""


class NoEvidenceBoundError(RuntimeError):
    """The objective is not an evidence lower bound, so that a quantity of it is not defined."""


class ForkedProcessError(RuntimeError):
    """TensorFlow had started before this process was forked, and cannot compute in it."""


class NumericsWarning(UserWarning):
    """The result is usable, but something was added or cut off to obtain it."""
