"""Graphs for a device: what XLA compiles, against the same without it, and what is in them."""

from __future__ import annotations

import itertools

import gpflow
import keras
import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.divergences import GaussianWasserstein, wasserstein
from gpflow_gvi.divergences.wasserstein.fidelity import fidelity, trace_of_root
from gpflow_gvi.regulariser.pivots import greedy_pivots
from tests import catalogue, references
from tests.designs import each_value
from tests.matrices import covariance, gradients, slope
from tests.tolerances import ITERATIVE, assert_close

SE = gpflow.kernels.SquaredExponential

ESTIMATORS = {
    "exact": wasserstein.Exact,
    "newton_schulz": wasserstein.NewtonSchulz,
    "low_rank": lambda: wasserstein.LowRank(8),
    "landmark": lambda: wasserstein.Landmark(20),
    "marginal": wasserstein.Marginal,
}

HOST = {"PyFunc", "PyFuncStateless", "EagerPyFunc", "Eig"}
"""Operations that neither XLA nor a GPU has."""

QUICK = [
    ("CholeskySVGP", "exact"),
    ("KernelisedSVGP", "newton_schulz"),
    ("SparsePosterior", "low_rank"),
    ("DiagonalSVGP", "landmark"),
]
"""The pairs of a covariance and an estimator that are compiled every time: it takes seconds."""


def model(name: str, kind: str) -> tuple[gvi.models.GVI, tuple[np.ndarray, np.ndarray]]:
    """Return a model of 20 rows of two features, whose Q is not P, with data."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2.0, 2.0, (20, 2))
    k = SE(1.4, lengthscales=1.3)
    r = catalogue.COVARIANCES[name](k, catalogue.inducing_points(X[:4]))
    last = r.trainable_variables[-1]  # a variance, or the whole of Σ
    last.assign(last - 0.1 * rng.uniform(size=last.shape))
    P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    Q = gvi.GaussianProcess(gpflow.functions.Linear(np.ones((2, 1)), [0.1]), r)
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    divergence = GaussianWasserstein(ESTIMATORS[kind]())
    return gvi.models.GWI(P, Q, likelihood, divergence, num_data=20), (X, np.sin(X[:, :1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow)
        for pair in itertools.product(catalogue.COVARIANCES, ESTIMATORS)
    ],
)
def test_xla_trains_as_without_it(name, kind):
    found = []
    for jit_compile in (False, True):
        fitted, data = model(name, kind)
        fitted.compile(keras.optimizers.SGD(1e-3), jit_compile=jit_compile)
        history = fitted.fit(data, epochs=2, batch_size=20, verbose=0).history
        found.append((history["loss"], fitted.trainable_variables))
    (losses, variables), (compiled_losses, compiled) = found
    assert losses[1] < losses[0]
    assert_close(compiled_losses, losses, ITERATIVE)
    for ours, expected in zip(compiled, variables, strict=True):
        assert_close(ours, expected, ITERATIVE, scale=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "divergence"),
    [
        ("CholeskySVGP", lambda: GaussianWasserstein("exact")),
        ("KernelisedSVGP", lambda: GaussianWasserstein("exact")),
        ("SparsePosterior", lambda: GaussianWasserstein("newton_schulz")),
        ("KernelisedSVGP", lambda: GaussianWasserstein(wasserstein.LowRank(8))),
        ("DiagonalSVGP", gvi.divergences.RegularisedKL),
    ],
)
def test_xla_trains_where_the_last_batch_is_smaller(name, divergence):
    """20 rows are two batches of 7 and one of 6, so that the graph knows no size."""
    losses = []
    for jit_compile in (False, True):
        fitted, data = model(name, "exact")
        fitted.divergence = divergence()
        fitted.compile(keras.optimizers.SGD(1e-3), jit_compile=jit_compile)
        history = fitted.fit(data, epochs=2, batch_size=7, shuffle=False, verbose=0).history
        losses.append(history["loss"])
    assert_close(losses[1], losses[0], ITERATIVE)


def operations(name: str, kind: str, *, jit_compile: bool) -> tuple[set[str], int]:
    """Return the types of operations in a step, and their number."""
    fitted, data = model(name, kind)

    @tf.function(jit_compile=jit_compile or None, autograph=False)
    def step(X: tf.Tensor, Y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = fitted.training_loss((X, Y))
        return tape.gradient(loss, fitted.trainable_variables)

    graph = step.get_concrete_function(*map(tf.constant, data)).graph.as_graph_def()
    nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    return {node.op for node in nodes}, len(nodes)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *each_value(catalogue.COVARIANCES, ESTIMATORS),
        pytest.param("SparsePosterior", "low_rank", marks=pytest.mark.slow),
    ],
)
def test_a_graph_for_xla_has_no_operations_of_the_host(name, kind):
    assert not HOST & operations(name, kind, jit_compile=True)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "operation"),
    [("SparsePosterior", "low_rank", "PyFuncStateless"), ("CholeskySVGP", "landmark", "Eig")],
)
@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="the graph is for a GPU")
def test_the_same_graph_for_a_cpu_has(name, kind, operation):
    assert operation in operations(name, kind, jit_compile=False)[0]


# --- the parts ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rank", [12, 3])
def test_fidelity_by_xla_is_that_of_matrix_square_roots(rng, dtype, rank):
    """And its gradient is ½ R^½ (R^½ K R^½)^(-½) R^½, where there is one."""
    K, R = covariance(rng, 12, rank=rank).astype(dtype), covariance(rng, 12).astype(dtype)
    compiled = tf.function(fidelity, jit_compile=True)
    assert_close(compiled(*map(tf.constant, (K, R))), references.fidelity(K, R), ITERATIVE)
    if rank == 12:
        root = scipy.linalg.sqrtm(R.astype(float))
        inner = np.linalg.inv(scipy.linalg.sqrtm(root @ K @ root).real)
        assert_close(gradients(compiled, K, R)[0], 0.5 * root @ inner @ root, ITERATIVE)


@pytest.mark.slow
def test_fidelity_by_xla_has_the_gradient_where_eigenvalues_span_nine_orders(rng):
    vectors = np.linalg.qr(rng.normal(size=(9, 9)))[0]
    scales = np.logspace(0.0, -12.0, 9)
    others = scales[::-1] ** 0.25
    K, R = ((vectors * spectrum) @ vectors.T for spectrum in (scales, others))
    compiled = tf.function(fidelity, jit_compile=True)
    assert_close(compiled(*map(tf.constant, (K, R))), np.sum(np.sqrt(scales * others)), ITERATIVE)
    along = vectors.T @ gradients(compiled, K, R)[1] @ vectors
    assert_close(np.diag(along), 0.5 * np.sqrt(scales / others), ITERATIVE)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_trace_of_root_of_a_matrix_that_is_not_symmetric(rng, jit_compile):
    H = covariance(rng, 8) @ covariance(rng, 8)
    compiled = tf.function(trace_of_root, jit_compile=jit_compile or None)
    expected = np.trace(scipy.linalg.sqrtm(H)).real
    assert_close(compiled(tf.constant(H)), expected)
    E = rng.normal(size=(8, 8))
    numerical = slope(lambda at: np.trace(scipy.linalg.sqrtm(at)).real, H, E)
    assert_close(np.sum(gradients(compiled, H)[0] * E), numerical, ITERATIVE)


@pytest.mark.parametrize("tolerance", [1e-3, 0.0])
@pytest.mark.parametrize("J", [1, 3])
def test_pivots_by_operations_are_those_of_numpy(rng, J, tolerance):
    """Fewer than asked for are told apart where they leave what is tolerated."""
    X = tf.constant(rng.normal(size=(40, 2)))
    kernel = catalogue.kernels(J)["single" if J == 1 else "separate"]
    expected, _ = greedy_pivots(kernel, X, 30, tolerance)
    rows, chosen = tf.function(
        lambda X: greedy_pivots(kernel, X, 30, tolerance), jit_compile=True, autograph=False
    )(X)
    assert rows.shape == chosen.shape == [30]
    np.testing.assert_array_equal(rows[chosen], expected)
    assert (np.count_nonzero(chosen) < 30) == (tolerance > 0.0)


def test_pivots_of_equal_rows_end_where_nothing_is_left():
    X, kernel = tf.constant([[0.0], [1.0], [0.0], [1.0]], tf.float64), SE()
    rows, chosen = tf.function(
        lambda X: greedy_pivots(kernel, X, 4, 0.0), jit_compile=True, autograph=False
    )(X)
    np.testing.assert_array_equal(rows[chosen], [0, 1])
