"""Each covariance, output by output, against its formula in dense numpy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import Kernel, SeparateIndependent, SharedIndependent, SquaredExponential

import gpflow_gvi as gvi
from gpflow_gvi.covariances import (
    CholeskySVGP,
    DiagonalSVGP,
    FixedSparsePosterior,
    KernelisedSVGP,
    SparsePosterior,
    Tempered,
)
from tests import references
from tests.designs import each_value
from tests.tolerances import ITERATIVE, ROUNDING, assert_close

M, D = 4, 2


class Setting(NamedTuple):
    """A kernel and an inducing variable, and what they are for each of the J outputs."""

    J: int
    kernel: Kernel
    inducing_variable: Any
    singles: list[SquaredExponential]
    Z: list[np.ndarray]


SETTINGS = [
    (1, "single", "plain"),
    (3, "single", "plain"),
    (3, "single", "separate"),
    (3, "shared", "shared"),
    (3, "separate", "plain"),
    (3, "separate", "shared"),
    (3, "separate", "separate"),
]


def in_words(setting: tuple[int, str, str]) -> str:
    return f"J={setting[0]}, {setting[1]} kernel, {setting[2]} points"


@pytest.fixture(params=SETTINGS, ids=in_words)
def setting(request, rng) -> Setting:
    J, kind, inducing = request.param
    kernels = [
        SquaredExponential(rng.uniform(0.5, 2.0), rng.uniform(0.7, 1.5, size=D)) for _ in range(J)
    ]
    Z = [rng.normal(size=(M, D)) for _ in range(J)]
    kernel = {
        "single": kernels[0],
        "shared": SharedIndependent(kernels[0], J),
        "separate": SeparateIndependent(kernels),
    }[kind]
    inducing_variable = {
        "plain": InducingPoints(Z[0]),
        "shared": SharedIndependentInducingVariables(InducingPoints(Z[0])),
        "separate": SeparateIndependentInducingVariables([InducingPoints(z) for z in Z]),
    }[inducing]
    return Setting(
        J,
        kernel,
        inducing_variable,
        kernels if kind == "separate" else [kernels[0]] * J,
        Z if inducing == "separate" else [Z[0]] * J,
    )


def own_kernel(kernel: Kernel) -> tuple[Kernel, Callable[[int], Kernel]]:
    """An r_0 ⪯ k that is not k: smaller and smoother, so that its spectrum lies below k's."""
    own = copy.deepcopy(kernel)
    parts = getattr(own, "latent_kernels", (own,))
    for part in parts:
        part.variance.assign(0.3 * part.variance)
        part.lengthscales.assign(1.2 * part.lengthscales)
    return own, lambda j: parts[j % len(parts)]


def padded(kernel: Kernel, Z: np.ndarray) -> np.ndarray:
    return references.padded(kernel(Z))


def with_sigma(s: Setting, sigma: Callable[[int], np.ndarray]) -> Callable[..., np.ndarray]:
    """k - K_xZ K_ZZ⁻¹ K_Zx' + K_xZ Σ K_Zx'."""

    def formula(j: int, X: np.ndarray, X2: np.ndarray) -> np.ndarray:
        k, Z = s.singles[j], s.Z[j]
        left, right = k(X, Z).numpy(), k(Z, X2).numpy()
        middle = sigma(j) - np.linalg.inv(padded(k, Z))
        return k(X, X2).numpy() + left @ middle @ right

    return formula


def cholesky_svgp(s: Setting, rng: np.random.Generator):
    T = np.tril(rng.normal(size=(s.J, M, M)))
    whitened = CholeskySVGP(s.kernel, s.inducing_variable, q_sqrt=T)

    def sigma(j: int) -> np.ndarray:
        rows = np.linalg.solve(np.linalg.cholesky(padded(s.singles[j], s.Z[j])).T, T[j])
        return rows @ rows.T

    return whitened, with_sigma(s, sigma)


def cholesky_svgp_unwhitened(s: Setting, rng: np.random.Generator):
    T = np.tril(rng.normal(size=(s.J, M, M)))
    plain = CholeskySVGP(s.kernel, s.inducing_variable, q_sqrt=T, whiten=False)

    def sigma(j: int) -> np.ndarray:
        rows = np.linalg.solve(padded(s.singles[j], s.Z[j]), T[j])
        return rows @ rows.T

    return plain, with_sigma(s, sigma)


def diagonal_svgp(s: Setting, rng: np.random.Generator):
    v = rng.gamma(1.0, size=(M, s.J))
    covariance = DiagonalSVGP(s.kernel, s.inducing_variable, v=v)
    return covariance, with_sigma(s, lambda j: np.diag(v[:, j]))


def kernelised_svgp(s: Setting, rng: np.random.Generator):
    own, part = own_kernel(s.kernel)
    covariance = KernelisedSVGP(s.kernel, s.inducing_variable, base_kernel=own, num_latent_gps=s.J)
    nothing = with_sigma(s, lambda j: np.zeros((M, M)))
    return covariance, lambda j, X, X2: nothing(j, X, X2) + part(j)(X, X2).numpy()


def sparse_posterior(s: Setting, rng: np.random.Generator):
    own, part = own_kernel(s.kernel)
    covariance = SparsePosterior(s.kernel, s.inducing_variable, base_kernel=own, num_latent_gps=s.J)

    def formula(j: int, X: np.ndarray, X2: np.ndarray) -> np.ndarray:
        r0, Z = part(j), s.Z[j]
        return r0(X, X2).numpy() - r0(X, Z) @ np.linalg.solve(padded(r0, Z), r0(Z, X2))

    return covariance, formula


def fixed_sparse_posterior(s: Setting, rng: np.random.Generator):
    own, part = own_kernel(s.kernel)
    covariance = FixedSparsePosterior(
        s.kernel, s.inducing_variable, base_kernel=own, num_latent_gps=s.J
    )

    def formula(j: int, X: np.ndarray, X2: np.ndarray) -> np.ndarray:
        r0, Z = part(j), s.Z[j]
        return r0(X, X2).numpy() - r0(X, Z) @ np.linalg.solve(padded(s.singles[j], Z), r0(Z, X2))

    return covariance, formula


def tempered(s: Setting, rng: np.random.Generator):
    inner, formula = cholesky_svgp(s, rng)
    factors = rng.uniform(0.2, 3.0, size=s.J)
    return Tempered(inner, factors), lambda j, X, X2: factors[j] * formula(j, X, X2)


FORMULAS = {
    "CholeskySVGP": cholesky_svgp,
    "CholeskySVGP(unwhitened)": cholesky_svgp_unwhitened,
    "DiagonalSVGP": diagonal_svgp,
    "KernelisedSVGP": kernelised_svgp,
    "SparsePosterior": sparse_posterior,
    "FixedSparsePosterior": fixed_sparse_posterior,
    "Tempered": tempered,
}


# Each formula with one output or with outputs that share nothing; and two of them, one with
# something added and one without, in turn with everything that outputs may share.
ENDS = (SETTINGS[0], SETTINGS[-1])
CASES = [
    *each_value(FORMULAS, ENDS),
    *((name, s) for s, name in each_value(SETTINGS[1:], ["SparsePosterior", "CholeskySVGP"])),
]


@pytest.mark.parametrize(
    ("name", "setting"), CASES, indirect=["setting"], ids=[f"{n}, {in_words(s)}" for n, s in CASES]
)
def test_formula_of_each_output(name, setting, rng):
    covariance, formula = FORMULAS[name](setting, rng)
    X, X2 = rng.normal(size=(5, D)), rng.normal(size=(3, D))
    expected = np.stack([formula(j, X, np.concatenate([X, X2])) for j in range(setting.J)])
    assert covariance.num_outputs == setting.J
    assert_close(covariance.output_covariance(X, X2), expected[:, :, 5:])
    assert_close(covariance.output_covariance(X), expected[:, :, :5])
    diagonal = np.einsum("jnn->nj", expected[:, :, :5])
    assert_close(covariance.output_variance(X), diagonal)


def test_a_factor_for_each_output_of_one_kernel(rng):
    kernel, X, factors = SquaredExponential(), rng.normal(size=(4, D)), np.array([0.5, 2.0, 3.0])
    tempered = Tempered(kernel, factors)
    assert_close(tempered.output_variance(X), np.ones((4, 1)) * factors)
    assert_close(tempered.output_covariance(X), factors[:, None, None] * kernel(X))


def test_kernelised_with_an_own_kernel_for_each_output_of_a_shared_one(rng):
    X, Z = rng.normal(size=(5, D)), rng.normal(size=(M, D))
    k = SquaredExponential(1.2)
    own = [SquaredExponential(0.3), SquaredExponential(0.8, lengthscales=2.0)]
    r = KernelisedSVGP(k, Z, base_kernel=SeparateIndependent(own))
    for j, r_0 in enumerate(own):
        single = KernelisedSVGP(k, Z, base_kernel=r_0)
        assert_close(r.K(X, full_output_cov=False)[j], single.K(X))
        assert_close(r.K_diag(X, full_output_cov=False)[:, j], single.K_diag(X))


@pytest.fixture
def spread_points(rng) -> np.ndarray:
    """Points on a jittered grid: K is so well conditioned that a small nugget changes nothing."""
    grid = np.stack(np.meshgrid([-2.0, 0.0, 2.0], [-2.0, 0.0, 2.0]), axis=-1).reshape(-1, D)
    return grid + 0.2 * rng.normal(size=grid.shape)


def test_sparse_posteriors_on_all_data_are_the_exact_noise_free_posterior(spread_points, rng):
    Z, U, X = spread_points, rng.normal(size=(9, 1)), rng.normal(size=(6, D))
    kernel = SquaredExponential(1.7, lengthscales=[0.8, 1.1])
    process = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    exact = process.condition(Z, U, 0.0).covariance(X)[0]
    gpr = gpflow.models.GPR((Z, U), kernel, noise_variance=1.1e-6).predict_f(X, full_cov=True)[1]
    for covariance in (SparsePosterior(kernel, Z), FixedSparsePosterior(kernel, Z)):
        assert_close(covariance(X), exact, ITERATIVE)
        assert_close(covariance(X), gpr[0], ITERATIVE)
        assert_close(covariance(Z), 0.0, ITERATIVE, scale=1.7)


@pytest.mark.parametrize("setting", ENDS, indirect=True, ids=in_words)
def test_fixed_sparse_posterior_starts_as_sparse_posterior(setting, rng):
    X, X2 = rng.normal(size=(5, D)), rng.normal(size=(3, D))
    options = {"num_latent_gps": setting.J}
    free = SparsePosterior(setting.kernel, setting.inducing_variable, **options)
    fixed = FixedSparsePosterior(setting.kernel, setting.inducing_variable, **options)
    assert_close(fixed(X, X2), free(X, X2))
    # The floor of the fixed one may lift variances of the size of the jitter.
    assert_close(fixed(X), free(X), ITERATIVE)


def optimum(s: Setting, j: int, X: np.ndarray, noise: float) -> np.ndarray:
    """(K_ZZ + σ⁻² K_ZX K_XZ)⁻¹."""
    cross = s.singles[j](s.Z[j], X).numpy()
    return np.linalg.inv(padded(s.singles[j], s.Z[j]) + cross @ cross.T / noise)


@pytest.mark.parametrize(
    ("setting", "whiten"), each_value(SETTINGS, [True, False]), indirect=["setting"]
)
def test_from_data_starts_at_the_optimum_of_titsias(setting, whiten, rng):
    noise = np.array([0.1, 0.5, 2.0])[: setting.J]
    X, new = rng.normal(size=(12, D)), rng.normal(size=(5, D))
    data = (setting.kernel, setting.inducing_variable, X, noise)
    start = CholeskySVGP.from_data(*data, whiten=whiten, num_latent_gps=setting.J)
    found = start.output_covariance(new)
    for j in range(setting.J):
        Sigma = optimum(setting, j, X, noise[j])
        expected = with_sigma(setting, lambda j, Sigma=Sigma: Sigma)(j, new, new)
        assert_close(found[j], expected)


@pytest.mark.parametrize("setting", ENDS, indirect=True, ids=in_words)
def test_diagonal_starts_where_the_evidence_bound_is_stationary(setting, rng):
    noise = np.array([0.1, 0.5, 2.0])[: setting.J]
    X = rng.normal(size=(12, D))
    data = (setting.kernel, setting.inducing_variable, X, noise)
    start = DiagonalSVGP.from_data(*data, num_latent_gps=setting.J)
    for j in range(setting.J):
        cross = setting.singles[j](setting.Z[j], X).numpy()
        Kzz = padded(setting.singles[j], setting.Z[j])

        def bound(v: np.ndarray, j=j, cross=cross, Kzz=Kzz) -> float:
            """E_q log p(y | u) - KL[q(u), p(u)] as far as S = K_ZZ diag(v) K_ZZ enters."""
            S = Kzz @ np.diag(v) @ Kzz
            A = np.linalg.solve(Kzz, cross)
            return -0.5 * (
                np.sum(A * (S @ A)) / noise[j]
                + np.trace(np.linalg.solve(Kzz, S))
                - np.linalg.slogdet(S)[1]
            )

        v = start.v[:, j].numpy()
        for m in range(len(v)):
            step = 1e-2 * v[m] * np.eye(len(v))[m]
            assert bound(v) > bound(v + step)
            assert bound(v) > bound(v - step)


@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
def test_from_data_is_recovered_at_the_inducing_points_and_is_sgpr_s(whiten, spread_points, rng):
    Z, X, new = spread_points, rng.normal(size=(15, D)), rng.normal(size=(6, D))
    kernel, noise = SquaredExponential(1.4, lengthscales=0.9), 0.2
    start = CholeskySVGP.from_data(kernel, Z, X, noise, whiten=whiten)
    K, cross = kernel(Z).numpy(), kernel(Z, X).numpy()
    inverse = np.linalg.inv(K)
    # At Z, k - Q is no more than the jitter: r(Z, Z) = K Σ K.
    assert_close(
        inverse @ start(Z).numpy() @ inverse,
        np.linalg.inv(K + cross @ cross.T / noise),
        ITERATIVE,
    )
    sgpr = gpflow.models.SGPR((X, X[:, :1]), kernel, Z, noise_variance=noise)
    assert_close(start(new), sgpr.predict_f(new, full_cov=True)[1][0])


@hypothesis.settings(max_examples=6, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**31), log_scale=st.floats(-4, 4), whiten=st.booleans())
def test_svgp_covariances_grow_with_sigma_from_k_without_its_nystrom_part(seed, log_scale, whiten):
    """k - Q = r(Σ=0) ⪯ r(Σ) ⪯ r(Σ + vvᵀ), and r = k at the prior's own Σ = K_ZZ⁻¹."""
    rng = np.random.default_rng(seed)
    kernel, Z, X = SquaredExponential(), rng.normal(size=(M, D)), rng.normal(size=(6, D))
    Kzz, Kzx = padded(kernel, Z), kernel(Z, X).numpy()

    def r(S: np.ndarray) -> np.ndarray:
        root = np.linalg.cholesky(S) if np.any(S) else S
        return CholeskySVGP(kernel, Z, q_sqrt=root[None], whiten=whiten)(X).numpy()

    S = np.exp(log_scale) * (np.eye(M) + 0.3 * np.ones((M, M)))
    direction = rng.normal(size=(M, 1))
    removed, some, more = r(np.zeros((M, M))), r(S), r(S + direction @ direction.T)
    expected = kernel(X).numpy() - Kzx.T @ np.linalg.solve(Kzz, Kzx)
    assert_close(removed, expected, scale=1.0)
    assert_close(r(np.eye(M) if whiten else Kzz), kernel(X))
    scale = max(1.0, np.trace(more))
    for difference in (removed, some - removed, more - some):
        assert np.linalg.eigvalsh(difference).min() > -ROUNDING.float64 * scale


def test_parameters_are_shared_and_not_wrapped_anew():
    """What a caller keeps is what is trained: constraints, priors and ties hold."""
    kernel, Z = SquaredExponential(), np.array([[0.0], [1.0]])
    q_sqrt = gpflow.Parameter(np.eye(2)[None], transform=gpflow.utilities.triangular())
    v, q_mu = gpflow.Parameter(np.full((2, 1), 0.3)), gpflow.Parameter(np.zeros((2, 1)))
    assert gvi.covariances.CholeskySVGP(kernel, Z, q_sqrt=q_sqrt).q_sqrt is q_sqrt
    assert gvi.covariances.DiagonalSVGP(kernel, Z, v=v).v is v
    assert gvi.mean_functions.Inducing(kernel, Z, q_mu=q_mu).q_mu is q_mu


def test_diagonal_starts_with_the_variance_of_k_at_the_points_on_average():
    """tr(K_ZZ V K_ZZ) = tr K_ZZ, of K_ZZ = L Lᵀ."""
    kernel, Z = SquaredExponential(1.7, lengthscales=0.6), np.array([[0.0], [0.5], [0.7], [2.0]])
    r = gvi.covariances.DiagonalSVGP(kernel, Z)
    K = kernel(Z).numpy()
    assert_close(np.trace(K @ np.diag(r.v.numpy()[:, 0]) @ K), 1.7 * 4, ITERATIVE)
    assert_close(np.mean(r.K_diag(Z)), 1.7, ITERATIVE)


class Cancelling(gvi.covariances.covariance.LowRankUpdate):
    """1 - a², which is below zero by more than rounding."""

    num_outputs = 1
    base_kernels = (gpflow.kernels.Constant(1.0),)

    def factors(self, X):
        return [tf.fill([1, 1, len(X)], tf.constant(1.0 + 1e-9, tf.float64))]


def test_variances_are_floored_at_the_rounding_of_what_they_were_subtracted_from():
    r, X = Cancelling(), np.zeros((3, 1))
    floor = np.finfo(float).eps
    np.testing.assert_array_equal(r.K_diag(X), np.full(3, floor))
    np.testing.assert_array_equal(np.diag(r.K(X)), np.full(3, floor))
