"""KL divergences of inducing variables and of regularised draws, against dense Gaussians."""

from __future__ import annotations

import copy
import itertools

import gpflow
import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_gvi as gvi
from gpflow_gvi.divergences import InducingKL, RegularisedKL
from gpflow_gvi.mean_functions import Inducing
from tests import catalogue, references
from tests.designs import each_pair
from tests.tolerances import ITERATIVE, assert_close

Array = np.ndarray
M, N = 4, 7

SHARING = [(J, kind) for J in (1, 3) for kind in catalogue.kernels(J)]
OUTPUTS = pytest.mark.parametrize(("J", "kind"), SHARING, ids=str)


def inducing_covariances(kernel: gpflow.kernels.Kernel, Z: Array, J: int) -> Array:
    """K_ZZ of each output [J, M, M] in NumPy, with GPflow's jitter."""
    if isinstance(kernel, gpflow.kernels.SharedIndependent):
        kernel = kernel.kernel
    parts = kernel.kernels if hasattr(kernel, "kernels") else [kernel] * J
    distances = np.sum((Z[:, None] - Z) ** 2, axis=-1)
    return np.stack(
        [
            references.padded(
                k.variance.numpy() * np.exp(-0.5 * distances / k.lengthscales.numpy() ** 2)
            )
            for k in parts
        ]
    )


class Problem:
    """Q and P on the same kernel, inducing points and prior mean, all of them random."""

    def __init__(
        self, rng: np.random.Generator, name: str, J: int, kind: str, mean_whitened: bool = True
    ) -> None:
        self.kernel = catalogue.kernels(J)[kind]
        self.Z, self.X = rng.normal(size=(M, 2)), rng.normal(size=(N, 2))
        self.points = catalogue.inducing_points(self.Z)
        self.prior_mean = gpflow.functions.Linear(rng.normal(size=(2, J)), rng.normal(size=J))
        self.q_mu = rng.normal(size=(M, J))
        self.q_sqrt = np.tril(rng.normal(size=(J, M, M))) + 2.0 * np.eye(M)
        self.v = rng.uniform(0.1, 2.0, size=(M, J))
        start = {"v": self.v} if name == "DiagonalSVGP" else {"q_sqrt": self.q_sqrt}
        self.q = gvi.GaussianProcess(
            Inducing(
                self.kernel,
                self.points,
                mean_function=self.prior_mean,
                q_mu=self.q_mu,
                whiten=mean_whitened,
            ),
            catalogue.COVARIANCES[name](self.kernel, self.points, **start),
        )
        self.p = gvi.GaussianProcess(self.prior_mean, self.kernel)

    def dense(self, name: str, mean_whitened: bool) -> float:
        """KL between q(u) and p(u), output by output, from their means and covariances."""
        prior_means = self.prior_mean(self.Z).numpy()  # [M, J]
        total = 0.0
        for j, K in enumerate(inducing_covariances(self.kernel, self.Z, self.q_mu.shape[1])):
            L = np.linalg.cholesky(K)
            root = {
                "CholeskySVGP": L @ self.q_sqrt[j],
                "CholeskySVGP(unwhitened)": self.q_sqrt[j],
                "DiagonalSVGP": K @ np.diag(np.sqrt(self.v[:, j])),
            }[name]
            shift = L @ self.q_mu[:, j] if mean_whitened else self.q_mu[:, j]
            prior = prior_means[:, j]
            total += references.gaussian_kl(prior + shift, root @ root.T, prior, K)
        return total


# --- InducingKL ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "outputs", "mean_whitened"), each_pair(catalogue.FINITE_KL, SHARING, [True, False])
)
def test_inducing_kl_is_that_of_dense_gaussians(rng, name, outputs, mean_whitened):
    J, kind = outputs
    problem = Problem(rng, name, J, kind, mean_whitened)
    expected = problem.dense(name, mean_whitened)
    value = InducingKL()(problem.q, problem.p, problem.X)
    assert_close(N * value, expected)
    # A minibatch stands for all the data: it divides by their number, not by its own.
    at_batch = [process.at(problem.X[:2]) for process in (problem.q, problem.p)]
    assert_close(100 * InducingKL().compare(*at_batch, num_data=100), expected)


@pytest.mark.parametrize("name", ["CholeskySVGP", "CholeskySVGP(unwhitened)"])
@OUTPUTS
def test_inducing_kl_is_gpflows(rng, name, J, kind):
    whiten = name == "CholeskySVGP"
    problem = Problem(rng, name, J, kind, mean_whitened=whiten)
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(problem.points)
    expected = gpflow.kullback_leiblers.prior_kl(
        problem.points if kind == "single" else points,
        problem.kernel,
        problem.q_mu,
        problem.q_sqrt,
        whiten=whiten,
    )
    value = InducingKL()(problem.q, problem.p, problem.X)
    assert_close(N * value, expected)


def test_inducing_kl_is_zero_at_the_prior_and_has_a_gradient_in_all_of_q(rng):
    problem = Problem(rng, "CholeskySVGP", 2, "separate")
    with tf.GradientTape() as tape:
        value = InducingKL()(problem.q, problem.p, problem.X)
    moved = problem.q.mean_function.q_mu, problem.q.kernel.q_sqrt
    gradients = tape.gradient(value, [part.unconstrained_variable for part in moved])
    assert all(np.all(gradient.numpy() != 0) for gradient in gradients)

    problem.q.mean_function.q_mu.assign(np.zeros((M, 2)))
    problem.q.kernel.q_sqrt.assign(np.tile(np.eye(M), (2, 1, 1)))
    assert_close(InducingKL()(problem.q, problem.p, problem.X), 0.0, scale=1.0)


@pytest.mark.parametrize("name", sorted(set(catalogue.COVARIANCES) - set(catalogue.FINITE_KL)))
def test_inducing_kl_refuses_covariances_with_which_it_is_infinite(rng, name):
    problem = Problem(rng, "CholeskySVGP", 1, "single")
    covariance = catalogue.COVARIANCES[name](problem.kernel, problem.points)
    q = gvi.GaussianProcess(problem.q.mean_function, covariance)
    for refuse in (InducingKL().check, lambda q, p: InducingKL()(q, p, problem.X)):
        with pytest.raises(
            TypeError, match=rf"infinite .*Inducing and {type(covariance).__name__}"
        ):
            refuse(q, problem.p)


@pytest.mark.parametrize(
    "mean", [gpflow.functions.Zero(), gpflow.functions.Linear(np.ones((2, 1)))]
)
def test_inducing_kl_refuses_means_with_which_it_is_infinite(rng, mean):
    problem = Problem(rng, "CholeskySVGP", 1, "single")
    q = gvi.GaussianProcess(mean, problem.q.kernel)
    with pytest.raises(TypeError, match=rf"infinite .*{type(mean).__name__} and CholeskySVGP"):
        InducingKL()(q, problem.p, problem.X)


def _other_kernel_of_p(problem: Problem) -> None:
    problem.p.kernel = gpflow.kernels.SquaredExponential(1.3, 0.81)


def _other_kernel_of_the_mean(problem: Problem) -> None:
    problem.q.mean_function.kernel = gpflow.kernels.SquaredExponential(1.31, 0.8)


def _other_points_of_the_mean(problem: Problem) -> None:
    problem.q.mean_function.inducing_variable = catalogue.inducing_points(problem.Z + 0.01)


def _equal_points_that_move(problem: Problem) -> None:
    problem.q.mean_function.inducing_variable = catalogue.inducing_points(problem.Z)


def _other_mean_of_p(problem: Problem) -> None:
    problem.p.mean_function = gpflow.functions.Linear(np.ones((2, 1)), np.zeros(1))


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (_other_kernel_of_p, "kernel of P"),
        (_other_kernel_of_the_mean, "kernel of Q's mean"),
        (_other_points_of_the_mean, "inducing_variable of Q's mean"),
        (_equal_points_that_move, "inducing_variable of Q's mean"),
        (_other_mean_of_p, "mean_function of Q's Inducing mean"),
    ],
)
def test_inducing_kl_refuses_parts_that_differ(rng, spoil, what):
    problem = Problem(rng, "CholeskySVGP", 1, "single")
    spoil(problem)
    with pytest.raises(ValueError, match=f"The {what} is not that of .*infinite"):
        InducingKL()(problem.q, problem.p, problem.X)


def test_inducing_kl_refuses_a_kernel_that_differs_only_away_from_the_inducing_points(rng):
    """P's law of f given u is not Q's then, whatever K_ZZ is: KL[Q, P] is infinite."""
    kernel, other = (gpflow.kernels.SquaredExponential(1.3, scale) for scale in (0.8, 2.0))
    point = catalogue.inducing_points(rng.normal(size=(1, 2)))
    covariance = gvi.covariances.CholeskySVGP(kernel, point)
    q = gvi.GaussianProcess(Inducing(kernel, point), covariance)
    with pytest.raises(ValueError, match="kernel of P is not that of"):
        InducingKL()(
            q, gvi.GaussianProcess(gpflow.functions.Zero(), other), rng.normal(size=(N, 2))
        )


def test_inducing_kl_accepts_copies(rng):
    """A regulariser that was loaded or copied is as good as the original."""
    problem = Problem(rng, "CholeskySVGP", 3, "separate")
    value = InducingKL()(problem.q, problem.p, problem.X)
    assert value == InducingKL()(problem.q, copy.deepcopy(problem.p), problem.X)


# --- RegularisedKL ------------------------------------------------------------------------------


def processes(rng: np.random.Generator, name: str, J: int) -> list[gvi.GaussianProcess]:
    """Q with a covariance of the package and P with another kernel."""
    p_kernel = gpflow.kernels.Matern32(0.9, 1.1)
    q_kernel = catalogue.kernels(J)["single" if J == 1 else "separate"]
    covariance = catalogue.COVARIANCES[name](q_kernel, rng.normal(size=(3, 2)))
    means = [gpflow.functions.Linear(rng.normal(size=(2, J)), rng.normal(size=J)) for _ in "qp"]
    kernels = (covariance, gpflow.kernels.SharedIndependent(p_kernel, J) if J > 1 else p_kernel)
    return [gvi.GaussianProcess(*pair) for pair in zip(means, kernels, strict=True)]


def marginals(process: gvi.GaussianProcess, X: Array) -> list[tuple[Array, Array]]:
    """Mean vector and covariance matrix of each output."""
    return list(zip(process.mean(X).numpy().T, process.covariance(X).numpy(), strict=True))


def test_gamma_is_a_hundredth_by_default(rng):
    q, p = processes(rng, "CholeskySVGP", 1)
    X = rng.normal(size=(N, 2))
    ((of_q, of_p),) = zip(marginals(q, X), marginals(p, X), strict=True)
    expected = references.regularised_kl(*of_q, *of_p, 0.01)
    assert_close(RegularisedKL()(q, p, X), expected)


@pytest.mark.parametrize(
    ("name", "case", "points"),
    catalogue.covariances_in_turn(
        [(1, 1e-3), (2, 0.4)], ["distinct", "distinct", "repeated", "repeated"]
    ),
)
def test_regularised_kl_is_that_of_dense_gaussians(rng, name, case, points):
    J, gamma = case
    q, p = processes(rng, name, J)
    X = rng.normal(size=(N, 2))[[0, 1, 2, 3, 4, 5, 6] if points == "distinct" else [0, 0, 1, 1, 2]]
    value = RegularisedKL(gamma)(q, p, X)
    pairs = list(zip(marginals(q, X), marginals(p, X), strict=True))
    expected = sum(references.regularised_kl(*of_q, *of_p, gamma) for of_q, of_p in pairs)
    assert_close(value, expected)

    ridge = gamma * len(X) * np.eye(len(X))
    distributions = [
        [tfp.distributions.MultivariateNormalFullCovariance(m, S + ridge) for m, S in pair]
        for pair in pairs
    ]
    of_tfp = sum(tfp.distributions.kl_divergence(*pair) for pair in distributions)
    assert_close(len(X) * value, of_tfp)


def test_regularised_kl_as_the_ridge_dominates(rng):
    """KL tends to ‖δ‖² / 2γB: the covariances no longer matter, and at once for equal ones."""
    q, p = processes(rng, "CholeskySVGP", 2)
    X = rng.normal(size=(N, 2))
    delta = (q.mean(X) - p.mean(X)).numpy()
    expected = np.sum(delta**2) / (2 * 1e6 * N) / N
    assert_close(RegularisedKL(1e6)(q, p, X), expected, ITERATIVE)
    assert_close(RegularisedKL(1e-3)(q, q, X), 0.0, scale=1.0)


@pytest.mark.parametrize("shared", ["p", "q"])
def test_regularised_kl_compares_one_output_with_each_of_several(rng, shared):
    several, _ = processes(rng, "DiagonalSVGP", 2)
    _, one = processes(rng, "DiagonalSVGP", 1)
    X = rng.normal(size=(N, 2))
    of_one, of_several = marginals(one, X)[0], marginals(several, X)
    pairs = itertools.product(of_several, [of_one])
    if shared == "q":
        pairs = itertools.product([of_one], of_several)
    expected = sum(references.regularised_kl(*of_q, *of_p, 0.1) for of_q, of_p in pairs)
    value = RegularisedKL(0.1)(*((several, one) if shared == "p" else (one, several)), X)
    assert_close(value, expected)


def test_gradient_of_regularised_kl_is_that_of_the_dense_formula(rng):
    """∂KL/∂δ = (K + γB·I)⁻¹ δ and ∂KL/∂R = ½ ( (K + γB·I)⁻¹ - (R + γB·I)⁻¹ ), here for R = vA."""
    v = 0.7
    q = gvi.GaussianProcess(gpflow.functions.Constant(np.ones(1)), gpflow.kernels.Matern12(v))
    p = gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.Matern32(0.9, 1.1))
    X, gamma = rng.normal(size=(N, 2)), 0.05
    with tf.GradientTape() as tape:
        value = RegularisedKL(gamma)(q, p, X)
    variables = [q.mean_function.c, q.kernel.variance]
    of_mean, of_variance = tape.gradient(value, [part.unconstrained_variable for part in variables])
    ridge = gamma * N * np.eye(N)
    R, K = (process.covariance(X).numpy()[0] for process in (q, p))
    inverse_K, inverse_R = scipy.linalg.inv(K + ridge), scipy.linalg.inv(R + ridge)
    assert_close(of_mean, [np.sum(inverse_K) / N])
    # The chain rule through softplus: dv/dt = 1 - e^(-v).
    expected = 0.5 * np.trace((inverse_K - inverse_R) @ R) / v / N * (1 - np.exp(-v))
    assert_close(of_variance, expected)


@pytest.mark.parametrize("gamma", [0.0, -1.0, np.nan], ids=str)
def test_gamma_must_be_positive(gamma):
    with pytest.raises(ValueError, match=f"gamma is {gamma}; it must be positive"):
        RegularisedKL(gamma)
