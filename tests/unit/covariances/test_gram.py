"""K_ZZ, K_ZX and what is solved from them, against numpy, quadrature and GPflow's own dispatch."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow.inducing_variables import (
    InducingPoints,
    Multiscale,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)

import gpflow_gvi as gvi
from gpflow_gvi._core import outputs
from gpflow_gvi.covariances import gram
from tests import catalogue, references
from tests.designs import each_value
from tests.features import CircleArcCosine, Heaviside
from tests.tolerances import ITERATIVE, assert_close

J, M = 3, 4


def test_images_as_inducing_points_are_rows_of_pixels(rng):
    images = rng.normal(size=(M, 2, 3, 1))
    points = gram.as_inducing_variable(images)
    np.testing.assert_array_equal(points.Z, images.reshape(M, 6))
    assert not points.trainable_variables


def test_heaviside_covariances_against_quadrature(rng):
    """Both functionals as weighted sums of f: two values for the slope, a grid for the integral."""
    kernel = CircleArcCosine(variance=0.7)
    centres, w = np.array([-1.0, 0.1, 0.4, 2.9]), 0.25
    grid = np.linspace(-np.pi, np.pi, 4000, endpoint=False)
    nodes = np.concatenate([grid, centres + w, centres - w])
    slope = np.eye(4) / (2 * w)
    weights = np.hstack([np.full((4, len(grid)), 2 * np.pi / len(grid)), slope, -slope])
    X = rng.uniform(-np.pi, np.pi, size=(6, 1))

    steps = Heaviside(centres, half_width=w)
    Kuf = gpflow.covariances.Kuf(steps, kernel, X)
    assert_close(Kuf, weights @ kernel(nodes[:, None], X))
    Kuu = gpflow.covariances.Kuu(steps, kernel, jitter=0.5)
    expected = weights @ kernel(nodes[:, None]).numpy() @ weights.T + 0.5 * np.eye(4)
    assert_close(Kuu, expected)


def test_circle_kernel_is_the_arc_cosine_kernel_of_unit_vectors(rng):
    """Cho and Saul (2009): order 0 is 1 - angle/π between the vectors, hence the factor π."""
    angles = rng.uniform(-np.pi, np.pi, size=(7, 1))
    on_circle = np.hstack([np.cos(angles), np.sin(angles)])
    plain = gpflow.kernels.ArcCosine(order=0, bias_variance=1e-12)
    assert_close(CircleArcCosine()(angles), np.pi * plain(on_circle), ITERATIVE)
    assert_close(CircleArcCosine(2.0)(angles, full_cov=False), 2 * np.pi)


def inducing_variables(rng: np.random.Generator) -> dict[str, tuple[object, list[np.ndarray]]]:
    """Each kind of inducing variable, with the points of each output."""
    Z = [rng.normal(size=(M, 2)) for _ in range(J)]
    return {
        "plain": (InducingPoints(Z[0]), [Z[0]] * J),
        "shared": (SharedIndependentInducingVariables(InducingPoints(Z[0])), [Z[0]] * J),
        "separate": (SeparateIndependentInducingVariables([InducingPoints(z) for z in Z]), Z),
    }


@pytest.mark.parametrize("inducing", ["plain", "shared", "separate"])
@pytest.mark.parametrize("kind", catalogue.kernels(J))
def test_projections_of_each_output(kind, inducing, rng):
    kernel = catalogue.kernels(J)[kind]
    inducing_variable, Z = inducing_variables(rng)[inducing]
    X = rng.normal(size=(5, 2))
    L = gram.cholesky(kernel, inducing_variable)
    cross = gram.cross_covariance(kernel, inducing_variable, X)
    A = gram.whitened(kernel, inducing_variable, X)
    for j in range(J):
        parts = getattr(kernel, "latent_kernels", (kernel,))
        single = parts[j % len(parts)]
        j0 = j if len(L) == J else 0  # one system where all outputs have the same
        Kzz = references.padded(single(Z[j]))
        Kzx = single(Z[j], X).numpy()
        assert_close(L[j0], np.linalg.cholesky(Kzz))
        assert_close(cross[j0], Kzx)
        nystrom = Kzx.T @ np.linalg.solve(Kzz, Kzx)
        assert_close(A[j0].numpy().T @ A[j0].numpy(), nystrom)
    assert len(L) == (J if "separate" in (kind, inducing) else 1)


def composed() -> dict[str, gpflow.kernels.Kernel]:
    """Kernels of J independent outputs that are not GPflow's own multi-output classes."""
    separate, matern = catalogue.kernels(J)["separate"], gpflow.kernels.Matern32()
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), separate)
    seen = np.array([[0.3, -0.2], [1.0, 0.5]])
    return {
        "sum": separate + matern,
        "product": separate * gpflow.kernels.SharedIndependent(matern, J),
        "conditioned": prior.condition(seen, np.zeros((2, J)), 0.1).kernel,
        "tempered": gvi.covariances.Tempered(separate, np.array([0.5, 1.0, 2.0])),
    }


@pytest.mark.parametrize(
    ("kind", "inducing"), each_value(composed(), ["plain", "separate", "shared"])
)
def test_projections_of_kernels_composed_of_independent_outputs(kind, inducing, rng):
    """The regulariser may be conditioned, and Q's own kernel composed: each is a kernel."""
    kernel, X = composed()[kind], rng.normal(size=(5, 2))
    inducing_variable, Z = inducing_variables(rng)[inducing]
    L = gram.cholesky(kernel, inducing_variable)
    cross = gram.cross_covariance(kernel, inducing_variable, X)
    assert L.shape == (J, M, M)
    assert cross.shape == (J, M, 5)
    for j in range(J):
        Kzz = references.padded(outputs.covariance(kernel, Z[j])[j])
        assert_close(L[j], np.linalg.cholesky(Kzz))
        assert_close(cross[j], outputs.covariance(kernel, Z[j], X)[j])


def test_composed_kernels_know_inducing_points_alone():
    """A Kuf of another inducing variable is written for one kernel, not for what is made of it."""
    wide = Multiscale(np.zeros((M, 2)), scales=np.ones((M, 2)))
    with pytest.raises(TypeError, match="Multiscale"):
        gram.cholesky(composed()["tempered"], wide)


def test_optimal_precision_inverts_the_titsias_optimum(rng):
    """Lᵀ Σ L with Σ = (K_ZZ + σ⁻² K_ZX K_XZ)⁻¹, for one noise and for one per output."""
    kernel = catalogue.kernels(J)["separate"]
    Z, X, noises = rng.normal(size=(M, 2)), rng.normal(size=(9, 2)), np.array([0.1, 0.4, 2.0])
    for noise in (0.3, noises):
        A = gram.features(kernel, InducingPoints(Z), X)
        found = gram.optimal_precision(A, noise)
        for j, single in enumerate(kernel.kernels):
            Kzz = references.padded(single(Z))
            Kzx = single(Z, X).numpy()
            Sigma = np.linalg.inv(Kzz + Kzx @ Kzx.T / np.broadcast_to(noise, J)[j])
            L = np.linalg.cholesky(Kzz)
            assert_close(np.linalg.inv(L.T @ Sigma @ L), found[j])


def test_arrays_become_fixed_points_and_inducing_variables_stay(rng):
    Z = rng.normal(size=(M, 2))
    fixed = gram.as_inducing_variable(Z)
    np.testing.assert_array_equal(fixed.Z, Z)
    assert fixed.trainable_variables == ()
    moving = InducingPoints(Z)
    assert gram.as_inducing_variable(moving) is moving
    assert len(moving.trainable_variables) == 1


@pytest.mark.parametrize(("kind", "share"), [(InducingPoints, 1.0), (gram.DistinctPoints, 1e-4)])
@pytest.mark.parametrize("variance", [1e-8, 1e-4, 10.0])
def test_jitter_is_no_more_than_a_millionth_of_the_variance(variance, kind, share):
    """Else it was the variance of the log of rates of many counts."""
    points, X = kind(np.zeros((1, 1))), np.zeros((1, 1))
    kernel = gpflow.kernels.SquaredExponential(variance)
    remaining = gram.remaining_variance(kernel, points, X)
    jitter = share * gpflow.config.default_jitter() * min(variance, 1.0)
    expected = variance * jitter / (variance + jitter)
    rounding = 1e-9 * variance  # a difference of variances has theirs
    assert_close(remaining, [[expected]], ITERATIVE, scale=expected + rounding)
    assert_close(gram.features(kernel, points, X), gram.whitened(kernel, points, X))
