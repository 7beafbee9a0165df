"""L-BFGS: on functions whose minima are known, of mixed precision, over cliffs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

from gpflow_gvi.errors import NonFiniteLossError
from gpflow_gvi.regulariser.lbfgs import lbfgs
from tests.tolerances import ITERATIVE, assert_close


def test_finds_the_minimum_of_rosenbrocks_function_in_mixed_precision():
    x = tf.Variable(-1.2, dtype=tf.float64)
    y = tf.Variable([1.0], dtype=tf.float32)

    def loss():
        return 100.0 * (tf.cast(y[0], tf.float64) - x**2) ** 2 + (1.0 - x) ** 2

    assert_close(scipy.optimize.rosen([-1.2, 1.0]), float(loss()))
    lbfgs(loss, [x, y])
    assert_close([float(x), float(y[0])], 1.0, ITERATIVE)
    assert y.dtype == tf.float32


def test_steps_back_from_where_the_loss_is_not_finite():
    # log x is NaN for x < 0, and the first step from x = 0.01 goes there.
    x = tf.Variable(0.01, dtype=tf.float64)
    lbfgs(lambda: 50.0 * (x - 1.0) ** 2 - 0.01 * tf.math.log(x), [x])
    minimum = 0.5 * (1.0 + np.sqrt(1.0 + 4e-4))  # 100 x (x - 1) = 0.01
    assert_close(float(x), minimum, ITERATIVE)


def test_a_step_to_where_numpy_has_no_value_is_no_warning():
    tried = []

    class Loss:
        """x - 0.01 log x and its derivative, by NumPy. The first step has the length one."""

        def value_and_gradients(self, _, values):
            (x,) = values.values()
            tried.append(float(x))
            return x - 0.01 * np.log(x), [1.0 - 0.01 / x]

    x = tf.Variable(0.5, dtype=tf.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lbfgs(Loss(), [x], tolerance=1e-15)
    assert min(tried) < 0.0
    assert_close(float(x), 0.01, ITERATIVE)


def test_refuses_to_start_where_the_loss_is_not_finite():
    x = tf.Variable(-1.0, dtype=tf.float64)
    with pytest.raises(NonFiniteLossError, match="nan"):
        lbfgs(lambda: tf.math.log(x), [x])


def test_ends_at_the_smallest_loss_seen_however_few_iterations():
    x, seen = tf.Variable(np.full(3, 5.0)), []

    def loss():
        value = tf.reduce_sum(x**4)
        seen.append(float(value))
        return value

    lbfgs(loss, [x], max_iterations=2)
    assert len(seen) > 1
    assert float(loss()) == min(seen) < seen[0]


def test_without_variables_the_loss_is_not_evaluated():
    def loss():
        raise AssertionError("the loss was evaluated")

    lbfgs(loss, [])
