"""The mean of a sparse variational GP: against dense numpy and against GPflow's SVGP and SGPR."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)

import gpflow_gvi as gvi
from tests import catalogue

M = 4
PRIOR_MEAN = gpflow.functions.Linear(A=np.array([[0.7], [-0.2]]), b=5.0)
JITTER = gpflow.config.default_jitter()


def latent(kernel: gpflow.kernels.Kernel, j: int) -> gpflow.kernels.Kernel:
    parts = getattr(kernel, "latent_kernels", (kernel,))
    return parts[j % len(parts)]


@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
@pytest.mark.parametrize(
    ("J", "kind"), [(1, "single"), (3, "single"), (3, "shared"), (3, "separate")]
)
def test_formula_of_each_output(J, kind, whiten, rng):
    """m_P(x) + K_xZ K_ZZ⁻¹ (μ - m_P(Z)): at u = μ the mean passes through μ, not μ + m_P(Z)."""
    kernel = catalogue.kernels(J)[kind]
    Z, X = rng.normal(size=(M, 2)), rng.normal(size=(6, 2))
    mu = rng.normal(size=(M, J))
    residual = mu - PRIOR_MEAN(Z).numpy()
    grams = [latent(kernel, j)(Z).numpy() + JITTER * np.eye(M) for j in range(J)]
    q_mu = residual
    if whiten:
        factors = [np.linalg.cholesky(gram) for gram in grams]
        q_mu = np.stack([np.linalg.solve(factors[j], residual[:, j]) for j in range(J)], axis=1)
    mean = gvi.mean_functions.Inducing(
        kernel, InducingPoints(Z), mean_function=PRIOR_MEAN, q_mu=q_mu, whiten=whiten
    )
    for j in range(J):
        weights = np.linalg.solve(grams[j], residual[:, j])
        expected = PRIOR_MEAN(X).numpy()[:, 0] + latent(kernel, j)(X, Z).numpy() @ weights
        np.testing.assert_allclose(mean(X)[:, j], expected, rtol=1e-7)
    # The jitter on K_ZZ alone keeps the mean from μ itself.
    np.testing.assert_allclose(mean(Z), mu, atol=1e-4)


@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
def test_agrees_with_gpflow_svgp_on_separate_inducing_points(whiten, rng):
    kernel = catalogue.kernels(3)["separate"]
    inducing_variable = SeparateIndependentInducingVariables(
        [InducingPoints(rng.normal(size=(M, 2))) for _ in range(3)]
    )
    q_mu, X = rng.normal(size=(M, 3)), rng.normal(size=(6, 2))
    svgp = gpflow.models.SVGP(
        kernel,
        gpflow.likelihoods.Gaussian(),
        inducing_variable,
        mean_function=PRIOR_MEAN,
        num_latent_gps=3,
        q_mu=q_mu,
        whiten=whiten,
    )
    mean = gvi.mean_functions.Inducing(
        kernel, inducing_variable, mean_function=PRIOR_MEAN, q_mu=q_mu, whiten=whiten
    )
    np.testing.assert_allclose(mean(X), svgp.predict_f(X)[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
def test_from_data_is_the_mean_of_gpflow_sgpr(whiten, rng):
    kernel, Z, X = catalogue.kernels(1)["single"], rng.normal(size=(M, 2)), rng.normal(size=(20, 2))
    Y = 5.0 + np.sin(X) @ np.array([[1.0, -1.0], [0.5, 0.3]])
    sgpr = gpflow.models.SGPR((X, Y), kernel, Z, mean_function=PRIOR_MEAN, noise_variance=0.3)
    mean = gvi.mean_functions.Inducing.from_data(
        kernel, Z, (X, Y), 0.3, mean_function=PRIOR_MEAN, whiten=whiten
    )
    X_new = rng.normal(size=(7, 2))
    np.testing.assert_allclose(mean(X_new), sgpr.predict_f(X_new)[0], rtol=1e-8)


def test_from_data_with_one_noise_per_output_is_one_sgpr_per_output(rng):
    kernel, noises = catalogue.kernels(3)["separate"], np.array([0.1, 0.5, 2.0])
    Z, X, Y = rng.normal(size=(M, 2)), rng.normal(size=(15, 2)), rng.normal(size=(15, 3))
    mean = gvi.mean_functions.Inducing.from_data(
        kernel, SharedIndependentInducingVariables(InducingPoints(Z)), (X, Y), noises
    )
    X_new = rng.normal(size=(7, 2))
    for j, single in enumerate(kernel.kernels):
        sgpr = gpflow.models.SGPR((X, Y[:, j : j + 1]), single, Z, noise_variance=noises[j])
        np.testing.assert_allclose(
            mean(X_new)[:, j], sgpr.predict_f(X_new)[0][:, 0], rtol=1e-7, atol=1e-9
        )


def test_starts_at_the_prior_mean_and_trains_q_mu_and_moving_points_only(rng):
    kernel, Z, X = catalogue.kernels(1)["single"], rng.normal(size=(M, 2)), rng.normal(size=(5, 2))
    fixed = gvi.mean_functions.Inducing(kernel, Z, mean_function=PRIOR_MEAN)
    np.testing.assert_array_equal(fixed(X), PRIOR_MEAN(X))
    assert [v.shape for v in fixed.trainable_variables] == [(M, 1)]
    moving = gvi.mean_functions.Inducing(kernel, InducingPoints(Z), mean_function=PRIOR_MEAN)
    assert sorted(tuple(v.shape) for v in moving.trainable_variables) == [(M, 1), (M, 2)]


def test_bad_arguments_are_named(rng):
    Z, single = rng.normal(size=(M, 2)), catalogue.kernels(1)["single"]
    with pytest.raises(ValueError, match=rf"q_mu has shape \(3, 1\).*\({M}, 1\)"):
        gvi.mean_functions.Inducing(single, Z, q_mu=np.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"different numbers of outputs: \[2, 3\]"):
        gvi.mean_functions.Inducing(catalogue.kernels(3)["separate"], Z, q_mu=np.zeros((M, 2)))
    mixed = gpflow.kernels.LinearCoregionalization([single], W=np.ones((2, 1)))
    with pytest.raises(TypeError, match=r"(?s)LinearCoregionalization.*SeparateIndependent"):
        gvi.mean_functions.Inducing(mixed, Z)
    with pytest.raises(ValueError, match="noise_variance is 0"):
        gvi.mean_functions.Inducing.from_data(single, Z, (Z, Z[:, :1]), 0.0)
