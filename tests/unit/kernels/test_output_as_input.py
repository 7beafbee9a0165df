"""Several outputs as one function of [x, j], against GPflow's coregionalisation and its GPR."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Coregion, LinearCoregionalization, Matern32, SquaredExponential

import gpflow_gvi as gvi
from gpflow_gvi._core import outputs
from gpflow_gvi.kernels import OutputAsInput, output_as_input
from gpflow_gvi.mean_functions import MeanOfOutputs
from tests.tolerances import assert_close, assert_estimates

D, J = 2, 3


@pytest.fixture
def stacked(rng):
    """A sum of two kernels of x, each times a matrix of rank one and nearly nothing else."""
    parts = []
    for kernel in (SquaredExponential(lengthscales=[0.7, 1.3]), Matern32(variance=0.5)):
        coregion = Coregion(J, 1, active_dims=[D])
        coregion.W.assign(rng.normal(size=(J, 1)))
        coregion.kappa.assign(np.full(J, 1e-12))
        kernel.active_dims = [0, 1]
        parts.append(kernel * coregion)
    return gpflow.kernels.Sum(parts)


@pytest.fixture
def expected(stacked):
    parts = [product.kernels for product in stacked.kernels]
    W = np.concatenate([coregion.W for _, coregion in parts], axis=1)
    return LinearCoregionalization([kernel for kernel, _ in parts], W)


@pytest.mark.parametrize("full_output_cov", [True, False])
def test_it_is_linear_coregionalisation(stacked, expected, full_output_cov, rng):
    kernel = OutputAsInput(stacked, J)
    X, X2 = rng.normal(size=(5, D)), rng.normal(size=(4, D))
    options = {"full_output_cov": full_output_cov}
    for full in ((X,), (X, X2)):
        assert_close(
            kernel(*full, full_cov=True, **options),
            expected(*full, full_cov=True, **options),
        )
    assert_close(
        kernel(X, full_cov=False, **options),
        expected(X, full_cov=False, **options),
    )
    assert outputs.correlated(kernel)
    assert outputs.num_outputs(kernel) == J


def test_a_process_of_it_is_conditioned_as_gpr_of_all_pairs(stacked, rng):
    """GPflow's idiom for coregionalisation: rows [x, j], and a GPR of them."""
    X, Y = rng.normal(size=(6, D)), rng.normal(size=(6, J))
    prior = gvi.GaussianProcess(
        MeanOfOutputs(gpflow.functions.Zero(), J), OutputAsInput(stacked, J)
    )
    posterior = prior.condition(X, Y, 0.1)
    pairs = np.array([[*x, j] for x in X for j in range(J)])
    gpr = gpflow.models.GPR((pairs, Y.reshape(-1, 1)), stacked, noise_variance=0.1)
    new = rng.normal(size=(4, D))
    mean, covariance = gpr.predict_f(
        np.array([[*x, j] for x in new for j in range(J)]), full_cov=True
    )
    assert_close(posterior.mean(new), np.reshape(mean, (4, J)))
    _, joint = posterior.predict(new, full_cov=True, full_output_cov=True)
    assert_close(np.reshape(joint, (4 * J, 4 * J)), covariance[0])


def test_samples_have_its_covariance_between_outputs(stacked, rng):
    process = gvi.GaussianProcess(
        MeanOfOutputs(gpflow.functions.Zero(), J), OutputAsInput(stacked, J)
    )
    X = rng.normal(size=(1, D))
    samples = process.sample(X, 100_000, seed=1)[:, 0, :]
    expected = process.predict(X, full_output_cov=True)[1][0].numpy()
    # Var of a product of two centred Gaussians is v₁v₂ + c².
    variance = np.outer(np.diag(expected), np.diag(expected)) + expected**2
    assert_estimates(np.cov(samples, rowvar=False), expected, np.sqrt(variance / 100_000))


def test_many_rows_have_the_covariance_of_each(stacked, expected, rng):
    """They are computed in blocks, of which the last is not full."""
    X = rng.normal(size=(2 * (output_as_input.ROWS_AT_ONCE // J) + 5, D))
    kernel = OutputAsInput(stacked, J)
    assert_close(kernel(X, full_cov=False), expected(X, full_cov=False))
    assert kernel(X[:0], full_cov=False).shape == (0, J, J)


def test_in_a_graph_with_any_number_of_rows(stacked, rng):
    kernel = OutputAsInput(stacked, J)
    specification = [tf.TensorSpec([None, D], tf.float64)]
    for full in ({"full_cov": True}, {"full_cov": False}, {"full_output_cov": False}):
        call = tf.function(
            lambda X, full=full: kernel(X, **full), input_signature=specification, autograph=False
        )
        for N in (1, 3, output_as_input.ROWS_AT_ONCE // J + 1):
            X = rng.normal(size=(N, D))
            assert_close(call(X), kernel(X, **full))
