"""What is asked for is done or refused: no argument of `learn` is without effect in silence."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Matern52, SquaredExponential
from gpflow.likelihoods import Bernoulli, Gaussian, Poisson, Softmax
from sklearn.gaussian_process.kernels import RBF

import gpflow_gvi as gvi
from tests.tolerances import assert_close

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(60, 1))
COUNTS = RNG.poisson(2.0, size=60).astype(float)
NAMES = np.where(X[:, 0] > 0.0, "right", "left")
WITH_GAPS = np.where(RNG.uniform(size=(60, 2)) < 0.2, np.nan, np.c_[Y, -Y])


def net(J=1):
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(4), keras.layers.Dense(J)])


ONE = {"kernel": SquaredExponential()}
FIXED = {"network": net(), "train_network": False}


@pytest.mark.parametrize(
    ("targets", "options", "refused"),
    [
        (Y, {"batch_size": 200}, "batch_size is 200, .* nothing of Q is trained"),
        (Y, {"divergence_weight": "1/n"}, "divergence_weight is '1/n'; .*1/N"),
        (Y, {"learning_rate": 3e-3}, r"learning_rate is 0\.003, .* nothing of Q is trained"),
        (Y, {"features": "inputs"}, "features is 'inputs', .* without a network"),
        (Y, {"train_network": True}, "train_network is True, .* without a network"),
        (Y, FIXED | {"epochs": 3}, "epochs is 3, .* network is not trained"),
        (Y, FIXED | {"model": gvi.models.PGVI}, "model is .*PGVI.*, .* around a network"),
        (Y, FIXED | {"noise": "constant"}, "noise is 'constant', .* around a network"),
        (Y, FIXED | {"effort": "fast"}, "effort is 'fast', .* around a network"),
        (
            Y,
            FIXED | {"effort": "best", "num_inducing": 9},
            "effort is 'best', .* around a network",
        ),
        (
            Y,
            {"validation_data": (X, Y), "validation_fraction": 0.1},
            r"validation_fraction is 0\.1, .* validation_data are given",
        ),
        (NAMES, {"noise": "varying"}, "noise is 'varying', .* likelihood is Bernoulli"),
        (COUNTS, {"likelihood": Poisson(), "noise": "auto"}, "noise is 'auto', .* Poisson"),
        (
            Y,
            {"likelihood": Gaussian(gpflow.functions.Constant(0.1)), "noise": "constant"},
            "noise is 'constant', .* likelihood is Gaussian",
        ),
        (WITH_GAPS, {"missing": "ignore", "epochs": 1}, "epochs is 1, .* learned together"),
        (
            WITH_GAPS,
            {"missing": "ignore", "divergence_weight": 0.1},
            r"divergence_weight is 0\.1, .* learned together",
        ),
    ],
)
def test_what_would_have_no_effect_is_refused(targets, options, refused):
    with pytest.raises(ValueError, match=f"^{refused}"):
        gvi.learn((X, targets), **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"outputs": "correlated"}, "outputs='correlated'"),
        ({"missing": "ignore"}, "missing='ignore'"),
        ({"loss": "robust"}, "loss='robust'"),
        ({"sample_weight": np.ones(60)}, "sample_weight"),
    ],
)
def test_what_is_for_arrays_says_so_where_data_come_in_blocks(options, named):
    blocks = tf.data.Dataset.from_tensor_slices((X, Y)).batch(20)
    with pytest.raises(TypeError, match=f"^data is a .*Dataset; with {named} .* a pair of arrays"):
        gvi.learn(blocks, **options)


def test_the_model_is_a_class():
    with pytest.raises(TypeError, match=r"^model is 'GWI'; it must be a class: .*GWI"):
        gvi.learn((X, Y), model="GWI")


@pytest.mark.parametrize(
    ("estimator", "targets", "refused"),
    [
        (gvi.GVIRegressor(train_network=True), Y[:, 0], "train_network is True, .* without a"),
        (gvi.GVIClassifier(noise="auto"), NAMES, "noise is 'auto', .* likelihood is Bernoulli"),
        (
            gvi.GVIClassifier(network=net(2), features="inputs", likelihood=Bernoulli()),
            NAMES,
            "network returns 2 columns, .* under Bernoulli has 1 latent functions",
        ),
    ],
)
def test_estimators_refuse_it_as_well(estimator, targets, refused):
    with pytest.raises(ValueError, match=f"^{refused}"):
        estimator.fit(X, targets)


def test_a_network_that_is_trained_by_its_own_optimiser_has_no_other_rate():
    compiled = net()
    compiled.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"^learning_rate is 0\.1, .* network is compiled"):
        gvi.learn((X, Y), network=compiled, features="inputs", learning_rate=0.1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"likelihood": "poisson"},
            TypeError,
            r"likelihood is 'poisson'; .*\.Poisson\(\.\.\.\)",
        ),
        (
            {"likelihood": Bernoulli},
            TypeError,
            r"likelihood is .*; .*\.Bernoulli\(\.\.\.\)",
        ),
        ({"kernel": RBF()}, TypeError, r"kernel is RBF.* is no kernel of GPflow\. Pass"),
        ({"kernel": Matern52}, TypeError, r"kernel is .*Matern52.* such as Matern52\(\)"),
        ({"kernel": []}, TypeError, r"kernel is \[\], but \[\] is no kernel"),
        ({"kernel": Matern52(lengthscales=[1.0] * 3)}, ValueError, r"Matern52 .* \(3,\), .* 2 col"),
        (
            {"kernel": Matern52(active_dims=slice(1, 4)), "outputs": "correlated"},
            ValueError,
            r"Matern52 with active_dims .* X has 2 columns",
        ),
        ({"seed": 1.5}, ValueError, r"seed is 1\.5; it must be a whole number of at least 0"),
        ({"seed": 2**40}, ValueError, "seed is .*; .* at least 0 and at most 4294967295"),
        ({"learning_rate": -1.0, "epochs": 3}, ValueError, "learning_rate is -1.0; it must be pos"),
        ({"loss": 3}, TypeError, "loss is 3; it must be a Loss of gpflow_gvi"),
        ({"divergence": 3}, TypeError, "divergence is 3; it must be a Divergence of gpflow_gvi"),
        ({"n_jobs": 0}, ValueError, "n_jobs is 0; it must be a whole number other than 0"),
        ({"standardise": "no"}, ValueError, r"standardise is 'no'; .* \[True, False\]"),
        ({"select": "kmeans"}, TypeError, r"select is 'kmeans'; .* kmeans of gpflow_gvi\.inducing"),
        ({"covariance": object}, TypeError, "covariance is .*object.*; it must be one of choles"),
        ({"sample_weight": 3}, ValueError, "sample_weight is 3; it must be a number for each"),
        ({"calibration_fraction": "0.2"}, ValueError, r"calibration_fraction is '0\.2'; it must"),
    ],
)
def test_what_is_of_another_kind_is_refused_by_its_name(options, error, message):
    with pytest.raises(error, match=f"^(?:kernel has a )?{message}"):
        gvi.learn((X, Y), **options)


def test_weights_of_labels_and_sets_of_one_row_are_refused():
    with pytest.raises(ValueError, match=r"^sample_weight is .*, but Y are labels: leave it out"):
        gvi.learn((X, NAMES), sample_weight=np.ones(len(X)))
    for likelihood in (None, gpflow.likelihoods.Poisson()):
        with pytest.raises(ValueError, match=r"^Y has one row, .*: give at least two"):
            gvi.learn((X[:1], np.ones(1)), likelihood=likelihood)


def test_estimators_refuse_what_is_no_likelihood():
    for kind, targets in ((gvi.GVIClassifier, NAMES), (gvi.GVIRegressor, Y)):
        with pytest.raises(TypeError, match=r"^likelihood is .*\.Softmax\(\.\.\.\)"):
            kind(likelihood=Softmax).fit(X, targets)


@pytest.mark.slow
def test_predictions_check_what_they_are_asked_for():
    learned = gvi.learn((X, Y), num_inducing=9, **ONE)
    for sample in (learned.predict_y_samples, learned.predict_f_samples):
        with pytest.raises(ValueError, match=r"num_samples is 2\.5; .* whole number"):
            sample(X[:3], 2.5)
    with pytest.raises(ValueError, match=r"coverage is .*; it must lie between 0 and 1"):
        learned.predict_interval(X[:3], coverage=1.0)


@pytest.mark.slow
def test_the_default_model_is_trained_where_it_is_asked_for():
    options = ONE | {"num_inducing": 8, "validation_fraction": 0.0}
    learned = gvi.learn((X, Y), model=gvi.models.PGVI, **options)
    assert len(learned.history["loss"]) == 20
    P, Q = learned.model.regulariser, learned.model.variational
    assert np.max(np.abs(Q.mean(X) - P.mean(X))) > 1e-3
    assert not gvi.learn((X, Y), **options).history


@pytest.mark.slow
def test_noise_of_outputs_that_are_learned_together_stays_as_it_is_given():
    fixed = Gaussian(0.3)
    gpflow.set_trainable(fixed, False)
    learned = gvi.learn((X[:30], WITH_GAPS[:30]), missing="ignore", likelihood=fixed, **ONE)
    assert_close(learned.regulariser.likelihood.variance, [0.3, 0.3])


def test_features_stay_in_their_units_without_standard_ones():
    options = {"network": net(), "train_network": False, "features": "inputs"}
    given = {"validation_data": (X[:30], Y[:30]), "num_inducing": 9, **options}
    for standardise in (True, False):
        learned = gvi.learn((X, Y), standardise=standardise, **given)
        rows = np.asarray(learned.inputs.standard(X))[:, 1:3]  # behind the output of the network
        assert np.allclose(rows, X) is not standardise


def test_a_classifier_around_a_network_has_the_likelihood_that_it_is_given():
    network = net(2)
    network.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True))
    likelihood = Softmax(2)
    likelihood.num_monte_carlo_points = 7
    estimator = gvi.GVIClassifier(
        network=network, features="inputs", likelihood=likelihood, epochs=1, num_inducing=9
    )
    found = estimator.fit(X, NAMES).learned_.likelihood
    assert found.num_monte_carlo_points == 7


def test_a_one_hot_code_is_told_to_be_regressed():
    with pytest.warns(gvi.errors.NumericsWarning, match=r"one-hot code .*Softmax\(3\)"):
        gvi.learn((X, np.eye(3)[RNG.integers(0, 3, size=60)]), effort="fast", **ONE)


class LeastSquares:
    """An object with `fit`, which returns nothing, and `predict`, and nothing else."""

    def fit(self, X, y):
        self.coefficients = np.linalg.lstsq(X, y, rcond=None)[0]

    def predict(self, X):
        return X @ self.coefficients


def test_any_object_with_fit_and_predict_is_a_predictor():
    line = X @ [1.0, -2.0] + 0.01 * RNG.normal(size=60)
    learned = gvi.learn((X, line), predictor=LeastSquares(), effort="fast")
    assert np.max(np.abs(learned.predict(X)[:, 0] - line)) < 0.1


def test_a_network_is_no_predictor_and_student_has_a_variance():
    with pytest.raises(TypeError, match=r"predictor is the Keras model .* Pass it as network="):
        gvi.learn((X, Y), predictor=net())
    with pytest.raises(ValueError, match=r"likelihood is StudentT with df=2, .* df above 2"):
        gvi.learn((X, Y), likelihood=gpflow.likelihoods.StudentT(df=2.0))
