"""What is taken of TensorFlow without a public API: a test fails where a version has it no more."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from gpflow_gvi._core.tensorflow_private import (
    call,
    eigh_of_xla,
    forget_custom_gradients,
    is_compiled_by_xla,
    is_differentiated,
    untrained,
)

Function = Callable[[tf.Tensor], tf.Tensor]


def test_a_tape_and_an_accumulator_are_seen():
    """Else gradients of predictions are None, and hyper-parameters in constants do not train."""
    assert not is_differentiated()
    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        assert is_differentiated()
        with tape.stop_recording():
            assert not is_differentiated()
        with ThreadPoolExecutor(1) as other:  # a tape is of its own thread
            assert not other.submit(is_differentiated).result()
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)):
        assert is_differentiated()
    assert not is_differentiated()


def test_variables_are_not_trained_within_a_block():
    """Else the noise that was judged would be trained further with a network."""
    module, constant = tf.Module(), tf.Variable(0.0, trainable=False)
    module.parts = [tf.Variable(1.0), tf.Variable(2.0), constant]
    with untrained(module.parts[1:]):
        assert [each is module.parts[0] for each in module.trainable_variables] == [True]
    assert [each.trainable for each in module.parts] == [True, True, False]
    with pytest.raises(KeyboardInterrupt), untrained(module.parts):
        raise KeyboardInterrupt
    assert [each.trainable for each in module.parts] == [True, True, False]


def test_tracing_for_xla_is_seen():
    """Else an eigendecomposition by NumPy would be in a graph that XLA cannot compile."""
    seen: dict[str, bool] = {}

    def note(name: str, x: tf.Tensor) -> tf.Tensor:
        seen[name] = is_compiled_by_xla()
        return x

    inner = tf.function(lambda x: note("inner", x))

    def outer(x: tf.Tensor) -> tf.Tensor:
        branch = tf.cond(x > 0.0, lambda: note("branch", x), lambda: -x)
        return note("outer", x) + branch + inner(x)

    x = tf.constant(1.0)
    assert not is_compiled_by_xla()
    for by_xla in (True, False):
        tf.function(outer, jit_compile=by_xla)(x)
        assert seen == dict.fromkeys(("outer", "branch", "inner"), by_xla)
        seen.clear()
        inner = tf.function(lambda x: note("inner", x))  # traced without XLA it is another graph


def test_small_eigenvalues_are_as_accurate_as_large_ones_in_xla():
    """Else gradients of roots are wrong: the public function leaves a tenth of these off."""
    scales = 10.0 ** -np.arange(0.0, 12.0)
    roots = np.random.default_rng(0).normal(size=(12, 12)) * scales
    M = tf.constant(roots.T @ roots)
    expected = np.square(np.linalg.svd(roots, compute_uv=False))[::-1]
    values, vectors = tf.function(eigh_of_xla, jit_compile=True)(M)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_allclose(tf.transpose(vectors) @ vectors, np.eye(12), atol=1e-12)


def test_a_graph_is_called_without_comparing_types():
    """Else predictions by graphs fail; the public call is the slower replacement."""
    weight = tf.Variable(3.0)

    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([])])
    def graph(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return weight * x, {"sum": tf.reduce_sum(x) + y}

    concrete = graph.get_concrete_function()
    for value in (3.0, 5.0):
        weight.assign(value)
        product, sums = call(concrete, tf.constant([1.0, 2.0]), tf.constant(4.0))
        assert product.numpy().tolist() == [value, 2.0 * value]
        assert float(sums["sum"]) == 7.0


def _in_a_branch(function: Function, x: tf.Tensor) -> tf.Tensor:
    return tf.cond(x > 0.0, lambda: function(x), lambda: x)


def _in_a_loop(function: Function, x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, function(y)), (0, x))[1]


@pytest.mark.parametrize("how", [lambda function, x: function(x), _in_a_branch, _in_a_loop])
def test_a_graph_with_custom_gradients_is_released(how):
    """Else every trace stays in memory; if it is released without, nothing need be forgotten."""
    graphs = []

    @tf.custom_gradient
    def tripled(x: tf.Tensor) -> tuple[tf.Tensor, Function]:
        graphs.append(weakref.ref(x.graph))
        return x, lambda upstream: 3.0 * upstream

    def trace() -> Any:
        x = tf.TensorSpec([])
        return tf.function(lambda x: how(tripled, x), autograph=False).get_concrete_function(x)

    def are_released() -> bool:
        gc.collect()
        return all(graph() is None for graph in graphs)

    trace()
    assert not are_released()
    graphs.clear()
    forget_custom_gradients(trace().graph)
    assert are_released()
