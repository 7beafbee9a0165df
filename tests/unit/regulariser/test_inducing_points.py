"""The choice of inducing points: against the definition, on awkward data, from a user's view."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import scipy.spatial
import tensorflow as tf

from gpflow_gvi import covariances
from gpflow_gvi.kernels.feature_map import FeatureMap
from gpflow_gvi.regulariser import inducing_points as inducing_points_module
from gpflow_gvi.regulariser import pivots
from gpflow_gvi.regulariser.inducing_points import greedy_variance, kmeans, uniform
from tests.catalogue import inducing_points
from tests.tolerances import ROUNDING, assert_close, assert_estimates

Array = np.ndarray


@contextlib.contextmanager
def told(words):
    """What is logged inside must have a message like this."""
    records = []
    handler = logging.Handler(logging.INFO)
    handler.emit = records.append
    logger = logging.getLogger("gpflow_gvi")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    messages = [record.getMessage() for record in records]
    assert any(re.search(words, message) for message in messages), messages


SE = gpflow.kernels.SquaredExponential
SELECTIONS = {"greedy_variance": greedy_variance, "kmeans": kmeans, "uniform": uniform}


@pytest.fixture(params=SELECTIONS)
def select(request) -> inducing_points.Select:
    return SELECTIONS[request.param]


def conditional_variance(K: Array, chosen: list[int]) -> Array:
    """Σ_j diag( K_j - K_jXZ K_jZZ⁺ K_jZX ), by dense linear algebra: [N]."""
    total = np.zeros(K.shape[-1])
    for k in K:
        to_Z = k[:, chosen]
        inverse = np.linalg.pinv(k[np.ix_(chosen, chosen)], rcond=1e-12, hermitian=True)
        total += np.diag(k) - np.sum((to_Z @ inverse) * to_Z, axis=1)
    return total


def assert_greedy(K: Array, chosen: Array, precision: type = np.float64) -> None:
    """Assert that of each point, when it was chosen, no other had more variance; K is [J, N, N]."""
    assert len(set(chosen)) == len(chosen)
    rounding = ROUNDING.of(precision) * conditional_variance(K, []).max()
    for m, index in enumerate(chosen):
        variance = conditional_variance(K, list(chosen[:m]))
        variance[chosen[:m]] = -np.inf
        assert variance[index] >= variance.max() - rounding, f"point {m}"


_shared = SE()


def se(lengthscales: float = 1.0) -> SE:
    """A kernel that all tests share."""
    _shared.lengthscales.assign(lengthscales)
    return _shared


KERNELS: dict[str, Callable[[], gpflow.kernels.Kernel]] = {
    "SquaredExponential": lambda: SE(variance=1.7, lengthscales=[0.9, 1.4, 0.7]),
    "active_dims": lambda: gpflow.kernels.Matern32(active_dims=[2, 0], lengthscales=0.5),
    "not stationary": lambda: gpflow.kernels.ArcCosine(order=1, weight_variances=1.3),
    "sum": lambda: SE(lengthscales=0.8) + gpflow.kernels.Linear(variance=0.3),
    "product": lambda: gpflow.kernels.Matern12() * gpflow.kernels.Linear(active_dims=[1]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_greedy_variance_is_the_greedy_choice(name, rng):
    X, kernel = rng.normal(size=(100, 3)), KERNELS[name]()
    points, indices = greedy_variance(X, 30, kernel=kernel)
    np.testing.assert_array_equal(points, X[indices])
    assert len(indices) == 30
    assert_greedy(kernel(X).numpy()[None], indices)


@pytest.mark.parametrize("size", [1, 3])
def test_it_is_the_greedy_choice_with_other_block_sizes(size, rng, monkeypatch):
    monkeypatch.setattr(pivots, "MAX_BLOCK", size)
    monkeypatch.setattr(pivots, "FEW_ROWS", 20)
    X, kernel = rng.normal(size=(200, 2)), SE(lengthscales=0.3)
    indices = greedy_variance(X, 30, kernel=kernel).indices
    assert len(indices) == 30
    assert_greedy(kernel(X).numpy()[None], indices)


def separate(*kernels: gpflow.kernels.Kernel) -> gpflow.kernels.SeparateIndependent:
    return gpflow.kernels.SeparateIndependent(kernels)


def test_several_outputs_add_their_variances(rng):
    X = rng.normal(size=(120, 2))
    parts = [SE(lengthscales=0.5), gpflow.kernels.ArcCosine(variance=0.4), SE(variance=3.0)]
    shared = gpflow.kernels.Linear(variance=0.2)
    K = np.stack([part(X) + shared(X) for part in parts])
    assert_greedy(K, greedy_variance(X, 25, kernel=separate(*parts) + shared).indices)


class Rising(SE):
    """x_0 x'_0 k(x, x'), of which there is nothing where x_0 = 0."""

    def K(self, X, X2=None):
        other = X if X2 is None else X2
        return X[:, :1] * tf.transpose(other[:, :1]) * super().K(X, X2)

    def K_diag(self, X):
        return X[:, 0] ** 2 * super().K_diag(X)


def test_an_output_of_which_nothing_is_left_does_not_disturb_the_others(rng):
    X = rng.normal(size=(100, 2))
    X[::2, 0] = 0.0
    # The first is spent after two points, the second is zero at every other row.
    parts = [gpflow.kernels.Linear(variance=50.0), Rising(lengthscales=0.2), SE(lengthscales=0.3)]
    K = np.stack([part(X) for part in parts])
    assert_greedy(K, greedy_variance(X, 40, kernel=separate(*parts)).indices)


def test_correlated_outputs_are_conditioned_each_on_itself(rng):
    X, W = rng.normal(size=(60, 2)), rng.normal(size=(3, 2))
    latent = [SE(lengthscales=0.5), gpflow.kernels.Matern12(variance=2.0)]
    K = np.einsum("jl,lmn->jmn", W**2, np.stack([part(X) for part in latent]))
    kernel = gpflow.kernels.LinearCoregionalization(latent, W)
    assert_greedy(K, greedy_variance(X, 15, kernel=kernel).indices)


def test_a_shared_kernel_chooses_as_the_kernel_itself(rng):
    X = rng.normal(size=(50, 2))
    shared = gpflow.kernels.SharedIndependent(SE(), output_dim=4)
    alone = greedy_variance(X, 10, kernel=se()).indices
    np.testing.assert_array_equal(greedy_variance(X, 10, kernel=shared).indices, alone)


def test_a_variational_covariance_is_a_kernel_too(rng):
    X, Z = rng.normal(size=(60, 2)), rng.normal(size=(5, 2))
    r = covariances.CholeskySVGP(SE(), inducing_points(Z))
    assert_greedy(r(X).numpy().reshape(1, 60, 60), greedy_variance(X, 12, kernel=r).indices)


def test_a_feature_map_runs_its_network_once(rng):
    X, runs = rng.normal(size=(200, 2)), []

    def sines(x: Array) -> Array:
        runs.append(len(x))
        return np.sin(3.0 * x)

    def network(X: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(sines, [X], X.dtype), X.shape)

    kernel = FeatureMap(SE(lengthscales=0.4), network)
    indices = greedy_variance(X, 30, kernel=kernel).indices
    assert runs == [200]
    assert_greedy(SE(lengthscales=0.4)(np.sin(3.0 * X)).numpy()[None], indices)


def test_fewer_points_are_the_first_of_more(rng):
    X, kernel = rng.normal(size=(300, 2)), se(0.4)
    most = greedy_variance(X, 90, kernel=kernel).indices
    for M in (1, 2, 17, 64, 65):
        chosen = greedy_variance(X, M, kernel=kernel).indices
        np.testing.assert_array_equal(chosen, most[:M])


def test_the_seed_decides_ties_and_nothing_else(rng):
    X, not_stationary = rng.normal(size=(40, 2)), gpflow.kernels.Linear() + SE(variance=0.1)
    firsts = [greedy_variance(X, 1, kernel=se(), seed=seed).indices[0] for seed in range(8)]
    assert len(set(firsts)) > 4
    # All variances are equal at the start, whatever the lengthscale.
    again = [greedy_variance(X, 1, kernel=se(2.0), seed=seed).indices[0] for seed in range(8)]
    assert firsts == again
    chosen = {tuple(greedy_variance(X, 9, kernel=not_stationary, seed=s).indices) for s in range(3)}
    assert len(chosen) == 1


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_equal_rows_are_chosen_once(select, offset, rng):
    distinct = offset + rng.integers(-3, 4, size=(12, 2)) + 10.0 * np.arange(12)[:, None]
    X = rng.permutation(np.repeat(distinct, 7, axis=0))
    with told("12 inducing points were chosen, not num_points=30"):
        points, indices = select(X, 30, kernel=se(20.0))
    np.testing.assert_array_equal(np.unique(points, axis=0), np.unique(distinct, axis=0))
    assert indices is None or len(np.unique(indices)) == 12


def test_zero_and_minus_zero_are_equal_rows(select):
    with told("1 inducing points"):
        points, _ = select(np.array([[0.0], [-0.0]]), 2, kernel=se())
    assert points.shape == (1, 1)


def test_white_noise_is_explained_by_no_other_row(rng):
    kernel = gpflow.kernels.White()
    indices = greedy_variance(rng.normal(size=(50, 2)), 30, kernel=kernel).indices
    assert len(set(indices)) == 30


@pytest.mark.parametrize("tolerance", [1e-8, 0.0])
def test_a_kernel_of_low_rank_is_used_up_early(tolerance, rng):
    X, low_rank = rng.normal(size=(100, 4)), gpflow.kernels.Linear(active_dims=[0, 1, 3])
    with told(f"3 .* num_points=20: .* tolerance={tolerance:g} .*"):
        indices = greedy_variance(X, 20, kernel=low_rank, tolerance=tolerance).indices
    assert len(set(indices)) == 3


@pytest.mark.parametrize("tolerance", [0.5, 0.1, 1e-2, 1e-4])
def test_it_stops_as_soon_as_the_tolerance_is_met(tolerance, rng):
    X, kernel = rng.normal(size=(150, 2)), se(0.8)
    K = kernel(X).numpy()[None]
    with told(f"tolerance={tolerance:g}"):
        chosen = list(greedy_variance(X, 140, kernel=kernel, tolerance=tolerance).indices)
    left = [conditional_variance(K, chosen[:m]).sum() / 150 for m in (len(chosen) - 1, len(chosen))]
    assert left[0] > tolerance >= left[1]


def test_without_tolerance_it_stops_where_rounding_begins(rng):
    X, kernel = rng.uniform(size=(200, 1)), se()
    with told("rounding"):
        chosen = greedy_variance(X, 200, kernel=kernel, tolerance=0.0).indices
    assert 8 < len(set(chosen)) == len(chosen) < 40


class OnImages(gpflow.kernels.Kernel):
    """The squared exponential of all pixels; GPflow's own call takes no inputs of rank 4."""

    def _flat(self, X):
        return None if X is None else tf.reshape(X, [tf.shape(X)[0], 24])

    def __call__(self, X, X2=None, *, full_cov=True, presliced=False):
        return se(4.0)(self._flat(X), self._flat(X2), full_cov=full_cov)

    def K(self, X, X2=None):
        return self(X, X2)

    def K_diag(self, X):
        return self(X, full_cov=False)


def test_images_are_rows(select, rng):
    X = rng.normal(size=(70, 3, 4, 2))
    points, indices = select(X, 9, kernel=OnImages())
    flat = select(X.reshape(70, 24), 9, kernel=se(4.0))
    np.testing.assert_array_equal(points, flat.points.reshape(9, 3, 4, 2))
    np.testing.assert_array_equal(indices, flat.indices)


def test_float32(select, rng):
    X = rng.normal(size=(100, 3))
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        points, indices = select(X.astype(np.float32), 20, kernel=SE(lengthscales=0.8))
    assert points.dtype == np.float32
    assert len(points) == 20
    if select is greedy_variance:
        assert_greedy(se(0.8)(X).numpy()[None], indices, np.float32)


@pytest.mark.parametrize("form", [tf.constant, tf.Variable, lambda X: gpflow.Parameter(X)])
def test_tensors_are_data(select, form, rng):
    X = rng.normal(size=(20, 2))
    expected = select(X, 5, kernel=se())
    points, indices = select(form(X), 5, kernel=se())
    np.testing.assert_array_equal(points, expected.points)
    np.testing.assert_array_equal(indices, expected.indices)
    assert isinstance(points, np.ndarray)


@pytest.mark.parametrize("M", [4, 6])
def test_all_rows(select, M, rng):
    X = rng.normal(size=(4, 2))
    if M > 4:
        with told("4 inducing points were chosen, not num_points=6"):
            points = select(X, M, kernel=se()).points
    else:
        points = select(X, M, kernel=se()).points
    np.testing.assert_array_equal(np.unique(points, axis=0), np.unique(X, axis=0))


@pytest.mark.parametrize("num_points", [0, 2.5])
def test_num_points_must_be_a_count(select, num_points):
    with pytest.raises(ValueError, match=f"num_points is {num_points!r}; .* at least 1"):
        select(np.eye(3), num_points, kernel=se())


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.array([[0.0], [np.nan], [1.0]]), ValueError, r"X has NaN .* \(the first is row 1\)"),
        (np.array([[0.0], [np.inf]]), ValueError, "X has NaN or infinite"),
        (np.zeros((0, 2)), ValueError, "no data points"),
        (np.zeros(5), ValueError, r"X has shape \(5,\)"),
        (np.zeros((5, 1), complex), TypeError, "X has dtype complex128"),
    ],
)
def test_bad_data(select, X, error, message):
    with pytest.raises(error, match=message):
        select(X, 2, kernel=se())


@pytest.mark.parametrize("tolerance", [-1e-3, 1.0, np.nan])
def test_bad_tolerance(tolerance):
    with pytest.raises(ValueError, match=f"tolerance is {tolerance}; .* less than 1"):
        greedy_variance(np.eye(3), 2, kernel=se(), tolerance=tolerance)


def test_bad_kernels():
    with pytest.raises(TypeError, match="kernel is None; it must be"):
        greedy_variance(np.eye(3), 2, kernel=None)
    with pytest.raises(ValueError, match="kernel Linear has variance 0 at every row"):
        greedy_variance(np.zeros((1, 2)), 1, kernel=gpflow.kernels.Linear())


class NaNOffDiagonal(SE):
    def K(self, X, X2=None):
        return super().K(X, X2) * np.nan


class NaNOnDiagonal(SE):
    def K_diag(self, X):
        return super().K_diag(X) * np.nan


@pytest.mark.parametrize("kind", [NaNOnDiagonal, NaNOffDiagonal])
def test_a_kernel_of_nan_is_named(kind):
    kernel = kind()
    with pytest.raises(ValueError, match=r"kernel \w+ has NaN or infinite values on X"):
        greedy_variance(np.eye(3), 2, kernel=kernel)


class Watched(SE):
    """A squared exponential that notes the sizes of its matrices."""

    def __init__(self, **options):
        super().__init__(**options)
        self.sizes = []

    def K(self, X, X2=None):
        K = super().K(X, X2)
        self.sizes.append(K.numpy().size)
        return K


def test_the_kernel_is_evaluated_row_by_row(rng):
    N, M = 1000, 20
    kernel = Watched(lengthscales=0.5)
    greedy_variance(rng.normal(size=(N, 2)), M, kernel=kernel)
    assert max(kernel.sizes) <= M * N
    assert sum(kernel.sizes) <= 2.2 * M * N


@pytest.mark.parametrize("many_rows", [100, 10_000])
def test_kmeans_finds_clusters(many_rows, rng, monkeypatch):
    monkeypatch.setattr(inducing_points_module, "MAX_ROWS_OF_KMEANS", many_rows)
    true = 10.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    X = rng.permutation(np.concatenate([c + 0.3 * rng.normal(size=(150, 2)) for c in true]))
    points, indices = kmeans(X, 4)
    assert indices is None
    nearest = scipy.spatial.distance.cdist(points, true).argmin(axis=1)
    assert sorted(nearest) == [0, 1, 2, 3]
    assert_estimates(points, true[nearest], 0.3 / np.sqrt(min(many_rows, 600) / 4))


def test_one_cluster_is_the_mean(rng):
    X = rng.normal(size=(50, 2, 3))
    assert_close(kmeans(X, 1).points, X.mean(axis=0)[None])


def test_kmeans_counts_equal_rows_once(rng):
    X = rng.normal(size=(9, 2))
    points = kmeans(np.concatenate([X, np.repeat(X[:1], 500, axis=0)]), 1).points
    assert_close(points, X.mean(axis=0)[None])


def test_seeds(select, rng):
    X = rng.normal(size=(300, 2))
    first, again, other = (select(X, 20, kernel=se(), seed=seed).points for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_uniform_chooses_all_rows_as_often():
    X, runs = np.arange(6.0)[:, None], 600
    chosen = np.concatenate([uniform(X, 3, seed=seed).indices for seed in range(runs)])
    counts = np.bincount(chosen, minlength=6)
    assert counts.sum() == 3 * runs
    assert_estimates(counts, runs / 2, np.sqrt(runs / 4))  # each row is in with probability ½
