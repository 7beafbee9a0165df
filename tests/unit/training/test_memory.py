"""What a fitted model and its predictions leave in memory: no graph."""

from __future__ import annotations

import gc
import weakref

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi._core.graphs import Compiled
from gpflow_gvi._core.tensorflow_private import forget_custom_gradients
from tests.models import data, make
from tests.tolerances import assert_close


class _OwnKernel(gpflow.kernels.SquaredExponential):
    """A kernel of which neither NumPy nor the graphs that are kept know anything."""


def _graphs(before=frozenset()):
    """Graphs that are alive, by weak references."""
    gc.collect()
    return {
        weakref.ref(each)
        for each in gc.get_objects()
        if isinstance(each, tf.Graph) and weakref.ref(each) not in before
    }


@pytest.mark.slow
def test_no_graph_is_left_of_a_fit_and_of_predictions():
    """But for those that TFP keeps of the model before, in the cache of a shared transform."""

    def use():
        model, rows = make(), data()
        model.compile("adam")
        model.fit(rows, batch_size=20, epochs=2, verbose=0, validation_data=rows)
        posterior = model.posterior()
        for _ in range(3):
            posterior.predict_f(rows[0])

    use()  # graphs that all models share stay
    before = _graphs()
    use()
    kept = len(_graphs(before))
    use()
    assert len(_graphs(before)) == kept <= 1


@pytest.mark.slow
def test_no_graph_is_left_of_learning_again(rng):
    """But for those of the last predictions, which TFP keeps until then."""
    X, kernels = rng.normal(size=(30, 2)), [gpflow.kernels.Matern52(), _OwnKernel()]

    def use():
        for kernel in kernels:
            learned = gvi.learn((X, np.sin(X[:, :1])), kernel=kernel)
            for _ in range(2):
                learned.predict_y(X)

    numbers = []
    for _ in range(3):
        use()
        numbers.append(len(_graphs()))
    assert numbers[1] == numbers[2]


def test_gradients_of_functions_that_are_called_are_kept(rng):
    """A function of a user, with a gradient of its own, that two graphs call."""

    @tf.custom_gradient
    def tripled(x):
        return x, lambda upstream: 3.0 * upstream

    shared = tf.function(tripled)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = shared(x) + tripled(x)
        return tape.gradient(y, x)

    for _ in range(2):
        graph = tf.function(lambda x: gradient(x)).get_concrete_function(tf.constant(1.0))
        forget_custom_gradients(graph.graph)
        assert float(graph(tf.constant(2.0))) == 6.0
    assert float(gradient(tf.constant(2.0))) == 6.0


def test_a_tape_still_sees_what_is_compiled():
    square = Compiled(lambda X: (tf.nn.softplus(X),))
    X = tf.constant(np.ones((2, 1)))
    for _ in range(3):
        square(X)
    with tf.GradientTape() as tape:
        tape.watch(X)
        (y,) = square(X)
    assert_close(tape.gradient(y, X), 1.0 / (1.0 + np.exp(-1.0)) * np.ones((2, 1)))
