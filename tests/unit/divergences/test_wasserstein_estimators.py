"""The estimators of the Wasserstein distance against `exact`, and it against SciPy at its size."""

from __future__ import annotations

import logging

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.divergences import GaussianWasserstein
from gpflow_gvi.divergences.wasserstein import (
    ESTIMATORS,
    Landmark,
    LowRank,
    low_rank,
)
from gpflow_gvi.divergences.wasserstein.estimators import _sum_of_roots
from gpflow_gvi.divergences.wasserstein.fidelity import fidelity, trace_of_root
from gpflow_gvi.regulariser import pivots
from tests import catalogue, references
from tests.designs import each_value
from tests.tolerances import ITERATIVE, ROUNDING, assert_close

Array = np.ndarray
SE = gpflow.kernels.SquaredExponential
NAMES = ["CholeskySVGP", "KernelisedSVGP", "SparsePosterior"]


def process(kernel: gpflow.kernels.Kernel) -> gvi.GaussianProcess:
    return gvi.GaussianProcess(gpflow.functions.Zero(), kernel)


def spread(K: Array, M: int) -> list[int]:
    """Up to M rows, each of the largest variance that is left: without tracing a graph for it."""
    rows: list[int] = []
    rest = K.copy()
    while len(rows) < M and np.trace(rest) > 1e-8 * np.trace(K):
        i = int(np.argmax(np.diag(rest)))
        rows.append(i)
        rest -= np.outer(rest[i], rest[i]) / rest[i, i]
    return rows


def pair(
    name: str, X: Array, lengthscale: float, M: int
) -> tuple[gvi.GaussianProcess, gvi.GaussianProcess]:
    """A covariance of ours, with a kernel of its own if it has one, and a prior."""
    k = SE(lengthscales=lengthscale)
    Z = X[spread(k(X).numpy(), M)]
    if name == "CholeskySVGP":
        return process(gvi.covariances.CholeskySVGP.from_data(k, Z, X, 0.1)), process(k)
    own = SE(0.6, lengthscales=0.8 * lengthscale)
    return process(getattr(gvi.covariances, name)(k, Z, base_kernel=own)), process(k)


def gradients(divergence, q, p, X) -> list[Array]:
    variables, zero = q.trainable_variables, tf.UnconnectedGradients.ZERO
    with tf.GradientTape() as tape:
        value = divergence(q, p, X)
    return [g.numpy() for g in tape.gradient(value, variables, unconnected_gradients=zero)]


# --- low rank -----------------------------------------------------------------------------------

SMOOTH = [
    # D, lengthscale, inducing points, rank of which the error is below one percent
    (1, 0.5, 40, None),
    (2, 1.0, 100, 64),
    (4, 2.0, 100, 100),
    (8, 5.0, 100, None),
    (8, 5.0, 100, 64),
    (8, 8**0.5, 100, 200),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), each_value(NAMES, SMOOTH))
def test_low_rank_is_within_one_percent_on_smooth_kernels(rng, name, case):
    D, lengthscale, M, rank = case
    X = rng.normal(size=(300, D))
    q, p = pair(name, X, lengthscale, M if name != "SparsePosterior" else M // 4)
    exact, estimate = GaussianWasserstein()(q, p, X), GaussianWasserstein(LowRank(rank))(q, p, X)
    assert abs(estimate - exact) <= 0.01 * exact


@pytest.mark.parametrize(
    ("name", "rank"),
    [("CholeskySVGP", 7), ("KernelisedSVGP", None), ("SparsePosterior", 7)],
)
def test_low_rank_is_the_formula(rng, name, rank):
    X = rng.normal(size=(40, 2))
    q, p = pair(name, X, 0.7, 5)
    S = q.kernel.inducing_variable.Z.numpy()
    if rank:
        S = X[pivots.greedy_pivots(p.kernel, tf.constant(X), rank, 0.0)[0]]

    def left_by_nystrom(kernel: gpflow.kernels.Kernel) -> Array:
        block, cross = kernel(S).numpy(), kernel(S, X).numpy()
        return kernel(X).numpy() - cross.T @ np.linalg.solve(block + 1e-10 * np.eye(len(S)), cross)

    K, R, C = p.kernel(X).numpy(), q.kernel(X).numpy(), left_by_nystrom(p.kernel)
    if rank:
        E = left_by_nystrom(q.kernel)
    else:
        E = C + (left_by_nystrom(q.kernel.base_kernel) if name == "KernelisedSVGP" else 0.0)
    U = np.linalg.svd(p.kernel(X, S), full_matrices=False)[0]
    inside, d, e = (U.T @ K @ U, U.T @ R @ U), np.diag(C), np.diag(E)
    outside = (np.trace(K) - np.trace(inside[0])) * (np.trace(R) - np.trace(inside[1]))
    cosine = np.sqrt(d) @ np.sqrt(e) / np.sqrt(np.sum(d) * np.sum(e))
    fidelity = references.fidelity(*inside) + np.sqrt(outside) * cosine
    expected = (np.trace(K) + np.trace(R) - 2.0 * fidelity) / 40
    divergence = GaussianWasserstein(LowRank(rank))
    assert_close(divergence(q, p, X), expected, ITERATIVE)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_sample_of_rows_stands_for_all(rng, monkeypatch, name):
    """What is left of the covariances, from 125 rows and as many others, or between 300 rows."""
    X = rng.normal(size=(500, 2))
    q, p = pair(name, X, 1.0, 40)
    divergence = GaussianWasserstein(LowRank(None if name != "SparsePosterior" else 40))
    exact, variances = GaussianWasserstein()(q, p, X), np.mean(q.variance(X) + p.variance(X))
    for sampled in (300, 125):
        monkeypatch.setattr(low_rank, "SAMPLED", sampled)
        monkeypatch.setattr(low_rank, "SAMPLED_OF_CONSTANTS", sampled)
        for rows in (X, np.roll(X, 1, axis=0)):
            assert abs(divergence(q, p, rows) - exact) < 0.01 * variances


@pytest.mark.parametrize(
    ("name", "rank"),
    [("CholeskySVGP", 30), ("KernelisedSVGP", None)],
)
def test_gradient_of_low_rank_is_that_of_exact_where_the_rank_suffices(rng, name, rank):
    """With little jitter on the Gram matrix of the span, on a scale of unit variances."""
    X = rng.normal(size=(60, 1))
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-10)):
        q, p = pair(name, X, 1.0, 30 if name != "SparsePosterior" else 4)
        estimate, exact = (
            gradients(divergence, q, p, X)
            for divergence in (GaussianWasserstein(LowRank(rank)), GaussianWasserstein())
        )
    for ours, theirs in zip(estimate, exact, strict=True):
        assert_close(ours, theirs, ITERATIVE, scale=1.0)


@pytest.mark.parametrize(
    "kernel",
    [
        lambda: gpflow.kernels.Linear(variance=[0.5, 1.0, 2.0]),
        lambda: gpflow.kernels.Linear() + gpflow.kernels.Constant(0.5),
        lambda: gvi.kernels.FeatureMap(gpflow.kernels.Linear(), lambda X: tf.tanh(X * [1.0, 2, 3])),
    ],
    ids=["linear", "with a constant", "features"],
)
def test_low_rank_is_exact_for_few_features(rng, kernel):
    X = rng.normal(size=(80, 3))
    k, Z = kernel(), rng.normal(size=(2, 3))
    q, p = process(gvi.covariances.SparsePosterior(k, Z)), process(k)
    scale = np.mean(q.variance(X) + p.variance(X))
    value = GaussianWasserstein(LowRank(10))(q, p, X)
    assert_close(value, GaussianWasserstein()(q, p, X), ITERATIVE, scale=scale)


@pytest.mark.parametrize("M", [20, 90])
def test_low_rank_takes_all_features_by_default(rng, M):
    """80 features: fewer inducing points, or the usual number of pivots, would not do."""
    W = rng.normal(size=(3, 80))
    k = gvi.kernels.FeatureMap(gpflow.kernels.Linear(), lambda X: tf.sin(3.0 * X @ W))
    X = rng.normal(size=(150, 3))
    q, p = process(gvi.covariances.KernelisedSVGP(k, X[:M], base_kernel=SE(0.5))), process(k)
    features = np.sin(3.0 * X @ W)  # K = Φ Φᵀ, so F is the nuclear norm of Φᵀ R^½
    R = q.covariance(X)[0].numpy()
    fidelity = np.sum(np.sqrt(np.maximum(np.linalg.eigvalsh(features.T @ R @ features), 0.0)))
    expected = (np.sum(features**2) + np.trace(R) - 2.0 * fidelity) / len(X)
    error, of_usual_rank = (
        abs(GaussianWasserstein(estimator)(q, p, X) - expected)
        for estimator in ("low_rank", LowRank(low_rank.PIVOTS))
    )
    assert error < 0.1 * of_usual_rank


def test_a_rank_that_leaves_much_variance_is_logged(rng, caplog):
    X = rng.normal(size=(50, 2))
    q, p = process(SE(0.5, lengthscales=0.3)), process(SE(lengthscales=0.3))
    with caplog.at_level(logging.WARNING, "gpflow_gvi"):
        GaussianWasserstein(LowRank(45))(q, p, X)
        assert not caplog.records
        GaussianWasserstein(LowRank(5))(q, p, X)
    assert "LowRank(rank=...)" in caplog.text


# --- landmarks ----------------------------------------------------------------------------------


def test_landmark_is_the_formula(rng):
    """√(B / N_S) Σ √λ( r(S, X) k(X, S) ), S every other row."""
    X = rng.normal(size=(40, 2))
    q, p = pair("CholeskySVGP", X, 1.0, 5)
    S = X[::2]
    eigenvalues = np.linalg.eigvals(q.covariance(S, X)[0].numpy() @ p.covariance(X, S)[0].numpy())
    fidelity = np.sqrt(2.0) * np.sum(np.sqrt(eigenvalues.astype(complex))).real
    expected = np.mean(p.variance(X) + q.variance(X) + p.mean(X) ** 2) - 2.0 * fidelity / 40
    value = GaussianWasserstein(Landmark(20))(q, p, X)
    assert_close(value, expected, ITERATIVE)


def test_gradient_of_roots_is_bounded_where_an_eigenvalue_is_lost_in_rounding():
    """It is ½ λ^(-½) in each eigenvalue, and one below S ε λ_max may be zero as well."""
    H = tf.constant(np.diag([1.0, 0.25, 1e-20]))
    with tf.GradientTape() as tape:
        tape.watch(H)
        value = _sum_of_roots(H)
    gradient = np.diag(tape.gradient(value, H))
    assert_close(gradient[:2], [0.5, 1.0])
    assert 0.0 <= gradient[2] < 0.5 / np.sqrt(3.0 * np.finfo(np.float64).eps)


def test_a_hundred_landmarks_by_default(rng):
    X = rng.normal(size=(200, 2))
    q, p = pair("CholeskySVGP", X, 1.0, 5)
    expected = GaussianWasserstein(Landmark(100))(q, p, X)
    np.testing.assert_array_equal(GaussianWasserstein("landmark")(q, p, X), expected)


@pytest.mark.parametrize("name", ["CholeskySVGP", "SparsePosterior"])
def test_all_landmarks_are_exact(rng, name):
    X = rng.normal(size=(40, 2))
    q, p = pair(name, X, 0.4, 5)
    value = GaussianWasserstein(Landmark(40))(q, p, X)
    assert_close(value, GaussianWasserstein()(q, p, X), ITERATIVE)
    ours, exact = (
        gradients(GaussianWasserstein(kind), q, p, X) for kind in (Landmark(40), "exact")
    )
    for one, other in zip(ours, exact, strict=True):
        assert_close(one, other, ITERATIVE)


def test_more_landmarks_err_less(rng):
    X = np.sort(rng.normal(size=(400, 1)), axis=0)
    q, p = pair("CholeskySVGP", X, 0.5, 20)
    exact = GaussianWasserstein()(q, p, X)
    errors = [abs(GaussianWasserstein(Landmark(n))(q, p, X) - exact) for n in (10, 50, 200)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 * errors[0]


# --- Newton-Schulz ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "D"), each_value(NAMES, [1, 4]))
def test_newton_schulz_is_exact(rng, name, D):
    X = rng.normal(size=(60, D))
    q, p = pair(name, X, 1.0, 8)
    exact, ours = GaussianWasserstein(), GaussianWasserstein("newton_schulz")
    assert_close(ours(q, p, X), exact(q, p, X), ITERATIVE)
    for one, other in zip(gradients(ours, q, p, X), gradients(exact, q, p, X), strict=True):
        assert_close(one, other, ITERATIVE)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_newton_schulz_of_singular_matrices_and_zero(rng, dtype):
    """Batched, with K shared; zero has fidelity zero."""
    factors = rng.normal(size=(3, 30, 12)) * np.array([1.0, 1e-3, 0.0])[:, None, None]
    R = (factors @ np.swapaxes(factors, 1, 2)).astype(dtype)
    root = rng.normal(size=(30, 20))
    K = (root @ root.T).astype(dtype)[None]
    expected = [np.linalg.norm(root.T @ factor, "nuc") for factor in factors]
    value = trace_of_root(tf.matmul(K, R))
    assert_close(value, expected, ITERATIVE, scale=np.array(expected))
    tensors = tf.constant(K), tf.constant(R)
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = tf.reduce_sum(trace_of_root(tf.matmul(*tensors)))
    for gradient, tensor in zip(tape.gradient(value, tensors), tensors, strict=True):
        assert gradient.shape == tensor.shape
        assert np.all(np.isfinite(gradient))


def test_newton_schulz_logs_too_few_steps(caplog):
    """Many small eigenvalues, which have not grown to their roots in single precision."""
    H = np.diag(np.r_[1.0, np.full(200, 1e-7)])
    with caplog.at_level(logging.WARNING, "gpflow_gvi"):
        trace_of_root(tf.constant(H))
        assert not caplog.records
        trace_of_root(tf.constant(H, tf.float32))
    assert "had not converged" in caplog.text


def test_newton_schulz_does_not_hide_nan():
    assert np.isnan(trace_of_root(tf.constant([[np.nan, 0.0], [0.0, 1.0]])))


# --- all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "dtype"), each_value(ESTIMATORS.values(), [np.float64, np.float32])
)
def test_shared_kernels_are_compared_once_and_counted_for_each_output(rng, kind, dtype):
    """Three outputs with the same kernels are three times one."""
    with gpflow.config.as_context(gpflow.config.Config(float=dtype, jitter=1e-5)):
        X = rng.normal(size=(20, 2)).astype(dtype)
        k, Z = SE(lengthscales=1.0), X[:4]
        zeros = gpflow.functions.Constant(np.zeros(3, dtype))
        p3, p1 = gvi.GaussianProcess(zeros, k), process(k)
        q1 = gvi.covariances.KernelisedSVGP(k, Z, base_kernel=SE(0.5))
        q3 = gvi.covariances.KernelisedSVGP(k, Z, base_kernel=SE(0.5), num_latent_gps=3)
        divergence = GaussianWasserstein(kind())
        one = float(divergence(process(q1), p1, X))
        for covariance in (q1, q3):
            process3 = gvi.GaussianProcess(zeros, covariance)
            value = divergence(process3, p3, X)
            assert value.dtype == dtype
            # In float32 these matrices are singular.
            assert_close(value, 3.0 * one, ITERATIVE if dtype == np.float32 else ROUNDING)


@pytest.mark.parametrize("rank", [None, pytest.param(7, marks=pytest.mark.slow)])
def test_low_rank_in_a_graph_of_batches_of_any_size(rng, rank):
    X = rng.normal(size=(40, 2))
    q, p = pair("CholeskySVGP", X, 1.0, 10)
    divergence = GaussianWasserstein(LowRank(rank))
    shape = tf.TensorSpec([None, 2], tf.float64)
    graph = tf.function(lambda X: divergence(q, p, X), input_signature=[shape], autograph=False)
    for B in (40, 25):
        # Eigenvalues that are zero but for rounding have roots, and a graph rounds otherwise.
        assert_close(graph(X[:B]), divergence(q, p, X[:B]), ITERATIVE)


@pytest.mark.parametrize("name", catalogue.covariances_in_turn())
def test_gradients_are_finite_at_repeated_points(rng, name):
    """Of all estimators at once: what is not finite in one of them is not finite in their sum."""
    X = rng.normal(size=(4, 2))[[0, 1, 1, 2, 3, 3, 3]]
    k = SE()
    q, p = process(catalogue.COVARIANCES[name](k, X[:2])), process(k)

    def together(q, p, X):
        at_q, at_p = q.at(X), p.at(X)  # both are computed once
        kinds = [GaussianWasserstein(kind()) for kind in ESTIMATORS.values()]
        return tf.add_n([kind.compare(at_q, at_p) for kind in kinds])

    for gradient in gradients(together, q, p, X):
        assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LowRank(0), "rank is 0"),
        (lambda: LowRank(tolerance=1.0), "tolerance is 1"),
        (lambda: Landmark(2.5), "num_landmarks is 2.5"),
    ],
)
def test_options_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("B", [1, 2, 3, 5, 64, 130])
def test_fidelity_in_blocks_of_any_size(rng, B):
    """Against SciPy, in value and in the derivative along the matrices themselves (F is
    homogeneous of degree one half in each)."""
    K, R = (a @ a.T / B + np.eye(B) for a in rng.normal(size=(2, B, B)))
    tensors = tf.constant(K), tf.constant(R)
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = fidelity(*tensors)
    assert_close(value, references.fidelity(K, R))
    for gradient, tensor in zip(tape.gradient(value, tensors), tensors, strict=True):
        assert_close(np.sum(gradient * tensor), 0.5 * value)
        assert_close(gradient, np.transpose(gradient))


# --- kernels with noise of their own, and where rows are sampled ----------------------------------


@pytest.mark.parametrize("kind", [Landmark(40), LowRank(40)], ids=["landmark", "low_rank"])
def test_noise_of_a_kernel_is_between_a_row_and_itself(rng, kind):
    """GPflow's `White` is zero between X and another array, though the rows be the same."""
    X, noise = rng.normal(size=(40, 2)), gpflow.kernels.White
    q, p = process(SE(lengthscales=0.8) + noise(0.2)), process(SE() + noise(0.3))
    exact, scale = GaussianWasserstein()(q, p, X), np.mean(q.variance(X) + p.variance(X))
    assert_close(GaussianWasserstein(kind)(q, p, X), exact, ITERATIVE, scale=scale)


@pytest.mark.parametrize("rows", [20, 30, 45])
def test_pairs_of_sampled_rows_stand_for_all_pairs(rows):
    """For k = 2 and a span of the constant 1, Uᵀ K U = 2 N whatever rows are drawn."""
    X = np.linspace(0.0, 1.0, rows)[:, None]
    span = low_rank._Span(tf.ones([1, 1, rows], tf.float64), tf.constant(X), 20)
    rest = span.rest(gpflow.kernels.Constant(2.0), lambda some: tf.zeros_like(some.factor))
    assert_close(rest.inside, [[[2.0 * rows]]], ITERATIVE)  # there is jitter in U


def test_marginal_is_least_for_a_q_without_variance(rng):
    """Of α P and P, W₂² is (1 - √α)² tr K / B, least at α = 1, and without F (1 + α) tr K / B."""
    X, p = rng.uniform(-2.0, 2.0, (30, 1)), process(SE(1.7, lengthscales=0.5))
    for factor in (1e-4, 0.3, 1.0):
        q = process(gvi.covariances.Tempered(p.kernel, factor))
        exact = 1.7 * (1.0 - np.sqrt(factor)) ** 2
        assert_close(GaussianWasserstein("exact")(q, p, X), exact, tolerance=ITERATIVE, scale=1.7)
        assert_close(GaussianWasserstein("marginal")(q, p, X), 1.7 * (1.0 + factor))
