"""The evidence by NumPy: against densities of SciPy and the derivatives of TensorFlow."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from gpflow.functions import Zero

from gpflow_gvi import GaussianProcess
from gpflow_gvi.kernels.numpy_kernels import numpy_kernel
from gpflow_gvi.kernels.numpy_parameters import NumpyParameter
from gpflow_gvi.regulariser.evidence import InducingEvidence
from gpflow_gvi.regulariser.exact_evidence import (
    exact_evidence,
    exact_predictions,
)
from tests.tolerances import assert_close

N, J = 9, 3


@pytest.fixture
def kernel():
    return gpflow.kernels.Matern52(0.9, [0.8, 1.3]) + gpflow.kernels.Linear(0.2)


@pytest.fixture(params=["equal", "some equal", "different"])
def rows(request, rng):
    noise = rng.gamma(2.0, size=(N, J))
    if request.param != "different":
        noise[:, [0, 2]] = noise[:, :1]
    if request.param == "equal":
        noise[:, 1] = noise[:, 0]
    return rng.normal(size=(N, 2)), noise, rng.normal(size=(N, J))


def _check_derivatives(found, kernel, X, noise, residual):
    noise, residual = tf.constant(noise), tf.constant(residual)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([noise, residual])
        prior = GaussianProcess(Zero(J), kernel)
        value = InducingEvidence().log_density(prior, noise, (X, residual), ())
    assert_close(found.value, float(value))
    assert_close(found.by_noise, tape.gradient(value, noise))
    assert_close(found.by_residual, tape.gradient(value, residual))
    for parameter in kernel.parameters:
        part = sum(part for of, part in found.by_kernel if of is parameter)
        expected = tape.gradient(value, parameter.unconstrained_variable)
        assert_close(part * NumpyParameter(parameter).values()[1], expected)


def test_exact_evidence_is_the_density_of_normal_laws(kernel, rows):
    X, noise, residual = rows
    found = exact_evidence(numpy_kernel(kernel, X), noise, residual)
    laws = [scipy.stats.multivariate_normal(cov=kernel(X) + np.diag(noise[:, j])) for j in range(J)]
    expected = sum(law.logpdf(residual[:, j]) for j, law in enumerate(laws))
    assert_close(found.value, expected)
    _check_derivatives(found, kernel, X, noise, residual)


def test_a_matrix_without_a_factor_is_refused(kernel, rng):
    X = rng.normal(size=(N, 2))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite in row 0"):
        exact_evidence(numpy_kernel(kernel, X), -10.0 * np.ones((N, 1)), np.ones((N, 1)))


def test_predictions_are_those_of_gpflow(kernel, rows, rng):
    X, noise, residual = rows
    new = rng.normal(size=(4, 2))
    exact = exact_predictions(kernel, X, noise, residual, new)
    for j in range(J):
        own = gpflow.likelihoods.Gaussian(1.0)
        own.variance = _OfRows(X, noise[:, j : j + 1])
        model = gpflow.models.GPR((X, residual[:, j : j + 1]), kernel, likelihood=own)
        for part, expected in zip(exact, model.predict_f(new), strict=True):
            assert_close(part[:, j : j + 1], expected, scale=1.0)


def test_without_a_kernel_that_numpy_knows_there_are_no_predictions(rng):
    X, noise = rng.normal(size=(5, 1)), np.ones((5, 1))
    assert exact_predictions(gpflow.kernels.Cosine(), X, noise, X, X) is None


class _OfRows(gpflow.functions.Function):
    """The noise of known rows."""

    def __init__(self, X, noise):
        super().__init__()
        self.X, self.noise = X, noise

    def __call__(self, X):
        same = np.all(np.asarray(X)[..., None, :] == self.X, axis=-1)
        return tf.constant(self.noise[np.argmax(same, axis=-1)])
