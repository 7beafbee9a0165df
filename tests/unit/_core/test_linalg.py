"""Factors with jitter and the fidelity, against NumPy, SciPy and finite differences."""

from __future__ import annotations

import logging
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import scipy.linalg
import scipy.spatial
import scipy.stats
import tensorflow as tf

from gpflow_gvi._core import linalg
from gpflow_gvi.errors import NotPositiveDefiniteError
from tests.designs import each_value
from tests.matrices import covariance, gradients, slope
from tests.tolerances import ITERATIVE, ROUNDING, assert_close

Array = np.ndarray
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])


def with_smallest_eigenvalue(rng: np.random.Generator, M: int, value: float) -> Array:
    """A matrix of unit mean diagonal, all of whose other eigenvalues are equal."""
    orthogonal, _ = np.linalg.qr(rng.normal(size=(M, M)))
    eigenvalues = np.array([value] + [(M - value) / (M - 1)] * (M - 1))
    matrix = (orthogonal * eigenvalues) @ orthogonal.T
    return 0.5 * (matrix + matrix.T)


def duplicated_rows(rng: np.random.Generator) -> Array:
    X = rng.normal(size=(5, 2))[[0, 1, 2, 2, 3, 0, 4]]
    return np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=-1))


def scalar(factor: tf.Tensor) -> tf.Tensor:
    """A function of a factor in which every entry weighs differently."""
    weights = np.random.default_rng(1).normal(size=factor.shape)
    weights = tf.constant(weights, dtype=factor.dtype)
    return tf.reduce_sum(weights * factor) + tf.reduce_sum(tf.square(factor) * weights**2)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "gpflow_gvi"]


@pytest.fixture(autouse=True)
def _listen(caplog):
    caplog.set_level(logging.WARNING, logger="gpflow_gvi")


# --- cholesky -----------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_cholesky_of_regular_matrices(rng, caplog, dtype, batch):
    K = covariance(rng, *batch, 5).astype(dtype)
    L = linalg.cholesky(K)
    assert L.dtype == dtype
    assert_close(L, np.linalg.cholesky(K))
    assert warnings_of(caplog) == []


def test_cholesky_with_jitter_from_the_start(rng):
    K = 7.0 * covariance(rng, 4)
    expected = np.linalg.cholesky(K + 0.01 * np.mean(np.diag(K)) * np.eye(4))
    assert_close(linalg.cholesky(K, jitter=0.01), expected)


@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_gradient_of_cholesky(rng, batch):
    K = covariance(rng, *batch, 4)
    (ours,) = gradients(lambda K: scalar(linalg.cholesky(K)), K)
    (theirs,) = gradients(lambda K: scalar(tf.linalg.cholesky(K)), K)
    assert_close(ours, theirs)
    E = covariance(rng, *batch, 4)
    numerical = slope(lambda K: scalar(tf.constant(np.linalg.cholesky(K))), K, E)
    assert_close(np.sum(ours * E), numerical, ITERATIVE)


def test_second_derivative_of_cholesky_in_a_graph(rng):
    K, E = covariance(rng, 4), covariance(rng, 4)

    def curvature(factorise: Callable[[tf.Tensor], tf.Tensor]) -> Array:
        def gradient_along(K: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(K)
                value = scalar(factorise(K))
            return tf.reduce_sum(tape.gradient(value, K) * E)

        return gradients(tf.function(gradient_along, autograph=False), K)[0]

    ours = curvature(linalg.cholesky)
    assert_close(ours, curvature(tf.linalg.cholesky))


@DTYPES
def test_singular_matrix_gets_the_first_rung_of_the_ladder_that_works(rng, dtype):
    K = duplicated_rows(rng).astype(dtype)
    (M, _), scale = K.shape, np.mean(np.diag(K))
    rungs = [0.0, *(np.finfo(dtype).eps * M * 10.0**i for i in range(9))]
    attempts = [tf.linalg.cholesky(K + (rung * scale * np.eye(M)).astype(dtype)) for rung in rungs]
    successes = [i for i, L in enumerate(attempts) if np.all(np.isfinite(np.diag(L)))]
    assert successes[0] > 0, "this matrix should need some jitter"
    expected = attempts[successes[0]]
    assert_close(linalg.cholesky(K), expected)
    assert_close(expected @ tf.transpose(expected), K)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "tf.function"])
@pytest.mark.parametrize(
    ("M", "scale", "needed"), [(4, 1e-8, 1e-5), (5, 1.0, 1e-9), (6, 1e8, 5e-4)], ids=str
)
def test_no_more_jitter_than_is_needed(rng, caplog, needed, M, scale, compiled):
    """Relative to the mean diagonal, up to the promised maximum, and told when unusual."""
    assert needed < linalg.MAXIMAL_JITTER
    K = scale * with_smallest_eigenvalue(rng, M, -needed)
    graph = tf.function(linalg.cholesky, autograph=False)
    L = (graph if compiled else linalg.cholesky)(tf.constant(K))
    added = (np.diag(L @ tf.transpose(L)) - np.diag(K)) / scale
    assert_close(added, added[0], ITERATIVE)
    assert needed < added[0] < 10.0 * needed * (1.0 + ITERATIVE.float64)
    if not compiled:
        told = warnings_of(caplog)
        assert len(told) == (added[0] > gpflow.config.default_jitter())
        assert all(f"{added[0] * scale:.3g}" in message for message in told)


def test_gradient_with_jitter_is_that_of_the_factor_that_was_found(rng):
    K = with_smallest_eigenvalue(rng, 4, -1e-5)
    L = linalg.cholesky(K)
    jitter = np.mean(np.diag(L @ tf.transpose(L) - K)) * np.eye(4)
    (ours,) = gradients(lambda K: scalar(linalg.cholesky(K)), K)
    (theirs,) = gradients(lambda K: scalar(tf.linalg.cholesky(K + jitter)), K)
    assert_close(ours, theirs)


def test_matrices_that_are_no_covariances_raise(rng):
    K = with_smallest_eigenvalue(rng, 4, -0.25)
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ .*smallest eigenvalue is -0\.25,"):
        linalg.cholesky(K, name="K_ZZ")
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ .*smallest eigenvalue is -0\.25,"):
        linalg.cholesky(np.stack([np.eye(4), K]), name="K_ZZ")
    K[1, 2] = K[2, 1] = np.nan
    with pytest.raises(NotPositiveDefiniteError, match=r"K_ZZ has entries that are not finite"):
        linalg.cholesky(K, name="K_ZZ")


def test_a_member_of_a_batch_that_fails_leaves_the_others_as_they_are(rng, caplog):
    regular = covariance(rng, 2, 7)
    needed = 1e-5
    K = np.stack([regular[0], with_smallest_eigenvalue(rng, 7, -needed), regular[1]])
    L = linalg.cholesky(K)
    np.testing.assert_array_equal(L[0], tf.linalg.cholesky(regular[0]))
    np.testing.assert_array_equal(L[2], tf.linalg.cholesky(regular[1]))
    added = np.diag(L[1] @ tf.transpose(L[1])) - np.diag(K[1])
    assert np.all((needed < added) & (added < 10.0 * needed * (1.0 + ITERATIVE.float64)))
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("kind", ["regular", "singular", "batched"])
def test_cholesky_and_its_gradient_are_the_same_in_a_graph(rng, kind):
    regular, singular = covariance(rng, 7), duplicated_rows(rng)
    K = {"regular": regular, "singular": singular, "batched": np.stack([regular, singular])}[kind]
    compiled = tf.function(linalg.cholesky, autograph=False)
    assert_close(compiled(K), linalg.cholesky(K))
    (eager,) = gradients(lambda K: scalar(linalg.cholesky(K)), K)
    (graph,) = gradients(lambda K: scalar(compiled(K)), K)
    assert np.all(np.isfinite(graph))
    assert_close(graph, eager)


@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_cholesky_of_inverse(rng, batch):
    B = covariance(rng, *batch, 5)
    expected = np.linalg.cholesky(np.linalg.inv(B))
    assert_close(linalg.cholesky_of_inverse(tf.constant(B)), expected)


def test_add_to_diagonal(rng):
    K = rng.normal(size=(2, 3, 3))
    for amount in (0.5, np.array([0.5, -2.0]), np.array([3.0])):
        expected = K + np.reshape(amount, (-1, 1, 1)) * np.eye(3)
        assert_close(linalg.add_to_diagonal(tf.constant(K), amount), expected)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_of_another_diagonal_in_a_graph_that_knows_no_size(rng, jit_compile):
    """As a step has them that is traced once for batches of several sizes."""
    K, diagonal, upstream = rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3)), np.arange(9.0)
    upstream = upstream.reshape(3, 3)

    def loss(K: tf.Tensor, diagonal: tf.Tensor) -> tf.Tensor:
        changed = linalg.with_diagonal(K, tf.square(diagonal))
        return tf.reduce_sum(upstream * linalg.add_to_diagonal(changed, diagonal[:, 0]))

    @tf.function(
        jit_compile=jit_compile or None,
        autograph=False,
        input_signature=[
            tf.TensorSpec([None] * 3, tf.float64),
            tf.TensorSpec([None] * 2, tf.float64),
        ],
    )
    def step(K: tf.Tensor, diagonal: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([K, diagonal])
            value = loss(K, diagonal)
        return [value, *tape.gradient(value, [K, diagonal])]

    value, by_K, by_diagonal = step(K, diagonal)
    off = upstream * (1.0 - np.eye(3))
    on = np.diag(upstream)
    assert_close(value, np.sum(off * K) + np.sum(on * (diagonal**2 + diagonal[:, :1])))
    assert_close(by_K, np.tile(off, (2, 1, 1)))
    assert_close(by_diagonal, 2.0 * on * diagonal + np.sum(on) * np.eye(3)[0])


# --- eigh ---------------------------------------------------------------------------------------


def all_of_eigh(M: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return linalg.eigh(M)


def unknown(M: Array) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([None] * M.ndim, M.dtype)]


@pytest.mark.parametrize("size", [5, linalg.MIN_LAPACK], ids=["small", "large"])
@pytest.mark.parametrize(
    ("how", "dtype"),
    each_value(
        ["eager", "graph", "unknown shape", "xla"],
        [np.float64, np.float32, np.float32, np.float64],
    ),
)
def test_eigh_against_scipy(rng, dtype, size, how):
    M = covariance(rng, 2, size).astype(dtype)
    function = {
        "eager": linalg.eigh,
        "graph": tf.function(all_of_eigh),
        "unknown shape": tf.function(all_of_eigh, input_signature=unknown(M)),
        "xla": tf.function(all_of_eigh, jit_compile=True),
    }[how]
    lower = np.tril(M) + np.triu(rng.normal(size=M.shape), 1).astype(dtype)
    values, vectors = function(tf.constant(lower))
    assert values.dtype == dtype
    expected = np.stack([scipy.linalg.eigvalsh(each) for each in M])
    assert_close(values, expected, precision=dtype)
    rebuilt = np.einsum("bij,bj,bkj->bik", vectors, values, vectors)
    # XLA makes no rotation where what is off the diagonal is a millionth of what is on it.
    assert_close(rebuilt, M, ITERATIVE if how == "xla" else ROUNDING, precision=dtype)


def test_eigh_of_what_is_not_finite_is_not_finite():
    M = np.stack([np.eye(linalg.MIN_LAPACK)] * 2)
    M[1, 3, 2] = np.nan
    values, vectors = linalg.eigh(tf.constant(M))
    np.testing.assert_array_equal(values[0], 1.0)
    assert not np.any(np.isfinite(values[1]))
    assert not np.any(np.isfinite(vectors[1]))


@DTYPES
@pytest.mark.parametrize("size", [5, linalg.MIN_LAPACK], ids=["small", "large"])
@pytest.mark.parametrize("transposed", [{}, {"transpose_a": True}, {"transpose_b": True}], ids=str)
def test_product_of_a_batch_and_of_one_matrix(rng, dtype, size, transposed):
    A, B = rng.normal(size=(3, size, size)), rng.normal(size=(1, size, size))
    left = A.swapaxes(1, 2) if "transpose_a" in transposed else A
    right = B.swapaxes(1, 2) if "transpose_b" in transposed else B
    expected = np.einsum("bij,bjk->bik", left, np.repeat(right, 3, axis=0))
    value = linalg.product(tf.constant(A, dtype), tf.constant(B, dtype), **transposed)
    assert value.shape == (3, size, size)
    assert_close(value, expected)


@pytest.mark.parametrize("size", [5, linalg.MIN_LAPACK], ids=["small", "large"])
def test_outer_product_of_rows_and_its_gradient(rng, size):
    A, G = rng.normal(size=(2, 7, size)), rng.normal(size=(2, 7, 7))

    def with_gradient(A):
        with tf.GradientTape() as tape:
            tape.watch(A)
            value = linalg.outer_product(A)
        return value, tape.gradient(value, A, output_gradients=tf.constant(G))

    expected = np.einsum("bin,bjn->bij", A, A)
    by_A = np.einsum("bij,bjn->bin", G + G.swapaxes(1, 2), A)
    for compute in (with_gradient, tf.function(with_gradient)):
        value, gradient = compute(tf.constant(A))
        assert_close(value, expected)
        assert_close(gradient, by_A)


# --- floor --------------------------------------------------------------------------------------


def test_positive_part_has_no_negative_eigenvalue(rng):
    vectors = scipy.stats.ortho_group.rvs(5, random_state=rng)
    eigenvalues = np.array([-2.0, -1e-3, 0.0, 1.0, 3.0])
    M = vectors * eigenvalues @ vectors.T
    expected = vectors * np.maximum(eigenvalues, 0.0) @ vectors.T
    batch = tf.constant(np.stack([M, -M, np.eye(5)]))
    with tf.GradientTape() as tape:
        tape.watch(batch)
        parts = linalg.positive_part(batch)
    assert_close(parts[0], expected)
    assert_close(parts[1], expected - M)
    assert_close(parts[2], np.eye(5))
    np.testing.assert_array_equal(tape.gradient(parts, batch), np.ones((3, 5, 5)))


@pytest.mark.parametrize("eigenvalues", [[0.5, 1.0, 3.0], [-2.0, 0.1, 3.0]])
def test_signed_root_of_positive_and_of_other_matrices(rng, eigenvalues):
    vectors = scipy.stats.ortho_group.rvs(3, size=2, random_state=rng)
    M = vectors * np.array(eigenvalues) @ np.swapaxes(vectors, -1, -2)
    root, signs = linalg.signed_root(tf.constant(M))
    scaled = root * signs[:, None, :]
    assert_close(tf.matmul(scaled, root, transpose_b=True), M)
    np.testing.assert_array_equal(np.sort(signs), np.sort(np.sign([eigenvalues] * 2)))


@DTYPES
def test_floor_raises_to_a_part_of_the_reference_and_logs_what_is_no_rounding(caplog, dtype):
    reference = np.array([1.0, 100.0, 1.0, 1.0], dtype=dtype)
    rounded = np.array([0.5, 1.0, 1e-9, -10 * np.finfo(dtype).eps], dtype=dtype)
    floored = linalg.floor(tf.constant(rounded), tf.constant(reference), relative=0.02, suspect="r")
    assert floored.dtype == dtype
    assert_close(floored, [0.5, 2.0, 0.02, 0.02], scale=np.array([0.5, 2.0, 0.02, 0.02]))
    assert warnings_of(caplog) == []
    negative = np.array([-0.1, 1.0, -0.2, 1.0], dtype=dtype)
    floored = linalg.floor(tf.constant(negative), tf.constant(reference), relative=0.0, suspect="r")
    np.testing.assert_array_equal(floored, [0.0, 1.0, 0.0, 1.0])
    (message,) = warnings_of(caplog)
    assert message.startswith("2 ")
    assert "of r " in message


@pytest.mark.parametrize("shape", [None, [None, 4, 4], [4, 4]])
def test_in_a_graph_a_factor_has_the_static_shape_of_its_matrix(shape):
    K = np.diag([1.0, 4.0, 9.0, 16.0])
    signature = [tf.TensorSpec(shape, tf.float64)]
    graph = tf.function(linalg.cholesky, input_signature=signature, autograph=False)
    assert graph.get_concrete_function().output_shapes == tf.TensorShape(shape)
    batch = K if shape == [4, 4] else np.stack([K, 4.0 * K])
    assert_close(graph(tf.constant(batch)), np.sqrt(batch))
