"""Messages to the user about numerics, such as jitter: logged at once, or collected in a block."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

logger = logging.getLogger("gpflow_gvi")


class Notice(NamedTuple):
    """A message that is due if `amount` turns out positive; `{}` stands for the amount."""

    message: str
    amount: tf.Tensor
    urgent: bool = False
    """Whether to log it from within a graph of a CPU if there is no other way."""

    def log(self) -> None:
        """Log the message if the amount, known by now, is positive."""
        amount = float(self.amount)
        if amount > 0.0:
            logger.warning(self.message.format(f"{amount:.3g}"))


_current: contextvars.ContextVar[list[Notice] | None] = contextvars.ContextVar(
    "gpflow_gvi_notices", default=None
)


@contextlib.contextmanager
def collected() -> Iterator[list[Notice]]:
    """Collect the notices of a block in a list instead of logging them.

    The owner of a graph (the training step) logs them after each run of it: an operation that logs
    from within the graph could be neither compiled by XLA nor exported.
    """
    notices: list[Notice] = []
    token = _current.set(notices)
    try:
        yield notices
    finally:
        _current.reset(token)


def notice(message: str, amount: tf.Tensor, *, urgent: bool = False) -> None:
    """Give the user a message, with `amount` in place of `{}`, if the amount is positive.

    It is logged at once unless the block collects its notices. In a graph that nobody collects
    notices of it is dropped, as the amount has no value there.
    """
    notices = _current.get()
    note = Notice(message, amount, urgent)
    if notices is not None:
        notices.append(note)
    elif tf.executing_eagerly():
        note.log()
