"""Q by the names of its parts, in one call."""

from __future__ import annotations

from types import SimpleNamespace

import gpflow
import keras
import numpy as np
import pytest
import sklearn.base
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi import covariances as r
from gpflow_gvi.learning.procedure import Procedure
from gpflow_gvi.learning.q_training import BatchTraining, CosineAdam, Hooks, Passes
from gpflow_gvi.learning.rows.split import Split
from gpflow_gvi.learning.settings import Settings, VariationalSettings
from gpflow_gvi.learning.start import InducingPlusNetwork, going_on_from, inducing_covariance
from gpflow_gvi.learning.variational import NetworkMean
from tests.tolerances import ITERATIVE, assert_close

DIVERGENCE = gvi.divergences.ProjectedBhattacharyya


def _rows():
    rng = np.random.default_rng(5)
    X = rng.uniform(-2.0, 2.0, size=(80, 1))
    return X, np.sin(3.0 * X) + 0.2 * rng.normal(size=X.shape)


def _learned(**options):
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    return gvi.learn(_rows(), kernel=kernel, num_inducing=10, epochs=1, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "constructor"),
    [("diagonal", r.DiagonalSVGP.from_data), ("sparse_posterior", r.SparsePosterior)],
)
def test_a_covariance_is_built_as_its_class_is(name, constructor):
    learned = _learned(covariance=name, mean="inducing")
    of_class = _learned(covariance=constructor, mean="inducing")
    new = np.linspace(-2.0, 2.0, 9)[:, None]
    for ours, theirs in zip(learned.predict_y(new), of_class.predict_y(new), strict=True):
        assert_close(ours, theirs, ITERATIVE)


def _network():
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    layers = [keras.Input((1,)), dense(20, "tanh"), dense(20, "tanh"), dense(1)]
    return keras.Sequential(layers)


@pytest.mark.slow
def test_a_network_alone_starts_where_the_sparse_posterior_is():
    learned = _learned(mean=_network(), covariance="diagonal", divergence=DIVERGENCE())
    assert isinstance(learned.model.variational.mean_function, gvi.mean_functions.Network)
    new = np.linspace(-1.8, 1.8, 50)[:, None]
    truth = np.sin(3.0 * new)
    of_network = learned.predict_f(new)[0] - truth
    of_process = learned.regulariser.posterior.mean(learned.inputs.standard(new))
    of_process = learned.outputs.original(of_process) - truth
    rmse = [np.sqrt(np.mean(np.square(each))) for each in (of_network, of_process)]
    assert rmse[0] < rmse[1] + 0.1  # half the noise


class _Judged(Hooks):
    """The model that has not seen the rows for validation."""

    def before_refit(self, learned):
        self.model = learned.model


@pytest.mark.slow
@pytest.mark.parametrize("constructor", [NetworkMean, InducingPlusNetwork])
@pytest.mark.filterwarnings("ignore:rows that were left out are predicted worse")
def test_a_network_that_was_judged_is_what_is_delivered(constructor, rng):
    """With all rows it goes on from there; another training ends at another function.

    The factor of tempering is that of the judged variances, which stay.
    """
    X = rng.uniform(-2.0, 2.0, size=(80, 2))
    Y = np.sin(3.0 * X[:, :1]) + 0.2 * rng.normal(size=(80, 1))

    def learned(seed, **options):
        keras.utils.set_random_seed(seed)
        layers = [keras.Input((2,)), keras.layers.Dense(50, "tanh"), keras.layers.Dense(1)]
        of_q = VariationalSettings(constructor(keras.Sequential(layers)), inducing_covariance)
        training = BatchTraining(Passes(100), CosineAdam(), None)  # none of it is left out
        settings = Settings(variational=of_q, training=training, **options)
        return Procedure(Split.of((X, Y), settings), settings, hooks).run()

    hooks = _Judged()
    delivered = learned(0)
    assert int(delivered.model.num_data) == 80
    judged, new = hooks.model, rng.uniform(-3.0, 3.0, size=(500, 2))
    other = learned(1, refit=False).model
    means = [
        getattr(each.variational.mean_function, "add_2", each.variational.mean_function)(new)
        for each in (judged, delivered.model, other)
    ]
    moved, apart = (np.sqrt(np.mean(np.square(each - means[0]))) for each in means[1:])
    assert 0.0 < moved < 0.5 * apart
    assert_close(delivered.model.predict_y(new)[1], judged.predict_y(new)[1], ITERATIVE)
    trains = [
        {each.name for each in model.trainable_variables} for model in (judged, delivered.model)
    ]
    assert trains[0] == trains[1]


def test_a_mean_of_another_form_is_made_and_trained_anew():
    m, k = gpflow.functions.Constant(3.0), gpflow.kernels.SquaredExponential()
    for mean in (m, m + gvi.mean_functions.Network(_network())):
        assert going_on_from(gvi.GaussianProcess(mean, k)) is None


def test_a_covariance_without_inducing_points_goes_on_as_it_is():
    kernel = gpflow.kernels.SquaredExponential(2.0, [0.5, 3.0])
    Q = gvi.GaussianProcess(gvi.mean_functions.Network(_network()), kernel)
    _, covariance = going_on_from(Q)
    P = gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.Matern52())
    again, X = covariance(SimpleNamespace(prior=P, Z=object())), np.eye(3, 2)
    assert again is not kernel
    assert [key for key, value in vars(kernel).items() if value is None] == [
        key for key, value in vars(again).items() if value is None
    ]
    assert_close(again(X), kernel(X))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prior", "posterior"])
def test_q_is_held_to_the_prior_or_to_the_posterior(name):
    learned = _learned(regulariser=name)
    X = learned.inputs.standard(np.linspace(-1.0, 1.0, 5)[:, None])
    expected = getattr(learned.regulariser, name).predict(X)
    for ours, theirs in zip(learned.model.regulariser.predict(X), expected, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mean": "mode"}, ValueError, "mean"),
        ({"covariance": "full"}, ValueError, "covariance"),
        ({"divergence": "kl"}, ValueError, "divergence is 'kl'; .*'projected_kl'"),
        ({"loss": "squares"}, ValueError, "loss is 'squares'; .*'robust', 'log_loss'"),
        ({"regulariser": "both"}, ValueError, "regulariser"),
        ({"mean": "inducing", "network": np.sin}, ValueError, "mean= is given"),
        (
            {"covariance": "diagonal", "divergence": gvi.divergences.InducingKL()},
            ValueError,
            "is not for divergence=InducingKL",
        ),
    ],
)
def test_what_cannot_be_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        _learned(**options)


# --- the objective by the names of experiments ----------------------------------------------------


def test_objectives_by_name_are_those_of_their_classes():
    options = {"mean": "inducing", "validation_fraction": 0.0}
    by_name = _learned(
        divergence="projected_kl", loss="gamma_loss", divergence_weight="1/N", **options
    )
    by_class = _learned(
        divergence=gvi.divergences.ProjectedKL(),
        loss=gvi.losses.GammaLoss(),
        divergence_weight=1.0 / 80.0,
        **options,
    )
    assert by_name.model.divergence_weight == 1.0 / 80.0
    new = np.linspace(-2.0, 2.0, 9)[:, None]
    for ours, theirs in zip(by_name.predict_y(new), by_class.predict_y(new), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_covariance_of_p_as_it_is():
    learned = _learned(covariance="regulariser", mean="regulariser", divergence_weight=1.0)
    P, Q = learned.model.regulariser, learned.model.variational
    X = np.linspace(-1.0, 1.0, 5)[:, None]
    assert_close(Q.mean(X), P.mean(X))
    assert_close(Q.variance(X), learned.model.variational.kernel.factor * P.variance(X))


# --- labels and images ----------------------------------------------------------------------------

PIXELS = 6


def _images(number, seed):
    """Images of a horizontal, a vertical or a diagonal line, and which it is."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, number)
    X = 0.2 * rng.normal(size=(number, PIXELS, PIXELS, 1))
    for image, label, place in zip(X, y, rng.integers(1, PIXELS - 1, number), strict=True):
        line = (slice(None), place) if label else (place, slice(None))
        image[np.diag_indices(PIXELS) if label == 2 else line] += 1.0
    return X, y


def _convolutions(units):
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((PIXELS, PIXELS, 1)),
        keras.layers.Conv2D(6, 3, activation="relu"),
        keras.layers.GlobalMaxPooling2D(),
        keras.layers.Dense(units),
    ]
    return keras.Sequential(layers)


def _nngp():
    layers = gvi.kernels.nngp
    return gvi.kernels.NNGP(
        [layers.Flatten(), layers.Dense(), layers.ReLU(), layers.Dense()],
        input_shape=(PIXELS, PIXELS, 1),
    )


def _feature_map():
    return gvi.kernels.FeatureMap(gpflow.kernels.SquaredExponential(), _convolutions(4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (_nngp, {"divergence": "gaussian_wasserstein", "regulariser": "prior"}),
        (
            _feature_map,
            {"likelihood": gpflow.likelihoods.MultiClass(3), "covariance": "diagonal"},
        ),
    ],
    ids=["NNGP", "feature map"],
)
def test_gwi_of_images_in_one_call(kernel, options):
    (X, y), (new, labels) = _images(200, 0), _images(200, 1)
    learned = gvi.learn(
        (X, y),
        mean=_convolutions(3),
        kernel=kernel(),
        model=gvi.models.GWI,
        num_inducing=20,
        epochs=8,
        **options,
    )
    expected = options.get("likelihood", gpflow.likelihoods.Softmax(3))
    assert type(learned.likelihood) is type(expected)
    assert type(learned.model) is gvi.models.GWI
    assert learned.history["loss"][-1] < learned.history["loss"][0]
    found = np.argmax(learned.predict_proba(new), axis=1)
    assert np.mean(found == labels) > 0.9


class Written(keras.Model):
    """A network that learns the shape of its inputs when it is called."""

    def __init__(self):
        super().__init__()
        self.convolution = keras.layers.Conv2D(6, 3, activation="relu")
        self.pool, self.last = keras.layers.GlobalMaxPooling2D(), keras.layers.Dense(3)

    def call(self, inputs):
        return self.last(self.pool(self.convolution(inputs)))


@pytest.mark.slow
def test_a_model_that_is_a_class_may_be_the_mean_for_images():
    X, y = _images(60, 0)
    options = {"kernel": _feature_map(), "num_inducing": 5, "epochs": 1}
    learned = gvi.learn((X, y), mean=Written(), **options)
    assert isinstance(learned.likelihood, gpflow.likelihoods.Softmax)
    assert learned.predict_f(X)[0].shape == (60, 3)


def _triple(x):
    return np.where(x[:, 0] < -0.6, "low", np.where(x[:, 0] > 0.6, "high", "middle"))


@pytest.mark.slow
def test_a_network_of_several_columns_is_for_labels():
    X = np.random.default_rng(0).normal(size=(90, 1))
    y, network = _triple(X), keras.Sequential([keras.Input((1,)), keras.layers.Dense(3)])
    options = {
        "kernel": gpflow.kernels.SquaredExponential(),
        "mean": network,
        "model": gvi.models.GWI,
        "num_inducing": 8,
        "epochs": 1,
    }
    learned = gvi.learn((X, y), **options)
    of_codes = gvi.learn((X, np.unique(y, return_inverse=True)[1]), **options)
    expected = gpflow.likelihoods.Softmax
    assert type(learned.likelihood) is type(of_codes.likelihood) is expected
    new = np.linspace(-2.0, 2.0, 5)[:, None]
    assert_close(learned.predict_proba(new), of_codes.predict_proba(new), ITERATIVE)
    assert learned.predict_proba(new).shape == (5, 3)


def test_a_network_that_does_not_start_near_zero_is_told_of():
    message = r"network is added to a mean of Q that is .*itself 50 there.*train_network=False"
    with pytest.warns(gvi.errors.NumericsWarning, match=message):
        _learned(network=lambda X: 0.0 * X + 50.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("error:Skipping variable loading")
@pytest.mark.parametrize("end", ["softmax", "sigmoid"])
def test_a_network_of_probabilities_becomes_one_of_logits(end):
    X = np.random.default_rng(0).normal(size=(120, 1))
    y, layers = _triple(X), keras.layers
    last = [layers.Dense(3, end)]
    if end == "sigmoid":
        y, last = X[:, 0] > 0.0, [keras.Sequential([layers.Dense(1, end)])]
    network = keras.Sequential([keras.Input((1,)), layers.Dense(8, "tanh"), *last])
    network.compile("adam", "mse")  # and not fitted, which is no reason for a warning
    before = network.predict(X, verbose=0)
    kernel = gpflow.kernels.SquaredExponential()
    learned = gvi.learn(
        (X, y), mean=network, kernel=kernel, regulariser="prior", num_inducing=8, epochs=1
    )
    assert np.max(learned.predict_proba(X)) > 0.8
    assert np.ptp(learned.predict_f(X)[0]) > 2.0
    np.testing.assert_array_equal(network.predict(X, verbose=0), before)


def test_a_softmax_layer_at_the_end_of_a_mean_is_refused():
    X = np.random.default_rng(0).normal(size=(60, 1))
    x = keras.Input((1,))
    network = keras.Model(x, keras.layers.Softmax()(keras.layers.Dense(3)(x)))
    options = {"kernel": gpflow.kernels.SquaredExponential(), "num_inducing": 8, "epochs": 1}
    with pytest.raises(ValueError, match=r"mean is .*ends with a layer Softmax.*without that"):
        gvi.learn((X, _triple(X)), mean=network, **options)


class Probabilities(keras.Model):
    """It ends with an operation of TensorFlow that no layer tells of."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return tf.nn.softmax(self.dense(x))

    def get_config(self):
        return {}


def test_a_mean_that_returns_probabilities_is_refused():
    X = np.random.default_rng(0).normal(size=(60, 1))
    network = Probabilities()
    network(X)
    with pytest.raises(ValueError, match=r"mean is .*returns probabilities; it must return logits"):
        gvi.learn((X, _triple(X)), mean=network, kernel=gpflow.kernels.Matern52(), num_inducing=8)


def test_estimators_take_the_parts_of_q():
    X, Y = _rows()
    parts = {
        "kernel": gpflow.kernels.SquaredExponential(lengthscales=0.5),
        "mean": "inducing",
        "covariance": "kernelised",
        "regulariser": "prior",
        "divergence": "projected_kl",
        "model": gvi.models.GWI,
        "num_inducing": 10,
        "epochs": 1,
    }
    estimator = gvi.GVIRegressor(random_state=0, **parts)
    model = sklearn.base.clone(estimator).fit(X, Y[:, 0]).learned_.model
    assert type(model) is gvi.models.GWI
    assert type(model.divergence) is gvi.divergences.ProjectedKL
    assert isinstance(model.variational.kernel.kernel, r.KernelisedSVGP)
    assert isinstance(model.variational.mean_function, gvi.mean_functions.Inducing)
    with pytest.raises(ValueError, match="covariance is 'full'"):
        gvi.GVIRegressor(covariance="full").fit(X, Y[:, 0])
