"""The additive spectral mixture: as a sum of GPflow's kernels, and as a spectral density."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.integrate

from gpflow_gvi.kernels.spectral_mixture import AdditiveSpectralMixture


@pytest.fixture
def parameters(rng):
    return rng.uniform(0.2, 2.0, size=(3, 2, 3))  # three of [Q, D]


def test_is_a_sum_of_products_of_gpflows_kernels(rng, parameters):
    variances, lengthscales, frequencies = parameters
    X, X2 = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    kernel = AdditiveSpectralMixture(variances, lengthscales, frequencies)
    expected = gpflow.kernels.Sum(
        [
            gpflow.kernels.SquaredExponential(
                variance=variances[q, d], lengthscales=lengthscales[q, d], active_dims=[d]
            )
            * gpflow.kernels.Cosine(lengthscales=1.0 / frequencies[q, d], active_dims=[d])
            for q in range(2)
            for d in range(3)
        ]
    )
    np.testing.assert_allclose(kernel(X, X2), expected(X, X2), atol=1e-12)
    np.testing.assert_allclose(kernel(X), expected(X), atol=1e-12)
    np.testing.assert_allclose(kernel(X, full_cov=False), np.diag(kernel(X)), rtol=1e-12)


def test_is_the_transform_of_a_mixture_of_gaussians():
    v, scale, f, r = 1.3, 0.7, 0.9, 0.4
    kernel = AdditiveSpectralMixture([[v]], [[scale]], [[f]])
    width = 1.0 / (2.0 * np.pi * scale)

    def density(s):  # symmetric, of both signs of the frequency
        peaks = [np.exp(-0.5 * ((s - sign * f) / width) ** 2) for sign in (-1.0, 1.0)]
        return 0.5 * v * sum(peaks) / (np.sqrt(2.0 * np.pi) * width)

    expected, _ = scipy.integrate.quad(lambda s: density(s) * np.cos(2 * np.pi * s * r), -5.0, 5.0)
    X, X2 = np.array([[0.0]]), np.array([[r]])
    np.testing.assert_allclose(kernel(X, X2), [[expected]], rtol=1e-8)


def test_takes_batches_of_inputs_as_gpflow_does(rng, parameters):
    X, X2 = rng.normal(size=(2, 5, 3)), rng.normal(size=(4, 3))
    kernel = AdditiveSpectralMixture(*parameters)
    batched = kernel(X)
    assert batched.shape == (2, 5, 5)
    np.testing.assert_allclose(batched[1], kernel(X[1]), rtol=1e-12, atol=1e-14)
    assert kernel(X, X2).shape == (2, 5, 4)
    np.testing.assert_allclose(kernel(X, X2)[1], kernel(X[1], X2), rtol=1e-12, atol=1e-14)


def test_refuses_parameters_of_different_shapes():
    with pytest.raises(ValueError, match=r"\(1, 2\).*\[Q, D\]"):
        AdditiveSpectralMixture([[1.0, 1.0]], [[1.0, 1.0]], [[1.0]])
