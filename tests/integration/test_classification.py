"""Classifiers from the user's view: likelihoods, losses, kernels, both modes of P, and `learn`."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import SeparateIndependent, SharedIndependent, SquaredExponential
from scipy.special import softmax

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from tests.designs import each_value
from tests.tolerances import ITERATIVE, ROUNDING, STANDARD_ERRORS, assert_close, assert_estimates

J, N, M = 3, 90, 10
_RNG = np.random.default_rng(11)
CENTRES = np.array([[0.0, 2.0], [-2.0, -1.0], [2.0, -1.0]])
Y = np.arange(N) % J
X = CENTRES[Y] + 0.6 * _RNG.normal(size=(N, 2))

LIKELIHOODS = {
    "MultiClass": lambda: gpflow.likelihoods.MultiClass(J),
    "Softmax": lambda: gpflow.likelihoods.Softmax(J),
}


def network(outputs: int = J) -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((2,)), keras.layers.Dense(10, "tanh"), keras.layers.Dense(outputs)]
    return keras.Sequential(layers)


def regulariser(likelihood, num_inducing=M, labels=Y, **options):
    return gvi.fit_regulariser(
        (X, labels),
        SquaredExponential(),
        num_inducing,
        likelihood=likelihood,
        max_rounds=1,
        minimise=lambda *_: None,  # the kernel as it is
        **options,
    )


def classifier(P, likelihood, Z, *, kernel=None, inducing_variable=None, **options):
    covariance = gvi.covariances.CholeskySVGP(
        SquaredExponential() if kernel is None else kernel,
        InducingPoints(Z) if inducing_variable is None else inducing_variable,
        num_latent_gps=J,
    )
    Q = gvi.GaussianProcess(gvi.mean_functions.Network(network()), covariance)
    return gvi.models.PGVI(P, Q, likelihood, num_data=N, divergence_weight=0.01, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), each_value(LIKELIHOODS, ["prior", "posterior"]))
def test_three_classes_are_learned(name, mode):
    found = regulariser(LIKELIHOODS[name]())
    model = classifier(getattr(found, mode), found.likelihood, found.inducing_points)
    model.compile(keras.optimizers.Adam(0.03))
    history = model.fit((X, Y), epochs=40, batch_size=30, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    figures = gvi.metrics.evaluate(model, (X, Y))
    assert figures["accuracy"] > 0.95
    assert figures["nll"] < 0.5  # of who knows nothing: log 3


def test_two_classes_with_one_latent_function():
    labels = Y == 0
    found = regulariser(gpflow.likelihoods.Bernoulli(), labels=labels)
    assert set(np.unique(found.inducing_outputs)) == {0.0, 1.0}
    Q = gpflow.utilities.deepcopy(found.posterior)
    model = gvi.models.PGVI(found.posterior, Q, found.likelihood, num_data=N)
    losses = [float(model.training_loss((X, kind))) for kind in (labels, labels[:, None] * 1.0)]
    assert losses[0] == losses[1]
    assert gvi.metrics.evaluate(model, (X, labels))["accuracy"] > 0.95


@pytest.mark.parametrize("kernels", ["shared", "separate"])
@pytest.mark.parametrize("points", ["shared", "separate"])
def test_kernels_and_inducing_points_shared_or_one_for_each_class(kernels, points):
    Zs = [X[j::J][:M] for j in range(J)]
    kernel = (
        SharedIndependent(SquaredExponential(), J)
        if kernels == "shared"
        else SeparateIndependent([SquaredExponential(lengthscales=1.0 + j) for j in range(J)])
    )
    inducing_variable = (
        SharedIndependentInducingVariables(InducingPoints(Zs[0]))
        if points == "shared"
        else SeparateIndependentInducingVariables([InducingPoints(Z) for Z in Zs])
    )
    P = gvi.GaussianProcess(gpflow.functions.Zero(J), kernel)
    model = classifier(
        P,
        gpflow.likelihoods.MultiClass(J),
        None,
        kernel=kernel,
        inducing_variable=inducing_variable,
    )
    q_sqrt = model.variational.kernel.q_sqrt
    q_sqrt.assign(np.tril(_RNG.normal(size=q_sqrt.shape)) + 2.0 * np.eye(M))
    assert np.isfinite(model.training_loss((X, Y)))
    # Each latent function is the one of its own kernel and points.
    single = gvi.covariances.CholeskySVGP(
        kernel.kernels[1] if kernels == "separate" else kernel.kernel,
        InducingPoints(Zs[0 if points == "shared" else 1]),
        q_sqrt=q_sqrt[1:2],
    )
    assert_close(model.variational.variance(X)[:, 1], single(X, full_cov=False))


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.draws
def test_predictive_log_loss_is_the_cross_entropy(name):
    P = gvi.GaussianProcess(gpflow.functions.Zero(J), SquaredExponential())
    likelihood = LIKELIHOODS[name]()
    model = classifier(P, likelihood, X[:M], loss=gvi.losses.PredictiveLogLoss())
    S = likelihood.num_monte_carlo_points = 2**14
    terms = model.loss_terms((X, Y))
    p = gvi.classification.class_probabilities(model, X, num_samples=S)
    expected = gvi.metrics.cross_entropy(Y, p)
    if name == "MultiClass":
        assert_close(float(terms.loss), expected, ITERATIVE)  # quadrature
        return
    mean, variance = model.predict_f(X)
    draws = softmax(_RNG.normal(mean, np.sqrt(variance), size=(1000, N, J)), axis=-1)
    of_labels = draws[:, np.arange(N), Y]
    relative = of_labels.std(axis=0) / of_labels.mean(axis=0)
    assert_estimates(terms.loss, expected, np.sqrt(2.0 * np.sum(relative**2) / S) / N)


LABELS = (Y, Y[:, None].astype(float))


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.draws
def test_labels_are_whole_numbers_of_any_type(name):
    P = gvi.GaussianProcess(gpflow.functions.Zero(J), SquaredExponential())
    model = classifier(P, LIKELIHOODS[name](), X[:M])
    losses = []
    for labels in LABELS:
        tf.random.set_seed(3)  # of the samples that Softmax takes
        losses.append(model.training_loss((X, labels)))
    assert_close(*losses)


@pytest.mark.slow
def test_labels_from_a_dataset():
    P = gvi.GaussianProcess(gpflow.functions.Zero(J), SquaredExponential())
    histories = []
    model = classifier(P, gpflow.likelihoods.MultiClass(J), X[:M])
    model.compile(keras.optimizers.SGD(1e-3))
    start = model.get_weights()
    for labels in LABELS:
        model.set_weights(start)
        dataset = tf.data.Dataset.from_tensor_slices((X, labels)).batch(30)
        histories.append(model.fit(dataset, epochs=2, verbose=0).history["loss"])
    assert_close(*histories)


def test_all_classes_share_one_factor():
    P = gvi.GaussianProcess(gpflow.functions.Zero(J), SquaredExponential())
    model = classifier(P, gpflow.likelihoods.MultiClass(J), X[:M])
    tempered = gvi.temper(model, (X, Y))
    assert len(np.unique(tempered.variational.kernel.factor)) == 1
    assert tempered.variational.kernel.factor.shape == (J,)
    before, after = (gvi.metrics.evaluate(each, (X, Y))["nll"] for each in (model, tempered))
    assert after <= before + ROUNDING.float64


def test_learn_takes_labels(tmp_path):
    names = np.array(["north", "west", "east"])[Y]
    learned = gvi.learn((1e3 * X, names), num_inducing=M, calibration_fraction=0.3, effort="fast")
    p = learned.predict_proba(1e3 * X)
    assert learned.classes_.tolist() == ["east", "north", "west"]
    assert np.mean(learned.predict(1e3 * X) == names) > 0.95
    assert gvi.metrics.evaluate(learned, (1e3 * X, names))["accuracy"] > 0.95
    sets = learned.predict_set(1e3 * X, 0.9)
    covered = np.mean(sets[np.arange(N), np.searchsorted(learned.classes_, names)])
    assert covered > 0.9 - STANDARD_ERRORS * np.sqrt(0.9 * 0.1 / N)
    assert np.mean(learned.predict_set(1e3 * X, 0.9, adaptive=True)) < 0.6
    learned.save(tmp_path / "model")
    assert_close(gvi.load(tmp_path / "model").predict_proba(1e3 * X), p)
    with pytest.raises(TypeError, match="whose observations are classes"):
        learned.predict_interval(X)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LIKELIHOODS, "Bernoulli"])
def test_learn_trains_with_labels(name):
    likelihood = LIKELIHOODS.get(name, gpflow.likelihoods.Bernoulli)()
    labels = (Y == 1) if name == "Bernoulli" else Y
    learned = gvi.learn(
        (1e3 * X, labels),
        kernel=SquaredExponential(lengthscales=[1.0, 1.0]),
        likelihood=likelihood,
        num_inducing=M,
        epochs=2,
        calibration_fraction=0.3,
    )
    assert gvi.metrics.evaluate(learned, (1e3 * X, labels))["accuracy"] > 0.95


@pytest.mark.slow
def test_two_bananas():
    """Crescents that overlap: as good as scikit-learn's process, and unsure where no data are."""
    from sklearn.datasets import make_moons
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.metrics import log_loss

    moons, labels = make_moons(200, noise=0.3, random_state=0)
    new, expected = make_moons(2000, noise=0.3, random_state=1)
    learned = gvi.learn((moons, labels == 1))
    rival = GaussianProcessClassifier(ConstantKernel() * RBF()).fit(moons, labels)
    p = learned.predict_proba(new)
    assert log_loss(expected, p) < log_loss(expected, rival.predict_proba(new)) + 0.01
    assert gvi.metrics.ece(expected, p) < 0.05  # 15 bins of 2,000 rows: up to ½ √(15 / 2000)
    factor = learned.model.variational.kernel.factor.numpy()
    assert 0.2 < factor[0] < 5.0
    across = gvi.classification.entropies(learned, np.array([[8.0, 8.0], [-8.0, -8.0]]))
    inside = gvi.classification.entropies(learned, new)
    assert np.min(across.epistemic) > 3.0 * np.median(inside.epistemic)


def test_what_is_wrong_is_named():
    P = gvi.GaussianProcess(gpflow.functions.Zero(J), SquaredExponential())
    model = classifier(P, gpflow.likelihoods.MultiClass(J), X[:M])
    model.compile()
    with pytest.raises(ValueError, match="whole numbers from 0 to 2"):
        model.fit((X, Y + 1), verbose=0)
    with pytest.raises(ValueError, match="whole numbers from 0 to 2"):
        model.training_loss_closure((X, Y - 1))
    with pytest.raises(ValueError, match="whole numbers from 0 to 2"):
        model.predict_log_density((X, Y + 1))
    with pytest.warns(NumericsWarning, match="no example of class 2 of 3"):
        model.training_loss_closure((X, Y % 2))
    with pytest.raises(ValueError, match="MultiClass is for 4 latent functions, but Q has 3"):
        classifier(P, gpflow.likelihoods.MultiClass(4), X[:M])
    with pytest.raises(ValueError, match="examples of class 1 alone"):
        gvi.fit_regulariser(
            (X, np.ones(N)), SquaredExponential(), M, likelihood=gpflow.likelihoods.MultiClass(J)
        )
