"""Kernels on features: against the base kernel on features that were computed beforehand."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints

import gpflow_gvi as gvi
from gpflow_gvi._core.memo import memoised
from gpflow_gvi.kernels.feature_map import FeatureMap
from tests import networks
from tests.designs import each_value
from tests.tolerances import ITERATIVE, assert_close, assert_differ

X = np.random.default_rng(1).normal(size=(12, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.1 * X[:, 1:]
NEW = np.random.default_rng(2).normal(size=(7, 2))
Z = X[:4]
WITH_WEIGHTS = pytest.mark.parametrize(
    "make", networks.WITH_WEIGHTS.values(), ids=networks.WITH_WEIGHTS
)


def base():
    return gpflow.kernels.Matern52(variance=1.3, lengthscales=0.4)


@WITH_WEIGHTS
def test_is_the_base_kernel_on_the_features(make):
    network = make(3)
    kernel, k = FeatureMap(base(), network), base()
    H, H2 = network(X).numpy(), network(NEW).numpy()
    assert_close(kernel.features(X), H)
    assert_close(kernel(X, NEW), k(H, H2))
    assert_close(kernel(X), k(H))
    assert_close(kernel(X, full_cov=False), k(H, full_cov=False))
    with pytest.raises(ValueError, match="X2 was given with full_cov=False"):
        kernel(X, NEW, full_cov=False)


def test_active_dims_of_the_base_kernel_are_features():
    network = networks.Perceptron(3)
    linear = gpflow.kernels.Linear(active_dims=[2])
    h = network(X).numpy()[:, 2]
    assert_close(FeatureMap(linear, network)(X), np.outer(h, h))


def test_enters_sums_and_products():
    network = networks.Perceptron(3)
    combined = FeatureMap(base(), network) * gpflow.kernels.Linear() + gpflow.kernels.Constant(0.7)
    H = network(X).numpy()
    assert_close(combined(X), base()(H) * (X @ X.T) + 0.7)


def test_takes_images_as_they_are(rng):
    images = rng.normal(size=(5, 4, 4, 1))
    network = keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            keras.layers.Conv2D(2, 2, dtype="float64"),
            keras.layers.GlobalAveragePooling2D(dtype="float64"),
        ]
    )
    kernel = FeatureMap(base(), network)
    expected = base()(network(images))
    assert_close(kernel(images), expected)  # its model casts to float32
    assert_close(kernel(images.reshape(5, 16), images), expected)
    process = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    assert_close(process.variance(images), 1.3 * np.ones((5, 1)))


def svgp(kernel, inducing_variable, q_mu, q_sqrt):
    likelihood = gpflow.likelihoods.Gaussian(0.2)
    return gpflow.models.SVGP(kernel, likelihood, inducing_variable, q_mu=q_mu, q_sqrt=q_sqrt)


@WITH_WEIGHTS
def test_inducing_points_are_points_of_the_base_kernel(make, rng):
    """f = f_0 ∘ h: a sparse model of f on X and Z is one of f_0 on h(X) and h(Z)."""
    network = make(3)
    kernel = FeatureMap(base(), network)
    points = InducingPoints(Z)
    q_mu = rng.normal(size=(4, 1))
    q_sqrt = np.tril(rng.normal(size=(1, 4, 4))) + 2.0 * np.eye(4)
    model = svgp(kernel, points, q_mu, q_sqrt)
    H, H_new, H_Z = (network(inputs).numpy() for inputs in (X, NEW, Z))
    known = svgp(base(), InducingPoints(H_Z), q_mu, q_sqrt)
    assert_close(model.elbo((X, Y)), known.elbo((H, Y)))
    expected = known.predict_f(H_new)
    r = gvi.covariances.CholeskySVGP(kernel, points, q_sqrt=q_sqrt)
    m = gvi.mean_functions.Inducing(kernel, points, q_mu=q_mu)
    for mean, variance in (
        model.predict_f(NEW),
        model.posterior().predict_f(NEW),
        gvi.GaussianProcess(m, r).predict(NEW),
    ):
        assert_close(mean, expected[0])
        assert_close(variance, expected[1])


def test_features_are_computed_once_within_a_memoised_block():
    calls = []
    kernel = FeatureMap(base(), lambda X: calls.append(X.shape[0]) or tf.tanh(X))
    r = gvi.covariances.SparsePosterior(kernel, Z, base_kernel=kernel)
    inputs = tf.constant(X)
    with memoised():
        r.output_variance(inputs)
        r.output_covariance(inputs, None)
        kernel(inputs)
    assert sorted(calls) == [len(Z), len(X)]


@WITH_WEIGHTS
def test_the_gradient_reaches_network_and_base_kernel_alike(make, rng):
    """The derivative of the evidence along a random direction, by central differences."""
    model = gpflow.models.GPR((X, Y), FeatureMap(base(), make(3)), noise_variance=0.1)
    variables = model.trainable_variables
    assert len(variables) == len(model.kernel.network.trainable_variables) + 3
    directions = [rng.normal(size=variable.shape) for variable in variables]
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    gradients = tape.gradient(loss, variables)
    expected = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))

    def moved(step):
        for variable, direction in zip(variables, directions, strict=True):
            variable.assign_add(step * direction)
        return float(model.training_loss())

    ahead, behind = moved(1e-5), moved(-2e-5)
    assert_close((ahead - behind) / 2e-5, expected, ITERATIVE)
    assert all(np.any(gradient != 0.0) for gradient in gradients)


@pytest.mark.parametrize(
    ("make", "name"),
    each_value(networks.WITH_WEIGHTS.values(), ["KernelisedSVGP", "SparsePosterior"]),
)
def test_q_s_copy_of_the_kernel_trains_while_p_s_stays(make, name):
    kernel = FeatureMap(base(), make(3))
    P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    r = getattr(gvi.covariances, name)(kernel, Z)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    mean = gvi.mean_functions.Inducing(kernel, Z)
    model = gvi.models.PGVI(P, gvi.GaussianProcess(mean, r), likelihood, num_data=len(X))
    trained = {id(variable) for variable in model.trainable_variables}
    copied = r.base_kernel.network
    assert trained >= {id(variable) for variable in copied.trainable_variables}
    assert trained.isdisjoint(id(variable) for variable in kernel.variables)
    assert_close(r.base_kernel(X), kernel(X))
    gram, prediction = kernel(X).numpy(), model.predict_f(NEW)[1].numpy()
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure((X, Y), compile=False),
        model.trainable_variables,
        options={"maxiter": 2},
        compile=False,
    )
    np.testing.assert_array_equal(kernel(X), gram)
    assert_differ(r.base_kernel(X), gram)
    assert_differ(model.predict_f(NEW)[1], prediction)
    cached = model.posterior().predict_f(NEW)
    assert_close(cached[1], model.predict_f(NEW)[1])


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match=r"base_kernel is 3; it must be a Kernel of gpflow"):
        FeatureMap(3, networks.Perceptron())
    shared = gpflow.kernels.SharedIndependent(base(), 2)
    with pytest.raises(ValueError, match=r"SharedIndependent with 2 outputs.*one FeatureMap for"):
        FeatureMap(shared, networks.Perceptron())
    with pytest.raises(TypeError, match="network is None"):
        FeatureMap(base(), None)
    with pytest.raises(ValueError, match=r"returns shape \(12,\).*must be \[N, F\]"):
        FeatureMap(base(), lambda X: X[:, 0])(X)
