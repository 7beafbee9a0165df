"""Functions of rows in blocks: as at once, with gradients, and in blocks of the given size."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from gpflow_gvi._core.row_blocks import tensors_by_blocks
from tests.tolerances import assert_close


def test_blocks_are_joined_and_gradients_pass(rng):
    X, sizes = tf.constant(rng.normal(size=(7, 2))), []

    def predict(X):
        sizes.append(len(X))
        return tf.sin(X), tf.reduce_sum(X**2, axis=1)

    with tf.GradientTape() as tape:
        tape.watch(X)
        sines, sums = tensors_by_blocks(predict, X, size=3)
        total = tf.reduce_sum(sines) + tf.reduce_sum(sums)
    assert_close(sines, np.sin(X))
    assert_close(sums, np.sum(np.square(X), axis=1))
    assert_close(tape.gradient(total, X), np.cos(X) + 2.0 * X.numpy())
    assert sizes == [3, 3, 1]


def test_a_graph_takes_all_rows_at_once():
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, 1], tf.float64)])
    def double(X):
        return tensors_by_blocks(lambda X: (2.0 * X,), X, size=2)

    assert_close(double(np.ones((5, 1)))[0], np.full((5, 1), 2.0))
