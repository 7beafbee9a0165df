"""The fidelity, against matrix square roots, the nuclear norm and finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.spatial
import tensorflow as tf

from gpflow_gvi.divergences.wasserstein.fidelity import fidelity
from tests import references
from tests.matrices import covariance, gradients, slope
from tests.tolerances import ITERATIVE, ROUNDING, assert_close

Array = np.ndarray
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])


def roots(rng: np.random.Generator) -> dict[str, tuple[Array, Array]]:
    """Factors A and B of K = A Aᵀ and R = B Bᵀ of five variables, by how K and R relate."""
    A, B = rng.normal(size=(5, 10)) / 3.0, rng.normal(size=(5, 10)) / 6.0
    zero, narrow, wider = np.zeros((5, 1)), rng.normal(size=(5, 2)), rng.normal(size=(5, 3))
    return {
        "regular": (A, B),
        "equal": (A, A),
        "multiples of the identity": (2.0 * np.eye(5), 0.5 * np.eye(5)),
        "K of low rank": (narrow, B),
        "R of low rank": (A, narrow),
        "both of low rank": (narrow, wider),
        "orthogonal": (np.diag([1.0, 2.0, 0.0, 0.0, 0.0]), np.diag([0.0, 0.0, 2.0, 1.0, 0.0])),
        "K zero": (zero, B),
        "R zero": (A, zero),
        "repeated points": (A[[0, 0, 1, 2, 2]], B),
    }


KINDS = list(roots(np.random.default_rng()))
REGULAR = ["regular", "equal", "multiples of the identity"]


def pair(rng: np.random.Generator, kind: str, dtype: type = np.float64) -> tuple[Array, Array]:
    A, B = roots(rng)[kind]
    return (A @ A.T).astype(dtype), (B @ B.T).astype(dtype)


@DTYPES
@pytest.mark.parametrize("kind", REGULAR)
def test_fidelity_against_matrix_square_roots(rng, kind, dtype):
    K, R = pair(rng, kind, dtype)
    value = fidelity(tf.constant(K), tf.constant(R))
    assert value.dtype == dtype
    assert_close(value, references.fidelity(K, R))


@DTYPES
def test_fidelity_of_a_batch_is_that_of_each(rng, dtype):
    pairs = [pair(rng, kind, dtype) for kind in REGULAR]
    K, R = (tf.constant(np.stack(matrices)) for matrices in zip(*pairs, strict=True))
    expected = [references.fidelity(*matrices) for matrices in pairs]
    assert_close(fidelity(K, R), expected)


@DTYPES
@pytest.mark.parametrize("kind", KINDS)
def test_fidelity_against_the_nuclear_norm(rng, kind, dtype):
    """F = ‖Aᵀ B‖_* (Uhlmann's theorem), which needs no root of a singular matrix.

    With ε·I added to K, F grows by up to √ε tr R^½: no more than the root of the rounding is left
    of the accuracy where a matrix is singular.
    """
    A, B = roots(rng)[kind]
    value = fidelity(*(tf.constant(root @ root.T, dtype=dtype) for root in (A, B)))
    nuclear = [np.linalg.norm(root, "nuc") for root in (A, B)]  # tr K^½, tr R^½
    deviations = [np.sqrt(np.mean(np.sum(root**2, axis=1))) for root in (A, B)]
    scale = max(1.0, deviations[0] * nuclear[1] + deviations[1] * nuclear[0])
    tolerance = ROUNDING if kind in REGULAR else ITERATIVE
    assert_close(value, np.linalg.norm(A.T @ B, "nuc"), tolerance, scale=scale)


@DTYPES
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_fidelity_is_finite(rng, kind, dtype):
    for gradient in gradients(fidelity, *pair(rng, kind, dtype)):
        assert gradient.dtype == dtype
        assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("rank", [1, 5])
def test_gradient_of_fidelity_where_eigenvalues_are_lost_in_rounding(rng, rank):
    """∂F/∂K = ½ K^(-½) for R = I, where no eigenvalue counts as smaller than N ε λ_max.

    This is what rounding may make of one that is zero.
    """
    N = 200
    K = covariance(rng, N, rank=rank)
    smallest = N * np.finfo(np.float64).eps * np.linalg.eigvalsh(K)[-1]
    gradient, _ = gradients(fidelity, K, np.eye(N))
    assert np.abs(np.linalg.eigvalsh(gradient)).max() < 0.5 / np.sqrt(smallest)


@pytest.mark.parametrize("kind", REGULAR)
@pytest.mark.parametrize("argument", [0, 1], ids=["K", "R"])
def test_gradient_of_fidelity_against_finite_differences(rng, kind, argument):
    matrices = list(pair(rng, kind))
    ours = gradients(fidelity, *matrices)[argument]
    assert_close(ours, ours.T)

    def of_one(matrix: Array) -> float:
        return references.fidelity(*((matrix, matrices[1]), (matrices[0], matrix))[argument])

    for E in (covariance(rng, 5), covariance(rng, 5, rank=1)):
        numerical = slope(of_one, matrices[argument], E)
        assert_close(np.sum(ours * E), numerical, ITERATIVE)


def test_fidelity_of_commuting_matrices_is_the_sum_of_the_roots_of_products(rng):
    orthogonal, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    k, r = rng.uniform(0.1, 2.0, size=(2, 6))  # in no common order
    K, R = (tf.constant((orthogonal * spectrum) @ orthogonal.T) for spectrum in (k, r))
    assert_close(fidelity(K, R), np.sum(np.sqrt(k * r)))


def test_fidelity_is_symmetric_homogeneous_and_batched(rng):
    K, R = (tf.constant(covariance(rng, 2, 3, 4)) for _ in range(2))
    value = fidelity(K, R).numpy()
    assert value.shape == (2, 3)
    for i, j in itertools.product(range(2), range(3)):
        assert_close(value[i, j], references.fidelity(K[i, j], R[i, j]))
    assert_close(fidelity(R, K), value)
    assert_close(fidelity(3.0 * K, 0.2 * R), np.sqrt(0.6) * value)
    # Each member has its own weight: the gradient of a batch is that of its members.
    weights = rng.normal(size=(2, 3))
    batched = gradients(lambda K, R: tf.reduce_sum(weights * fidelity(K, R)), K, R)
    single = gradients(fidelity, K[1, 2], R[1, 2])
    for ours, theirs in zip(batched, single, strict=True):
        assert_close(ours[1, 2], weights[1, 2] * theirs)


def stationary(kind: str, X: Array, lengthscale: float) -> Array:
    r = scipy.spatial.distance.cdist(X, X) / lengthscale
    return np.exp(-0.5 * r**2) if kind == "smooth" else np.exp(-r)


@pytest.mark.parametrize(
    ("kind_p", "kind_q", "lengthscale"), [("smooth", "rough", 0.3), ("smooth", "smooth", 1.2)]
)
def test_fidelity_of_many_points_in_single_precision(rng, kind_p, kind_q, lengthscale):
    """What is left of W₂² and of the gradients, where both matrices are singular in float32.

    F is homogeneous: <∂F/∂K, K> = <∂F/∂R, R> = F / 2.
    """
    X = rng.normal(size=(300, 2))
    K, R = stationary(kind_p, X, 1.5), stationary(kind_q, X, lengthscale)
    roots = [vectors * np.sqrt(np.maximum(w, 0.0)) for w, vectors in map(np.linalg.eigh, (K, R))]
    exact = np.linalg.norm(roots[0].T @ roots[1], "nuc")
    single = (K.astype(np.float32), R.astype(np.float32))
    value = float(fidelity(*map(tf.constant, single)))
    assert_close(600.0 - 2.0 * value, 600.0 - 2.0 * exact, ITERATIVE, precision=np.float32)
    for gradient, matrix in zip(gradients(fidelity, *single), (K, R), strict=True):
        along = np.sum(gradient * matrix)
        assert_close(along, 0.5 * exact, ITERATIVE, precision=np.float32)


@DTYPES
def test_gradient_of_fidelity_at_repeated_eigenvalues(dtype):
    """Of K = I and R = 4 I in blocks of 3: ∂F/∂R = ½ R^(-½) and ∂F/∂K = ½ R^½ there."""
    R = np.diag([4.0] * 3 + [1.0] * 3 + [4.0] * 2).astype(dtype)
    d_K, d_R = gradients(fidelity, np.eye(8, dtype=dtype), R)
    assert_close(d_K, 0.5 * np.sqrt(R))
    assert_close(d_R, 0.5 * np.diag(np.diag(R) ** -0.5))


@pytest.mark.parametrize("argument", [0, 1], ids=["K", "R"])
@pytest.mark.parametrize("compiled", [False, True])
def test_fidelity_says_that_it_has_no_second_derivatives(rng, argument, compiled):
    matrices = [tf.constant(matrix) for matrix in pair(rng, "regular")]

    def second() -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(matrices[argument])
            with tf.GradientTape() as inner:
                inner.watch(matrices[argument])
                value = fidelity(*matrices)
            first = inner.gradient(value, matrices[argument])
        return outer.gradient(first, matrices[argument])

    with pytest.raises(NotImplementedError, match="first derivatives alone"):
        (tf.function(second) if compiled else second)()
