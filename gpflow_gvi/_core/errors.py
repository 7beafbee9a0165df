"""Errors and warnings of the package.

Invalid arguments raise Python's `ValueError` and `TypeError`; the classes here are for other
errors. Every message names the argument, its value and the remedy.
"""


class NotPositiveDefiniteError(ArithmeticError):
    """A matrix that should be a covariance has no Cholesky factor, even with the maximal jitter."""


class NonFiniteLossError(ArithmeticError):
    """The training loss is NaN or infinite; the message names the term."""


class NoEvidenceBoundError(RuntimeError):
    """The objective is not an evidence lower bound, so that a quantity of it is not defined."""


class NumericsWarning(UserWarning):
    """The result is usable, but something was added or cut off to obtain it."""
