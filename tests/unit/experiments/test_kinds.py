"""Each kind builds the object of the package that it is named after."""

from __future__ import annotations

import dataclasses
import typing

import gpflow
import numpy as np
import pytest
from pydantic import TypeAdapter

import gpflow_gvi as gvi
from gpflow_gvi import projection
from gpflow_gvi.experiments import kernels, networks, objective, regulariser, training, variational
from gpflow_gvi.experiments.parts import kinds


def part(union, value):
    return TypeAdapter(union).validate_python(value)


def all_kinds(union):
    members = typing.get_args(typing.get_args(union)[0])
    return {kind for member in members for kind in kinds(member)}


@pytest.fixture(scope="module")
def site():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, size=(30, 2))
    Y = np.sin(3.0 * X[:, :1]) + 0.1 * rng.normal(size=(30, 1))
    return kernels.Site(X, Y, Y, 0, (2,))


@pytest.fixture(scope="module")
def start(site):
    kernel = gpflow.kernels.Matern52()
    noise = gpflow.Parameter(0.01)
    Z = site.X[:5]
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    P = prior.condition(Z, site.Y[:5], noise)
    inducing = projection.as_inducing_variable(Z)
    return variational.Start(**vars(site), P=P, prior=prior, Z=inducing, noise_variance=noise)


KERNELS = {
    "squared_exponential": gpflow.kernels.SquaredExponential,
    "exponential": gpflow.kernels.Exponential,
    "matern12": gpflow.kernels.Matern12,
    "matern32": gpflow.kernels.Matern32,
    "matern52": gpflow.kernels.Matern52,
    "linear": gpflow.kernels.Linear,
    "constant": gpflow.kernels.Constant,
    "nngp": gvi.kernels.NNGP,
    "feature_map": gvi.kernels.FeatureMap,
    "sum": gpflow.kernels.Sum,
    "product": gpflow.kernels.Product,
}


@pytest.mark.parametrize("kind", KERNELS)
def test_kernels(kind, site):
    value = {"kind": kind}
    if kind in ("sum", "product"):
        value["parts"] = ["linear", "matern12"]
    kernel = part(kernels.Kernel, value).build(site)
    assert type(kernel) is KERNELS[kind]
    assert kernel(site.X).shape == (30, 30)
    assert np.linalg.eigvalsh(kernel(site.X)).min() > -1e-9


def test_recipe_is_that_of_learn(site):
    found = part(kernels.Kernel, "recipe").build(site)
    expected = gvi.recipe.kernels(site.X, site.Y)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours(site.X), theirs(site.X))


def test_lists_of_kinds_are_complete():
    assert all_kinds(kernels.Kernel) == {*KERNELS, "recipe"}
    assert all_kinds(variational.Covariance) == set(COVARIANCES)
    assert all_kinds(objective.Divergence) == set(DIVERGENCES)


def test_lengthscales(site):
    shared = part(kernels.Kernel, {"kind": "matern32", "lengthscale": 0.3, "ard": False})
    assert shared.build(site).lengthscales.numpy() == pytest.approx(0.3)
    own = part(kernels.Kernel, "matern32").build(site).lengthscales
    np.testing.assert_allclose(own, np.sqrt(2.0) * np.ones(2))


def test_base_kernel_of_a_feature_map_is_one_of_its_features(site):
    value = {"kind": "feature_map", "base": "matern32", "layers": [{"kind": "dense", "units": 7}]}
    kernel = part(kernels.Kernel, value).build(site)
    assert kernel.base_kernel.lengthscales.shape == (7,)


def test_images_go_through_layers_of_all_kinds():
    layers = [
        {"kind": "conv2d", "filters": 4},
        "max_pooling_2d",
        {"kind": "conv2d", "filters": 3, "kernel_size": 2, "padding": "valid"},
        "average_pooling_2d",
        "dropout",
        {"kind": "dense", "units": 5},
    ]
    parts = part(networks.Layers, layers)
    model = networks.network(parts, (8, 8, 1), readout=2, zeros=True)
    assert model.output_shape == (None, 2)
    assert [type(layer).__name__ for layer in model.layers] == [
        *("Conv2D", "MaxPooling2D", "Conv2D", "AveragePooling2D", "Dropout"),
        *("Flatten", "Dense", "Dense"),
    ]
    np.testing.assert_array_equal(model(np.ones([3, 8, 8, 1])), np.zeros([3, 2]))
    features = networks.network(part(networks.Layers, ["conv2d"]), (4, 4, 1))
    assert features.output_shape == (None, 256)
    pooled = networks.network(part(networks.Layers, ["global_average_pooling_2d"]), (4, 4, 1))
    assert pooled.output_shape == (None, 1)


def test_means(start):
    X = start.X
    inducing = part(variational.Mean, "inducing").build(start)
    network = part(variational.Mean, {"kind": "network", "readout": "random"}).build(start)
    assert part(variational.Mean, "regulariser").build(start) is start.P.mean_function
    # At its start the inducing mean is the posterior mean of GPflow's sparse regression.
    sgpr = gpflow.models.SGPR(
        (X, start.Y), start.prior.kernel, X[:5], noise_variance=start.noise_variance.numpy()
    )
    np.testing.assert_allclose(inducing(X), sgpr.predict_f(X)[0], atol=1e-6)
    values = [inducing(X), network(X)]
    total = part(
        variational.Mean,
        {"kind": "sum", "parts": ["inducing", {"kind": "network", "readout": "random"}]},
    )
    np.testing.assert_allclose(total.build(start)(X), values[0] + values[1])
    np.testing.assert_array_equal(part(variational.Mean, "network").build(start)(X), 0.0)


COVARIANCES = {
    "cholesky": gvi.covariances.CholeskySVGP,
    "diagonal": gvi.covariances.DiagonalSVGP,
    "kernelised": gvi.covariances.KernelisedSVGP,
    "sparse_posterior": gvi.covariances.SparsePosterior,
    "fixed_sparse_posterior": gvi.covariances.FixedSparsePosterior,
    "tempered": gvi.covariances.Tempered,
    "regulariser": None,
}


@pytest.mark.parametrize("kind", COVARIANCES)
def test_covariances(kind, start):
    covariance = part(variational.Covariance, kind).build(start)
    if kind == "regulariser":
        assert covariance is start.P.kernel
    else:
        assert type(covariance) is COVARIANCES[kind]
    assert covariance(start.X, full_cov=False).shape == (30,)


def test_covariances_of_several_outputs_and_of_own_kernels(start):
    three = dataclasses.replace(start, responses=np.tile(start.responses, 3))
    covariance = part(variational.Covariance, "cholesky").build(three)
    assert covariance.num_outputs == 3
    value = {"kind": "kernelised", "base_kernel": "matern12"}
    own = part(variational.Covariance, value).build(start)
    assert isinstance(own.base_kernel, gpflow.kernels.Matern12)


DIVERGENCES = {
    "inducing_kl": gvi.divergences.InducingKL,
    "projected_kl": gvi.divergences.ProjectedKL,
    "projected_reverse_kl": gvi.divergences.ProjectedReverseKL,
    "projected_renyi": gvi.divergences.ProjectedRenyi,
    "projected_bhattacharyya": gvi.divergences.ProjectedBhattacharyya,
    "projected_hellinger": gvi.divergences.ProjectedHellinger,
    "projected_wasserstein": gvi.divergences.ProjectedWasserstein,
    "projected_squared_difference": gvi.divergences.ProjectedSquaredDifference,
    "gaussian_wasserstein": gvi.divergences.GaussianWasserstein,
    "regularised_kl": gvi.divergences.RegularisedKL,
}


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_divergences(kind, site):
    assert type(part(objective.Divergence, kind).build(site.X, 0)) is DIVERGENCES[kind]


def test_contexts(site):
    value = {
        "kind": "sum",
        "parts": [
            "training_inputs",
            {"kind": "uniform_box", "margin": 0.25, "num_points": 500},
            {"kind": "gaussian_noise", "num_points": 3},
        ],
    }
    divergence = part(objective.Divergence, {"kind": "projected_kl", "context": value})
    points = divergence.build(site.X, 0).context(site.X).numpy()
    assert len(points) == 30 + 500 + 3
    box = points[30:530]
    np.testing.assert_allclose(box.min(axis=0), site.X.min(axis=0) - 0.25, atol=0.05)
    np.testing.assert_allclose(box.max(axis=0), site.X.max(axis=0) + 0.25, atol=0.05)


def test_losses_and_likelihoods():
    for kind, loss in (
        ("log_loss", gvi.losses.LogLoss),
        ("predictive_log_loss", gvi.losses.PredictiveLogLoss),
        ("beta_loss", gvi.losses.BetaLoss),
        ("gamma_loss", gvi.losses.GammaLoss),
    ):
        assert type(part(objective.Loss, kind).build()) is loss
    labels = np.array([[0.0], [3.0]])
    for kind, likelihood in (
        ("bernoulli", gpflow.likelihoods.Bernoulli),
        ("multi_class", gpflow.likelihoods.MultiClass),
        ("softmax", gpflow.likelihoods.Softmax),
    ):
        built = part(objective.Likelihood, kind).build(labels)
        assert type(built) is likelihood
        assert getattr(built, "num_classes", 4) == 4


@pytest.mark.parametrize("kind", ["adam", "adamax", "adamw", "nadam", "rmsprop", "sgd"])
def test_optimisers(kind):
    optimiser = part(training.Optimiser, {"kind": kind, "learning_rate": 0.5}).build(10)
    assert type(optimiser).__name__.lower() == kind
    schedule = optimiser._learning_rate
    np.testing.assert_allclose([schedule(0), schedule(5), schedule(10)], [0.5, 0.25, 0.0])
    constant = part(training.Optimiser, {"kind": kind, "schedule": "constant"}).build(10)
    assert float(constant.learning_rate) == pytest.approx(1e-3)


def test_selections():
    for kind in ("kmeans", "uniform"):
        assert part(regulariser.Selection, kind).build() is getattr(gvi.inducing, kind)
    greedy = part(regulariser.Selection, {"kind": "greedy_variance", "tolerance": 0.1}).build()
    assert (greedy.func, greedy.keywords) == (gvi.inducing.greedy_variance, {"tolerance": 0.1})


def test_adam_and_lbfgs_find_the_same_minimum():
    import tensorflow as tf

    for value in ({"kind": "adam", "learning_rate": 0.1, "steps": 300}, "lbfgs"):
        x = tf.Variable([2.0, -1.0], dtype=tf.float64)
        part(regulariser.Minimise, value).build()(lambda x=x: tf.reduce_sum((x - 0.5) ** 2), [x])
        np.testing.assert_allclose(x, 0.5, atol=1e-3)


def test_adam_that_diverges_is_told():
    import tensorflow as tf

    x = tf.Variable(1.0, dtype=tf.float64)
    minimise = part(regulariser.Minimise, {"kind": "adam", "steps": 3}).build()
    with pytest.raises(gvi.errors.NonFiniteLossError, match=r"regulariser\.minimise"):
        minimise(lambda: tf.math.log(x - 1.0) * x, [x])


def test_posterior_of_the_data_is_that_of_all_rows(site):
    value = {
        "kernel": "matern52",
        "evidence": {"kind": "data", "max_rows": 10},
        "inducing": 4,
        "select": "uniform",
        "minimise": {"kind": "lbfgs", "max_iterations": 2},
    }
    config = regulariser.Regulariser.model_validate(value)
    fitted = config.build(site)
    sgpr = gpflow.models.SGPR(
        (site.X, site.Y),
        fitted.prior.kernel,
        fitted.inducing_points,
        noise_variance=fitted.noise.variance.numpy(),
    )
    np.testing.assert_allclose(
        fitted.posterior.mean(site.X), sgpr.predict_f(site.X)[0], rtol=1e-5, atol=1e-6
    )
    assert config.process(fitted) is fitted.posterior
    prior = regulariser.Regulariser.model_validate({**value, "mode": "prior"})
    assert prior.process(fitted) is fitted.prior
