"""Minimisers that look at a loss instead of lowering it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.tolerances import ROUNDING, assert_close


def comparing_with_a_tape(
    compared: list[int], tolerance: Any = ROUNDING
) -> Callable[[Any, Any], None]:
    """Return a minimiser that compares a loss's own derivatives with those of a tape.

    :param compared: the number of variables is appended to it at each call.
    """

    def minimise(loss: Any, variables: Any) -> None:
        with tf.GradientTape() as tape:
            value = loss()
        by_tape = tape.gradient(value, variables)
        found, gradients = loss.value_and_gradients(variables)
        assert_close(float(found), float(value))
        for one, other in zip(gradients, by_tape, strict=True):
            assert_close(one, other, tolerance)
        compared.append(len(variables))

    return minimise
