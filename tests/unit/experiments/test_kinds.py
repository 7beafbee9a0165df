"""Each kind builds what its class, called directly, is; and each class can be reached by a kind."""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
from typing import get_args

import gpflow
import keras
import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

import gpflow_gvi as gvi
from gpflow_gvi.covariances import gram
from gpflow_gvi.divergences import wasserstein
from gpflow_gvi.experiments.parts import (
    kernels,
    layer_kinds,
    objective,
    regulariser,
    training,
)
from gpflow_gvi.experiments.parts.part import Constructor
from gpflow_gvi.learning.procedure import Procedure
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.learning.rows.split import Split
from gpflow_gvi.learning.settings import Settings
from gpflow_gvi.learning.start import Start, TrainingData
from gpflow_gvi.mean_functions.network import NetworkOutputs
from tests.tolerances import ITERATIVE, assert_close


def part(union, value):
    """Return the part that YAML, or a value, describes."""
    value = yaml.safe_load(value) if isinstance(value, str) else value
    return TypeAdapter(union).validate_python(value)


def parts(union):
    """Return the classes of the parts of a table, by their kinds."""
    (by_kind,) = union.__metadata__
    of_kinds = get_args(by_kind.union)
    return {part.model_fields["kind"].default: part for part in of_kinds}


@pytest.fixture(scope="module")
def site():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, size=(30, 2))
    Y = np.sin(3.0 * X[:, :1]) + 0.1 * rng.normal(size=(30, 1))
    units = Scaling.none(X), Scaling.none(Y)
    return TrainingData(X, Y, Y, 0, (2,), of_classes=False, units=units)


@pytest.fixture(scope="module")
def start(site):
    kernel = gpflow.kernels.Matern52()
    noise = gpflow.Parameter(0.01)
    Z = site.X[:5]
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    P = prior.condition(Z, site.Y[:5], noise)
    inducing = gram.as_inducing_variable(Z)
    fields = vars(dataclasses.replace(site))  # without what it has computed meanwhile
    return Start(**fields, P=P, prior=prior, Z=inducing, noise_variance=noise)


# Likelihoods


def test_likelihoods():
    labels = np.array([[0.0], [3.0]])
    for kind, likelihood in (
        ("bernoulli", gpflow.likelihoods.Bernoulli),
        ("multi_class", gpflow.likelihoods.MultiClass),
        ("softmax", gpflow.likelihoods.Softmax),
    ):
        built = part(objective.Likelihood, kind).build(labels)
        assert type(built) is likelihood
        assert getattr(built, "num_classes", 4) == 4
    gaussian = part(objective.Likelihood, "{kind: gaussian, trainable: false}")
    assert gaussian.build(labels) is None  # it is that of the regulariser
    assert gaussian.trainable is False


# Contexts

CONTEXTS = {
    "uniform_box": lambda X: gvi.contexts.UniformBox(X.min(0) - 0.5, X.max(0) + 0.5, seed=7),
    "{kind: uniform_box, margin: 0.25, num_points: 5}": lambda X: gvi.contexts.UniformBox(
        X.min(0) - 0.25, X.max(0) + 0.25, 5, seed=7
    ),
    "gaussian_noise": lambda X: gvi.contexts.GaussianNoise(0.5, seed=7),
}


@pytest.mark.parametrize("text", CONTEXTS)
def test_contexts(text, site):
    value = {"kind": "projected_kl", "context": yaml.safe_load(text)}
    built = part(objective.Divergence, value).build(dataclasses.replace(site, seed=7)).context
    direct = CONTEXTS[text](site.X)
    assert type(built) is type(direct)
    np.testing.assert_array_equal(built(site.X), direct(site.X))


def test_weights_of_divergences():
    assert part(objective.Divergence, "inducing_kl").weight == 1.0  # minus the evidence bound
    assert part(objective.Divergence, "projected_kl").weight == 0.1
    assert part(objective.Divergence, "{kind: projected_kl, weight: 2}").weight == 2.0


# Kernels


def _gpflow(name, **options):
    return lambda: getattr(gpflow.kernels, name)(**options)


ROOT = np.sqrt([2.0, 2.0])

KERNELS = {
    "{kind: polynomial, degree: 3, variance: 0.5, offset: 2.0}": lambda: gpflow.kernels.Polynomial(
        3, 0.5, 2.0
    ),
    "squared_exponential": _gpflow("SquaredExponential", lengthscales=ROOT),
    "exponential": _gpflow("Exponential", lengthscales=ROOT),
    "matern12": _gpflow("Matern12", lengthscales=ROOT),
    "matern32": _gpflow("Matern32", lengthscales=ROOT),
    "matern52": _gpflow("Matern52", lengthscales=ROOT),
    "{kind: matern52, variance: 3, lengthscale: 0.3}": _gpflow(
        "Matern52", variance=3.0, lengthscales=[0.3, 0.3]
    ),
    "{kind: matern32, lengthscale: 0.3, ard: false}": _gpflow("Matern32", lengthscales=0.3),
    "linear": _gpflow("Linear"),
    "{kind: constant, variance: 0.2}": _gpflow("Constant", variance=0.2),
    "{kind: sum, parts: [linear, constant]}": lambda: (
        gpflow.kernels.Linear() + gpflow.kernels.Constant()
    ),
    "{kind: nngp, layers: [{kind: dense, activation: tanh}]}": lambda: gvi.kernels.NNGP.from_keras(
        keras.Sequential([keras.Input([2]), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    ),
}


MEANS_OF_P = {
    "zero": lambda site: gpflow.functions.Zero(),
    "constant": lambda site: gpflow.functions.Constant([np.mean(site.Y)]),
    "linear": lambda site: gpflow.functions.Linear(np.zeros((2, 1)), [np.mean(site.Y)]),
}


@pytest.mark.parametrize("kind", MEANS_OF_P)
def test_means_of_the_regulariser(kind, site):
    built, direct = part(regulariser.Mean, kind).build(site), MEANS_OF_P[kind](site)
    assert type(built) is type(direct)
    assert_close(built(site.X), direct(site.X))


@pytest.mark.parametrize("text", KERNELS)
def test_kernels(text, site):
    built, direct = part(kernels.Kernel, text).build(site), KERNELS[text]()
    assert type(built) is type(direct)
    assert [p.shape for p in built.trainable_parameters] == [
        p.shape for p in direct.trainable_parameters
    ]
    assert_close(built(site.X), direct(site.X))


def test_feature_map_is_a_kernel_of_the_features_of_its_network(site):
    text = "{kind: feature_map, base: matern32, layers: [{kind: dense, units: 7}]}"
    kernel = part(kernels.Kernel, text).build(site)
    features = kernel.network(site.X)
    assert features.shape == (30, 7)
    assert_close(kernel(site.X), gpflow.kernels.Matern32(lengthscales=[np.sqrt(7.0)] * 7)(features))
    assert kernel.base_kernel.lengthscales.shape == (7,)
    default = part(kernels.Kernel, "feature_map").build(site)
    assert type(default) is gvi.kernels.FeatureMap
    assert type(default.base_kernel) is gpflow.kernels.Linear


def test_recipe_is_that_of_learn(site):
    found = part(kernels.Kernel, "recipe").build(site)
    expected = gvi.recipe.Recipe().kernels_of_numbers(site.X, site.Y)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours(site.X), theirs(site.X))


def test_images_go_through_layers_of_all_kinds():
    layers = [
        {"kind": "conv2d", "filters": 4},
        "max_pooling_2d",
        {"kind": "conv2d", "filters": 3, "kernel_size": 2, "padding": "valid"},
        "average_pooling_2d",
        "dropout",
        {"kind": "dense", "units": 5},
    ]
    parts = part(layer_kinds.Layers, layers)
    model = layer_kinds.network(parts, (8, 8, 1), readout=2, zeros=True)
    assert model.output_shape == (None, 2)
    assert [type(layer).__name__ for layer in model.layers] == [
        *("Conv2D", "MaxPooling2D", "Conv2D", "AveragePooling2D", "Dropout"),
        *("Flatten", "Dense", "Dense"),
    ]
    np.testing.assert_array_equal(model(np.ones([3, 8, 8, 1])), np.zeros([3, 2]))
    features = layer_kinds.network(part(layer_kinds.Layers, ["conv2d"]), (4, 4, 1))
    assert features.output_shape == (None, 256)
    pooled = layer_kinds.network(part(layer_kinds.Layers, ["global_average_pooling_2d"]), (4, 4, 1))
    assert pooled.output_shape == (None, 1)


def test_means(start):
    X = start.X
    inducing = part(objective.Mean, "inducing").build(start)
    network = part(objective.Mean, {"kind": "network", "readout": "random"}).build(start)
    assert part(objective.Mean, "regulariser").build(start) is start.P.mean_function
    # At its start the inducing mean is the posterior mean of GPflow's sparse regression.
    sgpr = gpflow.models.SGPR(
        (X, start.Y), start.prior.kernel, X[:5], noise_variance=start.noise_variance.numpy()
    )
    assert_close(inducing(X), sgpr.predict_f(X)[0])
    assert np.ptp(network(X)) > 0.0
    np.testing.assert_array_equal(part(objective.Mean, "network").build(start)(X), 0.0)


COVARIANCES = {
    "cholesky": lambda s: gvi.covariances.CholeskySVGP.from_data(
        s.prior.kernel, s.Z, s.X, s.noise_variance, num_latent_gps=s.responses.shape[1]
    ),
    "{kind: kernelised, base_kernel: {kind: matern12, lengthscale: 0.5}}": lambda s: (
        gvi.covariances.KernelisedSVGP(
            s.prior.kernel, s.Z, base_kernel=gpflow.kernels.Matern12(lengthscales=[0.5, 0.5])
        )
    ),
    "regulariser": lambda s: s.P.kernel,
}


@pytest.mark.parametrize("text", COVARIANCES)
def test_covariances(text, start):
    built = part(objective.Covariance, text).build(start)
    direct = COVARIANCES[text](start)
    assert type(built) is type(direct)
    assert_close(built(start.X, full_cov=False), direct(start.X, full_cov=False))


def test_covariances_of_several_outputs(start):
    three = dataclasses.replace(start, responses=np.tile(start.responses, 3))
    covariance = part(objective.Covariance, "cholesky").build(three)
    assert covariance.num_outputs == 3


# Tables

UNIONS = {
    "loss": objective.Loss,
    "context": objective.Context,
    "divergence": objective.Divergence,
    "estimator": objective.Estimator,
    "covariance": objective.Covariance,
    "mean": objective.Mean,
}
OF_PYTHON = (
    *(gvi.mean_functions.Predictor, NetworkOutputs, gvi.mean_functions.MeanOfOutputs),
    gvi.covariances.Tempered,
)
"""What `learn` makes of what it has fitted."""


@pytest.mark.parametrize(
    ("noun", "module", "base"),
    [
        ("loss", gvi.losses, gvi.losses.Loss),
        ("divergence", gvi.divergences, gvi.divergences.Divergence),
        ("estimator", wasserstein, wasserstein.CovarianceDistance),
        ("covariance", gvi.covariances, gvi.covariances.Covariance),
        ("mean", gvi.mean_functions, gpflow.functions.MeanFunction),
    ],
)
def test_each_public_class_can_be_reached(noun, module, base, start):
    names = getattr(module, "__all__", vars(module))
    public = {
        value
        for value in (getattr(module, name) for name in names if not name.startswith("_"))
        if inspect.isclass(value) and issubclass(value, base) and not inspect.isabstract(value)
        if value.__module__.startswith(module.__name__)
        if not issubclass(value, OF_PYTHON)
    }
    assert public
    built = (part(UNIONS[noun], kind).build(start) for kind in parts(UNIONS[noun]))
    assert public <= {type(each) for each in built}


def _constructors():
    for noun, union in UNIONS.items():
        for kind, each in parts(union).items():
            if isinstance(each.entry, Constructor):
                yield pytest.param(each, id=f"{noun} {kind}")


OTHERS = {
    **{"alpha": 0.7, "beta": 2.5, "gamma": 0.5, "scale": 0.1, "tolerance": 0.3, "whiten": False},
    **{"num_points": 4, "iterations": 3, "rank": 2, "num_landmarks": 4},
    **{"context": "gaussian_noise", "estimator": "marginal", "base_kernel": "matern12"},
}
"""Values of keys that are not their defaults."""


@pytest.mark.parametrize("each", _constructors())
def test_a_kind_is_the_class_of_its_name_with_the_keys_that_are_given(each, start):
    def has_the_name(value, kind):
        return type(value).__name__.lower().startswith(kind.replace("_", ""))

    given = {name: OTHERS[name] for name in each.keys}
    built = each(**given).build(start)
    assert has_the_name(built, each.model_fields["kind"].default)
    for name, value in given.items():
        found = getattr(built, name)
        assert has_the_name(found, value) if isinstance(value, str) else found == value


@pytest.mark.parametrize("each", _constructors())
def test_keys_and_their_defaults_are_the_parameters_of_the_class(each):
    target = pkgutil.resolve_name(each.entry.path)
    constructor = target.__init__ if inspect.isclass(target) else target
    if not getattr(constructor, "__module__", "").startswith(
        "gpflow_gvi"
    ):  # it is inherited from TensorFlow
        assert not each.keys
        return
    found = inspect.signature(target).parameters
    expected = {
        name: parameter.default
        for name, parameter in found.items()
        if name not in each.entry.supplied
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    ours = {name: each.model_fields[name].default for name in each.keys}
    assert set(ours) == set(expected)
    for name, default in expected.items():
        assert default in (ours[name], inspect.Parameter.empty)  # a file may leave it out


@pytest.mark.parametrize("each", _constructors())
def test_bounds_of_the_schema_are_those_of_the_class(each):
    target = pkgutil.resolve_name(each.entry.path)
    schema = each.model_json_schema()
    if "properties" not in schema:
        schema = schema["$defs"][each.__name__]
    defaults = {name: each.model_fields[name].default for name in each.keys}
    numbers = {name: value for name, value in defaults.items() if isinstance(value, float)}
    for name in each.keys:
        schema_of_key = schema["properties"][name]
        for choice in [schema_of_key, *schema_of_key.get("anyOf", [])]:
            if choice.get("type") not in ("number", "integer"):
                continue
            edge = choice.get("exclusiveMinimum", choice.get("minimum", 0) - 1)
            value = type(edge)(edge)
            with pytest.raises(ValidationError):
                each.model_validate({name: value})
            with pytest.raises(ValueError, match=name):
                target(**{**numbers, name: value})


def test_each_key_of_a_class_of_another_library_is_a_parameter_of_it(site):
    shape = (8, 8, 1)
    for kind in parts(layer_kinds.Layer):
        model = layer_kinds.network(part(layer_kinds.Layers, [kind]), shape)
        layer = model.layers[0 if kind != "dense" else 1]
        each = part(layer_kinds.Layer, kind)
        for name in each.keys:
            value, wanted = getattr(layer, name), getattr(each, name)
            value = value.__name__ if callable(value) else value
            assert value in (wanted, (wanted, wanted))


# The other parts


@pytest.mark.parametrize("kind", ["adam", "adamax", "adamw", "nadam", "rmsprop", "sgd"])
def test_optimisers(kind):
    optimiser = part(training.Optimiser, {"kind": kind, "learning_rate": 0.5}).build(10)
    assert type(optimiser).__name__.lower() == kind
    schedule = optimiser._learning_rate
    found = [float(schedule(step)) for step in (0, 5, 10)]  # in float32
    assert_close(found, [0.5, 0.25, 0.0], precision=np.float32)
    constant = part(training.Optimiser, {"kind": kind, "schedule": "constant"}).build(10)
    assert_close(float(constant.learning_rate), 3e-3, precision=np.float32)


def test_posterior_of_the_data_is_that_of_all_rows(site):
    value = {
        "kernel": "matern52",
        "evidence": {"kind": "data", "max_rows": 25},
        "inducing": 4,
        "select": "uniform",
        "minimise": {"kind": "lbfgs", "max_iterations": 20},
    }
    config = regulariser.Regulariser.model_validate(value)
    settings = Settings(regulariser=config.build(), standardise=False)
    split = Split.of((site.X, site.Y), settings)
    fitted = Procedure(split, settings).fit_regulariser(site, None)
    sgpr = gpflow.models.SGPR(
        (site.X, site.Y),
        fitted.prior.kernel,
        fitted.inducing_points,
        noise_variance=fitted.likelihood.variance.numpy(),
    )
    # Its jitter is not smaller where the variance of the kernel is.
    assert_close(fitted.posterior.mean(site.X), sgpr.predict_f(site.X)[0], ITERATIVE)
    assert config.build().process(fitted) is fitted.posterior
    prior = regulariser.Regulariser.model_validate({**value, "mode": "prior"})
    assert prior.build().process(fitted) is fitted.prior
