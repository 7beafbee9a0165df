"""What can go wrong, by name.

Wrong arguments raise Python's own `ValueError` and `TypeError`; the classes here are for what has
no such name. Every message gives the argument, its value and the remedy.
"""


class NotPositiveDefiniteError(ArithmeticError):
    """A matrix that should be a covariance has no Cholesky factor, whatever jitter is added."""


class NonFiniteLossError(ArithmeticError):
    """The training loss is NaN or infinite; the message names the term that is."""


class NoEvidenceBoundError(RuntimeError):
    """A quantity of the evidence lower bound was asked of an objective that is none."""


class NumericsWarning(UserWarning):
    """The result is usable, but something was added or cut off to obtain it."""
