"""Training or inference, and which parts are frozen.

In training dropout drops, and batch normalisation uses the batch's statistics and updates its own.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf


class _Mode(NamedTuple):
    training: bool = False
    frozen: frozenset[int] = frozenset()
    """The identities of the parts that behave as in inference all the same."""


_INFERENCE = _Mode()
_current = contextvars.ContextVar("gpflow_gvi_mode", default=_INFERENCE)


@contextlib.contextmanager
def _set(mode: _Mode) -> Iterator[None]:
    token = _current.set(mode)
    try:
        yield
    finally:
        _current.reset(token)


def training(active: bool = True) -> contextlib.AbstractContextManager[None]:
    """Let networks behave as in training within a block, or as in inference if not `active`."""
    return _set(_Mode(training=active))


def inference() -> contextlib.AbstractContextManager[None]:
    """Let networks behave as in inference within a block."""
    return training(False)


@contextlib.contextmanager
def frozen(module: tf.Module) -> Iterator[None]:
    """Let a module and its parts behave as in inference within a block, in training as well.

    The networks of the regulariser P keep their moving statistics while Q trains.
    """
    mode = _current.get()
    parts = (module, *module.submodules) if mode.training else ()
    with _set(mode._replace(frozen=mode.frozen.union(map(id, parts)))):
        yield


def is_training(part: tf.Module | None = None) -> bool:
    """Return True if the mode is training: for `part`, if that is given."""
    mode = _current.get()
    return mode.training and id(part) not in mode.frozen
