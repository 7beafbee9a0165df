"""Graphs that kernels of one structure share: the values of each, and one tracing for all."""

from __future__ import annotations

import threading

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_gvi.kernels import AdditiveSpectralMixture
from gpflow_gvi.kernels.structure import MAX_STRUCTURES, by_structure, graphs_of


def _kernel(scale, **options):
    first = gpflow.kernels.SquaredExponential(scale, [scale, 1.0], **options)
    return first + AdditiveSpectralMixture(*np.full((3, 1, 2), scale))


@pytest.fixture
def traced():
    return []


@pytest.fixture
def evaluate(traced):
    def covariance(kernel, X, factor):
        traced.append(kernel)
        return factor * kernel(X)

    graphs = by_structure(covariance)
    return lambda kernel, X, factor: graphs(kernel, X, np.float64(factor))


def test_one_graph_has_the_values_of_each_kernel_at_any_number_of_rows(rng, traced, evaluate):
    for scale, N in ((0.5, 4), (2.0, 7), (1.3, 1)):
        kernel, X = _kernel(scale), rng.normal(size=(N, 2))
        np.testing.assert_allclose(evaluate(kernel, X, 2.0), 2.0 * kernel(X), rtol=1e-12)
    assert len(traced) == 1
    kernel.kernels[0].lengthscales.assign([3.0, 0.1])
    np.testing.assert_allclose(evaluate(kernel, X, 1.0), kernel(X), rtol=1e-12)
    assert len(traced) == 1


def test_a_value_beyond_the_bound_of_another_kernel_is_taken(rng, evaluate):
    wide = gpflow.Parameter(1e-9, transform=gpflow.utilities.positive(lower=1e-12))
    kernel = gpflow.kernels.Matern32()
    narrow = gpflow.Parameter(1.0, transform=gpflow.utilities.positive(lower=0.1))
    kernel.variance = narrow
    X = rng.normal(size=(3, 2))
    evaluate(kernel, X, 1.0)
    kernel = gpflow.kernels.Matern32()
    kernel.variance = wide
    np.testing.assert_allclose(evaluate(kernel, X, 1.0), kernel(X), rtol=1e-12)


def test_other_structures_have_graphs_of_their_own(rng, traced, evaluate):
    X = rng.normal(size=(5, 2))
    kernels = [_kernel(1.0), _kernel(1.0, active_dims=[1, 0]), gpflow.kernels.Matern52(1.0, 0.5)]
    kernels += [gpflow.kernels.Matern52(1.0, [0.5, 0.7]), gpflow.kernels.Matern12(1.0, 0.5)]
    for kernel in kernels * 2:
        np.testing.assert_allclose(evaluate(kernel, X, 1.0), kernel(X), rtol=1e-12)
    assert len(traced) == len(kernels)


def test_no_more_than_some_graphs_are_kept(traced, evaluate):
    kernels = [gpflow.kernels.RationalQuadratic(lengthscales=np.ones(D)) for D in range(1, 11)]
    assert len(kernels) > MAX_STRUCTURES
    for kernel in (*kernels, kernels[-1], kernels[0]):
        evaluate(kernel, np.zeros((2, len(kernel.lengthscales.numpy()))), 1.0)
    assert len(traced) == len(kernels) + 1


def test_kernels_of_unknown_structure_take_the_function_as_it_is(rng):
    class Own(gpflow.kernels.SquaredExponential):
        """It may have more than its parameters."""

    X = rng.normal(size=(3, 1))
    own = Own() + gpflow.kernels.Constant()
    np.testing.assert_allclose(by_structure(lambda kernel, X: kernel(X))(own, X), own(X))
    assert graphs_of(own) is None


def test_within_a_graph_gradients_reach_the_parameters(rng, evaluate):
    kernel, X = gpflow.kernels.SquaredExponential(2.0), tf.constant(rng.normal(size=(3, 1)))

    @tf.function(autograph=False)
    def gradient():
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(evaluate(kernel, X, 1.0))
        return tape.gradient(value, kernel.trainable_variables)

    assert all(np.isfinite(part) and abs(part) > 1e-3 for part in gradient())


def test_threads_do_not_take_each_others_values(rng, evaluate):
    X, wrong = rng.normal(size=(20, 2)), []
    evaluate(_kernel(1.0), X, 1.0)

    def work(scale):
        kernel = _kernel(scale)
        expected = kernel(X).numpy()
        for _ in range(10):
            if not np.allclose(evaluate(kernel, X, 1.0), expected, rtol=1e-12):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(scale,)) for scale in (0.5, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
