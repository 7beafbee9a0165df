"""Minimisers that look at a loss instead of lowering it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf


def comparing_with_a_tape(compared: list[int]) -> Callable[[Any, Any], None]:
    """Return a minimiser that compares a loss's own derivatives with those of a tape.

    :param compared: the number of variables is appended to it at each call.
    """

    def minimise(loss: Any, variables: Any) -> None:
        with tf.GradientTape() as tape:
            value = loss()
        by_tape = tape.gradient(value, variables)
        found, gradients = loss.value_and_gradients(variables)
        assert float(found) == pytest.approx(float(value), rel=1e-9)
        for one, other in zip(gradients, by_tape, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
        compared.append(len(variables))

    return minimise
