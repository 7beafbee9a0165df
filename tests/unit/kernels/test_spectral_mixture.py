"""The additive spectral mixture: as a sum of GPflow's kernels, and as a spectral density."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.integrate
import tensorflow as tf

from gpflow_gvi.kernels.spectral_mixture import AdditiveSpectralMixture
from tests.tolerances import ITERATIVE, assert_close


@pytest.fixture
def parameters(rng):
    return rng.uniform(0.2, 2.0, size=(3, 2, 3))  # three of [Q, D]


def test_another_number_of_columns_is_refused():
    kernel = AdditiveSpectralMixture([[1.0]], [[0.5]], [[0.3]])
    for compute in (kernel.K_diag, kernel.K):
        with pytest.raises(ValueError, match="X has 2 columns, but the kernel has"):
            compute(np.zeros((3, 2)))


def _sum_of_gpflows(variances, lengthscales, frequencies):
    return gpflow.kernels.Sum(
        [
            gpflow.kernels.SquaredExponential(
                variance=variances[q, d], lengthscales=lengthscales[q, d], active_dims=[d]
            )
            * gpflow.kernels.Cosine(lengthscales=1.0 / frequencies[q, d], active_dims=[d])
            for q in range(2)
            for d in range(3)
        ]
    )


def test_is_a_sum_of_products_of_gpflows_kernels(rng, parameters):
    X, X2 = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    kernel, expected = AdditiveSpectralMixture(*parameters), _sum_of_gpflows(*parameters)
    assert_close(kernel(X, X2), expected(X, X2))
    assert_close(kernel(X), expected(X))
    assert_close(kernel(X, full_cov=False), np.diag(kernel(X)))


def test_derivatives_are_those_of_gpflows_kernels(rng, parameters):
    X, X2 = (tf.Variable(rng.normal(size=(N, 3))) for N in (6, 4))
    weight, found = rng.normal(size=(6, 4)), []
    for kernel in (AdditiveSpectralMixture(*parameters), _sum_of_gpflows(*parameters)):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                value = tf.reduce_sum(weight * kernel(X, X2))
            first = tape.gradient(value, [X, X2])
            cubes = tf.add_n([tf.reduce_sum(part**3) for part in first])
        found.append((*first, *outer.gradient(cubes, [X, X2])))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs)


def test_derivatives_in_the_parameters_are_differences(rng, parameters):
    X, X2, weight = rng.normal(size=(6, 3)), rng.normal(size=(4, 3)), rng.normal(size=(6, 4))
    kernel = AdditiveSpectralMixture(*parameters)
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(weight * kernel(X, X2))
    gradients = tape.gradient(value, kernel.trainable_variables)

    def at(flat):
        for variable, part in zip(kernel.trainable_variables, np.split(flat, 3), strict=True):
            variable.assign(part.reshape(2, 3))
        return float(tf.reduce_sum(weight * kernel(X, X2)))

    start = np.concatenate([np.ravel(variable) for variable in kernel.trainable_variables])
    h = 1e-6
    expected = [at(start + step) - at(start - step) for step in h * np.eye(len(start))]
    assert_close(np.ravel(gradients), np.array(expected) / (2 * h), ITERATIVE)


def test_is_the_transform_of_a_mixture_of_gaussians():
    v, scale, f, r = 1.3, 0.7, 0.9, 0.4
    kernel = AdditiveSpectralMixture([[v]], [[scale]], [[f]])
    width = 1.0 / (2.0 * np.pi * scale)

    def density(s):  # symmetric, of both signs of the frequency
        peaks = [np.exp(-0.5 * ((s - sign * f) / width) ** 2) for sign in (-1.0, 1.0)]
        return 0.5 * v * sum(peaks) / (np.sqrt(2.0 * np.pi) * width)

    expected, _ = scipy.integrate.quad(lambda s: density(s) * np.cos(2 * np.pi * s * r), -5.0, 5.0)
    X, X2 = np.array([[0.0]]), np.array([[r]])
    assert_close(kernel(X, X2), [[expected]])


def test_takes_batches_of_inputs_as_gpflow_does(rng, parameters):
    X, X2 = rng.normal(size=(2, 5, 3)), rng.normal(size=(4, 3))
    kernel = AdditiveSpectralMixture(*parameters)
    batched = kernel(X)
    assert batched.shape == (2, 5, 5)
    assert_close(batched[1], kernel(X[1]))
    assert kernel(X, X2).shape == (2, 5, 4)
    assert_close(kernel(X, X2)[1], kernel(X[1], X2))


def test_refuses_parameters_of_different_shapes():
    with pytest.raises(ValueError, match=r"\(1, 2\).*\[Q, D\]"):
        AdditiveSpectralMixture([[1.0, 1.0]], [[1.0, 1.0]], [[1.0]])
