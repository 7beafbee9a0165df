"""Every kind of kernel shows the same face: against GPflow's own call of it, output by output."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

import gpflow_gvi as gvi
from gpflow_gvi._core import outputs
from tests import catalogue
from tests.tolerances import assert_close

J = 3
KINDS = {
    **catalogue.kernels(J),
    "sum": catalogue.kernels(J)["separate"] + gpflow.kernels.Matern32(),
    "product": catalogue.kernels(J)["separate"] * catalogue.kernels(J)["shared"],
    "covariance": gvi.covariances.CholeskySVGP(
        catalogue.kernels(J)["separate"],
        np.array([[0.0], [1.0]]),
        q_sqrt=np.array([[[0.5, 0.0], [0.3, 2.0]], [[1.5, 0.0], [-1.0, 0.1]], np.eye(2)]),
    ),
}


def mixing(rng: np.random.Generator) -> gpflow.kernels.LinearCoregionalization:
    latent = [gpflow.kernels.SquaredExponential(lengthscales=scale) for scale in (0.5, 1.5)]
    return gpflow.kernels.LinearCoregionalization(latent, W=rng.normal(size=(J, 2)))


def in_turn(kernel: gpflow.kernels.Kernel, j: int) -> gpflow.kernels.Kernel:
    """The j-th output's kernel, taken out of the multi-output one by hand."""
    if isinstance(kernel, gpflow.kernels.Sum | gpflow.kernels.Product):
        return type(kernel)([in_turn(part, j) for part in kernel.kernels])
    if isinstance(kernel, gpflow.kernels.MultioutputKernel):
        return kernel.latent_kernels[j % len(kernel.latent_kernels)]
    if isinstance(kernel, gvi.covariances.CholeskySVGP):
        single, q_sqrt = in_turn(kernel.kernel, j), kernel.q_sqrt[j : j + 1]
        return gvi.covariances.CholeskySVGP(single, kernel.inducing_variable, q_sqrt=q_sqrt)
    return kernel


@pytest.mark.parametrize("kind", KINDS)
def test_variance_and_covariances_are_those_of_each_output(kind, rng):
    kernel = KINDS[kind]
    X, X2 = rng.normal(size=(5, 1)), rng.normal(size=(4, 1))
    joint = outputs.joint_covariance(kernel, X, X2, J).numpy()
    joint_variance = outputs.joint_variance(kernel, X, J).numpy()
    variance = np.broadcast_to(outputs.variance(kernel, X), (5, J))
    covariance = np.broadcast_to(outputs.covariance(kernel, X), (J, 5, 5))
    cross = np.broadcast_to(outputs.covariance(kernel, X, X2), (J, 5, 4))
    for j in range(J):
        single = in_turn(kernel, j)
        assert_close(variance[:, j], single(X, full_cov=False))
        assert_close(covariance[j], single(X))
        assert_close(cross[j], single(X, X2))
        assert_close(joint[:, j, :, j], single(X, X2))
        others = [i for i in range(J) if i != j]
        assert not np.any(joint[:, j][:, :, others])
        assert_close(joint_variance[:, j], np.outer(variance[:, j], np.eye(J)[j]))


def test_correlated_outputs_are_those_of_the_mixed_latent_processes(rng):
    kernel = mixing(rng)
    X, X2 = rng.normal(size=(5, 1)), rng.normal(size=(4, 1))
    W = kernel.W.numpy()
    latent = np.stack([part(X, X2) for part in kernel.kernels])
    joint = np.einsum("jl,lnm,il->njmi", W, latent, W)
    assert_close(outputs.joint_covariance(kernel, X, X2, J), joint)
    assert_close(outputs.covariance(kernel, X, X2), np.einsum("njmj->jnm", joint))
    # Every latent process has unit variance here.
    assert_close(outputs.joint_variance(kernel, X, J), np.broadcast_to(W @ W.T, (5, J, J)))
    assert_close(outputs.variance(kernel, X), np.broadcast_to((W**2).sum(1), (5, J)))


def test_independent_noise_is_added_to_correlated_outputs(rng):
    """A single-output kernel in a sum is an independent process of every output."""
    mixed, noise = mixing(rng), gpflow.kernels.White(0.3)
    X = rng.normal(size=(4, 1))
    joint = outputs.joint_covariance(mixed + noise, X, None, J).numpy()
    alone = mixed(X, full_cov=True, full_output_cov=True).numpy()
    expected = alone.reshape(4 * J, 4 * J) + 0.3 * np.eye(4 * J)
    assert_close(joint.reshape(4 * J, 4 * J), expected)
    assert_close(
        outputs.joint_variance(mixed + noise, X, J),
        np.einsum("njni->nji", expected.reshape(4, J, 4, J)),
    )


def test_a_single_factor_scales_every_block_of_correlated_outputs(rng):
    mixed, factor = mixing(rng), gpflow.kernels.Matern32(variance=0.7)
    X, X2 = rng.normal(size=(4, 1)), rng.normal(size=(3, 1))
    alone = mixed(X, X2, full_cov=True, full_output_cov=True).numpy()
    assert_close(
        outputs.joint_covariance(mixed * factor, X, X2, J),
        alone * factor(X, X2).numpy()[:, None, :, None],
    )
    assert_close(
        outputs.joint_variance(mixed * factor, X, J),
        0.7 * mixed(X, full_cov=False, full_output_cov=True).numpy(),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_independent_kernels_count_their_outputs(kind):
    assert outputs.num_outputs(KINDS[kind]) == (1 if kind == "single" else J)
    assert not outputs.correlated(KINDS[kind])


def test_correlated_kernels_count_their_outputs(rng):
    """The outputs of a mixture are as many as the rows of W, not as its latent processes."""
    for kernel in (mixing(rng), mixing(rng) + gpflow.kernels.White()):
        assert outputs.num_outputs(kernel) == J
        assert outputs.correlated(kernel)


def test_parts_with_different_numbers_of_outputs_do_not_add_up():
    three, two = catalogue.kernels(3)["separate"], catalogue.kernels(2)["separate"]
    with pytest.raises(ValueError, match=r"\[2, 3\] outputs"):
        outputs.num_outputs(three + two)


@pytest.mark.parametrize("name", ["shared", "separate"])
def test_the_dimensions_that_each_output_looks_at_are_kept(rng, name):
    # GPflow's own call of these kernels does not slice.
    X, X2 = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    parts = [gpflow.kernels.Matern32(lengthscales=0.7 + j, active_dims=[j]) for j in range(2)]
    if name == "shared":
        parts[1] = parts[0]
        kernel = gpflow.kernels.SharedIndependent(parts[0], 2)
    else:
        kernel = gpflow.kernels.SeparateIndependent(parts)
    expected = np.stack([part(X, X2) for part in parts])
    assert_close(outputs.covariance(kernel, X, X2), expected)
    expected = np.stack([part(X, full_cov=False) for part in parts], axis=-1)
    assert_close(outputs.variance(kernel, X), expected)
