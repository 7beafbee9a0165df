"""Images [N, H, W, C] go wherever rows do, without a user reshaping them."""

from __future__ import annotations

import warnings

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import SharedIndependent, SquaredExponential

import gpflow_gvi as gvi
from gpflow_gvi._core import images
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.kernels import NNGP, FeatureMap
from gpflow_gvi.kernels.nngp import Conv2D, Dense, Flatten, ReLU
from gpflow_gvi.mean_functions import Inducing, Network
from gpflow_gvi.regulariser import pivots
from gpflow_gvi.regulariser.inducing_points import greedy_variance, kmeans, uniform
from gpflow_gvi.training.batches import as_batches
from tests import catalogue
from tests.tolerances import assert_close

N, H, W, C, J = 12, 6, 5, 2, 2
SHAPE = (H, W, C)


def cnn(K=keras, F: int = J, dtype: str = "float64"):
    return K.Sequential(
        [
            K.Input(SHAPE, dtype=dtype),
            K.layers.Conv2D(2, 3, activation="tanh", dtype=dtype),
            K.layers.Flatten(dtype=dtype),
            K.layers.Dense(F, dtype=dtype),
        ]
    )


def nngp():
    layers = [Conv2D(3, weight_variance=2.0, bias_variance=0.1), ReLU(), Flatten(), Dense()]
    return NNGP(layers, input_shape=SHAPE)


KERNELS = {
    "NNGP": nngp,
    "FeatureMap": lambda: FeatureMap(SquaredExponential(), cnn(F=3)),
    "sum": lambda: nngp() + SquaredExponential(lengthscales=np.full(H * W * C, 3.0)),
    "shared": lambda: SharedIndependent(nngp(), J),
}


SOME_KERNELS = pytest.mark.parametrize("kernel", ["FeatureMap", "shared"], indirect=True)


@pytest.fixture(params=KERNELS)
def kernel(request):
    keras.utils.set_random_seed(1)
    return KERNELS[request.param]()


@pytest.fixture(name="X")
def _images(rng):
    return rng.uniform(size=(N, *SHAPE))


@pytest.fixture(name="Y")
def _observations(rng):
    return rng.normal(size=(N, J))


def rows(X):
    return X.reshape(*X.shape[: X.ndim - 3], -1)


def model_of(X, kernel=None, mean=None, likelihood=None):
    kernel = nngp() if kernel is None else kernel
    mean = Network(cnn()) if mean is None else mean
    return gvi.models.PGVI(
        gvi.GaussianProcess(gpflow.functions.Zero(J), kernel),
        gvi.GaussianProcess(mean, gvi.covariances.CholeskySVGP(kernel, X[:3], num_latent_gps=J)),
        gpflow.likelihoods.Gaussian(0.1) if likelihood is None else likelihood,
        num_data=N,
    )


# Processes.


def test_a_process_takes_images_as_rows(kernel, X):
    process = gvi.GaussianProcess(gpflow.functions.Zero(J), kernel)
    assert_close(process.mean(X), np.zeros((N, J)))
    assert_close(process.variance(X), process.variance(rows(X)))
    assert_close(process.covariance(X), process.covariance(rows(X)))
    assert_close(process.covariance(X, X[:2]), process.covariance(X)[..., :2])


def test_images_are_distinguished_from_batches(X):
    process = gvi.GaussianProcess(gpflow.functions.Zero(), nngp())
    batches = X.reshape(3, 4, *SHAPE)
    for given in (batches, rows(batches)):
        mean, covariance = process.predict(given, full_cov=True)
        assert mean.shape == (3, 4, 1)
        assert_close(covariance[:, 0], [process.covariance(X_i)[0] for X_i in batches])
    assert process.predict(X, full_cov=True)[1].shape == (1, N, N)


@SOME_KERNELS
def test_conditioned_on_images(kernel, X, Y):
    prior = gvi.GaussianProcess(gpflow.functions.Zero(J), kernel)
    on_images = prior.condition(X[:4], Y[:4], 0.1).predict(X[4:])
    on_rows = prior.condition(rows(X[:4]), Y[:4], 0.1).predict(rows(X[4:]))
    for a, b in zip(on_images, on_rows, strict=True):
        assert_close(a, b)


def test_the_mean_may_be_the_one_that_knows_images(X):
    process = gvi.GaussianProcess(Network(cnn()), SquaredExponential(lengthscales=np.full(60, 2.0)))
    expected = process.mean_function.network.network(X)
    assert_close(process.mean(X), expected, precision=np.float32)  # as the network computes
    assert_close(process.covariance(X)[0], process.kernel(rows(X)))


def test_inducing_points_tell_images_by_their_columns(X):
    covariance = gvi.covariances.CholeskySVGP(SquaredExponential(), InducingPoints(rows(X[:3])))
    assert_close(covariance.output_covariance(X), covariance.output_covariance(rows(X)))


def test_a_batch_of_vectors_is_still_a_batch(rng):
    X = rng.normal(size=(3, 4, 2))
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    process = gvi.GaussianProcess(Network(network), SquaredExponential())
    assert process.predict(X)[0].shape == (3, 4, 1)


# The shape of an input.


def test_grey_images_may_lack_their_axis_of_channels(rng):
    X = rng.normal(size=(5, 4, 4))
    kernel = NNGP([Flatten(), Dense()], input_shape=(4, 4, 1))
    assert_close(images.as_rows(X, kernel), X.reshape(5, 16))
    assert_close(images.as_rows(X, NNGP([Dense()], input_shape=16)), X.reshape(5, 16))


@pytest.mark.parametrize("shape", [(C, H, W), (W, H, C), (H, W, C + 1), (H, W)])
def test_images_of_another_shape_are_refused(shape):
    X = np.zeros((3, *shape))
    with pytest.raises(ValueError, match=r"one input is of shape \(6, 5, 2\)"):
        gvi.GaussianProcess(gpflow.functions.Zero(), nngp()).predict(X)
    if shape != (H, W):
        with pytest.raises(ValueError, match="rows of shape"):
            Network(cnn())(X)


def test_where_no_part_knows_images_the_remedy_is_named(X):
    kernel = NNGP([Conv2D(3), Flatten()])
    with pytest.raises(ValueError, match=r"input_shape=\(H, W, C\)"):
        gvi.GaussianProcess(gpflow.functions.Zero(), kernel).covariance(X)


def test_a_kernel_of_some_columns_says_nothing_about_the_others():
    part = NNGP([Dense()], input_shape=2, active_dims=[0, 1])
    assert images.input_shape(part) is None
    assert images.input_shape(part + nngp()) == SHAPE
    inner = FeatureMap(NNGP([Dense()], input_shape=3), cnn(F=3))
    assert images.input_shape(inner) == SHAPE


@pytest.mark.parametrize("columns", [SHAPE, (H * W * C,)])
def test_pixels_that_were_not_scaled_give_a_warning(columns, rng):
    X = rng.integers(0, 256, size=(9, *columns)).astype("uint8")
    for pixels in (X, X.astype(float)):
        with pytest.warns(NumericsWarning, match="/ 255"):
            uniform(pixels, 3)
        with pytest.warns(NumericsWarning, match="data's X looks like images"):
            as_batches("data", (pixels, np.zeros(9)), batch_size=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        uniform(X / 255.0, 3)
        uniform(100.0 * rng.normal(size=(9, *columns)), 3)


# Selection and the regulariser.


@pytest.mark.parametrize("kernel", ["FeatureMap"], indirect=True)
@pytest.mark.parametrize("select", [greedy_variance, kmeans, uniform])
def test_chosen_points_have_the_shape_of_the_data(select, kernel, X):
    points, indices = select(X, 3, kernel=kernel)
    assert points.shape == (3, *SHAPE)
    assert_close(rows(points), select(rows(X), 3, kernel=kernel).points)
    if indices is not None:
        assert_close(points, X[indices])


def test_gpflows_own_kernels_choose_images(X):
    kernel = SquaredExponential(lengthscales=np.linspace(1.0, 3.0, H * W * C))
    expected = greedy_variance(rows(X), 4, kernel=kernel).indices
    np.testing.assert_array_equal(greedy_variance(X, 4, kernel=kernel).indices, expected)


def test_a_network_sees_a_part_of_the_images_at_a_time(X, monkeypatch):
    seen = []

    def network(images):
        seen.append(len(images))
        return tf.reduce_mean(images, axis=(1, 2))

    monkeypatch.setattr(pivots, "NETWORK_BATCH_SIZE", 5)
    chosen = greedy_variance(X, 4, kernel=FeatureMap(SquaredExponential(), network)).indices
    assert max(seen) == 5
    expected = greedy_variance(X.mean((1, 2)), 4, kernel=SquaredExponential()).indices
    np.testing.assert_array_equal(chosen, expected)


def test_the_regulariser_is_fitted_to_images(X, Y):
    evidence = gvi.evidence.InducingEvidence()
    options = {"evidence": evidence, "max_rounds": 1, "minimise": lambda loss, variables: None}
    of_images, of_rows = (
        gvi.fit_regulariser((data, Y), SquaredExponential(), 4, **options) for data in (X, rows(X))
    )
    assert of_images.inducing_points.shape == (4, H * W * C)
    assert_close(of_images.log_evidence, of_rows.log_evidence)
    assert_close(of_images.posterior.mean(X), of_images.posterior.mean(rows(X)))


# Models.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "mean"), [("FeatureMap", "network"), ("shared", "inducing")], indirect=["kernel"]
)
def test_a_model_takes_images_as_rows(kernel, mean, X, Y):
    inducing = None
    if mean == "inducing":
        inducing = Inducing.from_data(kernel, InducingPoints(rows(X[:3])), (X, Y), 0.1)
    model = model_of(X, kernel, inducing)
    assert_close(model.training_loss((X, Y)), model.training_loss((rows(X), Y)))
    expected = model.predict_f(rows(X))
    for predict in (
        model.predict_f,
        model.posterior().predict_f,
        model.posterior().fused_predict_f,
    ):
        for a, b in zip(predict(X), expected, strict=True):
            assert_close(a, b)
    assert_close(model.predict_y(X)[1], expected[1] + 0.1)
    log_density = model.predict_log_density((rows(X), Y))
    assert_close(model.predict_log_density((X, Y)), log_density)
    assert model.predict_f_samples(X, 3).shape == (3, N, J)
    assert model.predict_f_samples(X, 3, full_cov=False).shape == (3, N, J)
    assert_close(gvi.temper(model, (X, Y)).predict_f(X)[0], expected[0])


@pytest.mark.parametrize("name", catalogue.covariances_in_turn())
def test_every_covariance_takes_images(name, X):
    covariance = catalogue.COVARIANCES[name](nngp(), X[:3])
    assert_close(covariance(X), covariance(rows(X)))
    assert_close(covariance(X, full_cov=False), covariance(rows(X), full_cov=False))


@pytest.mark.slow
def test_trains_from_arrays_of_images_and_pipelines_of_rows_alike(X, Y):
    losses = []
    start = model_of(X, SquaredExponential(lengthscales=2.0))
    for data in ((X, Y), tf.data.Dataset.from_tensor_slices((rows(X), Y)).batch(4)):
        model = gpflow.utilities.deepcopy(start)
        model.compile(keras.optimizers.Adam(0.01))
        history = model.fit(data, epochs=2, batch_size=4, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    assert losses[0][1] < losses[0][0]
    assert_close(*losses)


def test_float32(X, Y):
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        images, Y = X.astype("float32"), Y.astype("float32")
        model = model_of(images, mean=Network(cnn(dtype="float32")))
        assert np.isfinite(model.training_loss((images, Y)))
        mean, variance = model.predict_f(images)
        assert mean.dtype == variance.dtype == tf.float32
        assert np.all(np.isfinite(mean))
        assert np.all(variance.numpy() > 0.0)
        covariance = model.regulariser.covariance(images)[0]
    assert_close(covariance, nngp()(X))
