"""Functions of rows as graphs: when they are traced, and that they are the functions still."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.utilities import positive

from gpflow_gvi._core.graphs import BLOCK, Compiled, forget_tensors
from tests.tolerances import assert_close


class Counted:
    """x ↦ (Σ_d w x_d², x_1), which counts how often Python evaluates it."""

    def __init__(self) -> None:
        self.weight = tf.Variable(2.0, dtype=tf.float64)
        self.calls = 0

    def __call__(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        self.calls += 1
        return self.weight * tf.reduce_sum(tf.square(X), axis=1, keepdims=True), X[:, :1]


def rows(N: int, D: int = 3) -> np.ndarray:
    return np.random.default_rng(N).normal(size=(N, D))


def require_right(function: Compiled, X: np.ndarray, weight: float = 2.0) -> None:
    square, first = function(tf.constant(X))
    assert_close(square, weight * np.sum(X**2, axis=1, keepdims=True))
    np.testing.assert_array_equal(first, X[:, :1])


def test_it_is_traced_once_for_any_number_of_rows():
    counted = Counted()
    compiled = Compiled(counted)
    for N, evaluations in ((4, 1), (4, 2), (1, 2), (50, 2), (2 * BLOCK + 1, 2)):
        require_right(compiled, rows(N))
        assert counted.calls == evaluations
    require_right(compiled, rows(4, 2))  # other columns are another function
    assert counted.calls == 3


def test_variables_are_read_at_each_call():
    counted = Counted()
    compiled = Compiled(counted)
    for weight in (2.0, 3.0, -1.0):
        counted.weight.assign(weight)
        require_right(compiled, rows(5), weight)


class Root:
    """√w, computed in advance, and w as it was then."""

    def __init__(self, weight: tf.Variable) -> None:
        self.weight = weight
        self.root, self.of = tf.Variable(tf.sqrt(weight)), tf.Variable(weight)

    def is_current(self) -> tf.Tensor:
        return tf.equal(self.of, self.weight)

    def renew(self) -> None:
        self.root.assign(tf.sqrt(self.weight))
        self.of.assign(self.weight)


def with_factors() -> tuple[Counted, Compiled]:
    counted = Counted()
    root = Root(counted.weight)

    def traced(X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reduce_sum(tf.square(root.root * X), axis=1, keepdims=True), X[:, :1]

    return counted, Compiled(counted, traced, lambda: root)


def test_factors_are_computed_anew_where_variables_have_changed():
    counted, compiled = with_factors()
    for weight in (2.0, 2.0, 3.0, 3.0, 0.5):
        counted.weight.assign(weight)
        require_right(compiled, rows(5), weight)
    assert counted.calls == 1


def test_gradients_pass_all_variables_also_where_factors_are_kept():
    counted, compiled = with_factors()
    X = rows(5)
    for _ in range(3):
        compiled(tf.constant(X))
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(compiled(tf.constant(X))[0])
        assert_close(tape.gradient(total, counted.weight), np.sum(X**2))


def test_errors_are_those_of_the_function():
    def fail(X: np.ndarray) -> np.ndarray:
        if np.any(X < 0.0):
            raise KeyError("negative")
        return X

    compiled = Compiled(lambda X: (tf.numpy_function(fail, [X], X.dtype),))
    for _ in range(3):
        compiled(tf.ones([2, 1]))
    with pytest.raises(KeyError, match="negative"):
        compiled(-tf.ones([2, 1]))


def test_it_is_a_part_of_another_graph():
    counted = Counted()
    compiled = Compiled(counted)
    outer = tf.function(lambda X: compiled(X)[0])
    X = rows(6)
    for _ in range(3):
        assert_close(outer(X)[:, 0], 2.0 * np.sum(X**2, axis=1))


def test_threads_share_a_graph():
    counted = Counted()
    compiled = Compiled(counted)
    compiled(tf.constant(rows(3)))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda N: require_right(compiled, rows(N)), range(1, 100)))
    assert counted.calls == 2


def test_a_copy_has_the_function_and_no_graph():
    compiled = Compiled(Counted())
    for _ in range(2):
        compiled(tf.constant(rows(3)))
    require_right(copy.deepcopy(compiled), rows(3))


@pytest.fixture
def transform(monkeypatch) -> tfp.bijectors.Bijector:
    """Return a bijector, a tensor of which another thread releases while they are forgotten."""
    transform, kept = positive(lower=1e-6), [tf.constant(1.0, tf.float64)]
    kept.append(transform.forward(kept[0]))
    cache_of_tfp = type(transform._cache)
    keys_of = cache_of_tfp.weak_keys

    def keys_before_the_release(cache: Any, *arguments: Any) -> list[Any]:
        keys = keys_of(cache, *arguments)
        kept.clear()
        return keys

    monkeypatch.setattr(cache_of_tfp, "weak_keys", keys_before_the_release)
    return transform


def test_bijectors_forget_tensors_that_are_released_meanwhile(transform):
    other = transform.forward(tf.constant(2.0, tf.float64))
    forget_tensors(gpflow.Parameter(1.0, transform=transform))
    assert len(transform._cache.weak_keys()) == 0
    assert_close(float(other), np.log1p(np.exp(2.0)) + 1e-6)
