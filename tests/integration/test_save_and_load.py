"""A model is saved, and in a new process it predicts the same, and its training goes on."""

from __future__ import annotations

import enum
import subprocess
import sys
import types
from pathlib import Path

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_gvi as gvi
from gpflow_gvi.calibration.conformal_prediction import Conformal
from gpflow_gvi.kernels import NNGP, FeatureMap, nngp
from gpflow_gvi.learning import Learned
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.regulariser.fit import Regulariser, Round
from gpflow_gvi.saving import load, save
from tests import catalogue, networks
from tests.designs import each_value
from tests.tolerances import assert_close

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(5)
X, NEW = RNG.normal(size=(12, 2)), RNG.normal(size=(5, 2))
Y = np.sin(X)
LABELS = RNG.integers(0, 2, size=(12, 1)).astype(float)


def model(
    kernel=None,
    J=1,
    *,
    covariance="CholeskySVGP",
    mean=None,
    likelihood=None,
    prior_mean=None,
    **options,
):
    """A model with one inducing variable for its mean and its covariance."""
    kind = options.pop("kind", gvi.models.PGVI)
    kernel = catalogue.kernels(J)["single"] if kernel is None else kernel
    Z = catalogue.inducing_points(X[:4])
    r = catalogue.COVARIANCES[covariance](kernel, Z, num_latent_gps=J)
    prior_mean = gpflow.functions.Constant(np.full(J, 0.3)) if prior_mean is None else prior_mean
    mean = (
        gvi.mean_functions.Inducing(kernel, Z, mean_function=prior_mean, num_latent_gps=J)
        if mean is None
        else mean
    )
    return kind(
        gvi.GaussianProcess(prior_mean, kernel),
        gvi.GaussianProcess(mean, r),
        gpflow.likelihoods.Gaussian(0.2) if likelihood is None else likelihood,
        **{"num_data": len(X), **options},
    )


def conditioned(kernel):
    process = gvi.GaussianProcess(gpflow.functions.Constant([0.1, 0.2]), kernel)
    return process.condition(X[:6], Y[:6], 0.1)


def on_conditioned():
    """A model that pulls towards a process that was conditioned on observations."""
    posterior = conditioned(catalogue.kernels(2)["shared"])
    parts = (
        posterior,
        gvi.GaussianProcess(gpflow.functions.Zero(2), catalogue.kernels(2)["shared"]),
    )
    return gvi.models.PGVI(*parts, gpflow.likelihoods.Gaussian(), num_data=len(X))


def coregionalised():
    return gpflow.kernels.LinearCoregionalization(
        [gpflow.kernels.Matern32(), gpflow.kernels.RBF()], W=np.array([[1.0, 0.3], [0.2, -1.0]])
    )


def sums():
    kernel = (
        gpflow.kernels.RBF(active_dims=[0]) + gpflow.kernels.Matern32() * gpflow.kernels.Linear()
    )
    mean = gpflow.functions.Linear(np.ones((2, 1))) + gpflow.functions.Constant([0.3])
    return model(kernel, prior_mean=mean)


def with_network():
    """Means and features that share one network, with moved statistics."""
    mean = gvi.mean_functions.Network(networks.regularised(keras))
    features = networks.dense(keras, F=3)
    for _ in range(3):
        mean.network.network(X.astype(np.float32), training=True)
    return model(FeatureMap(gpflow.kernels.RBF(), features), mean=mean)


def with_priors():
    result = model()
    variance = result.likelihood.variance
    variance.prior = tfp.distributions.Normal(np.float64(2.0), np.float64(3.0))
    variance.prior_on = "unconstrained"
    gpflow.set_trainable(result.variational.mean_function, False)
    return result


def svgp():
    kernel = gpflow.kernels.SharedIndependent(gpflow.kernels.Matern12(), 2)
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        catalogue.inducing_points(X[:4])
    )
    likelihood = gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear(np.ones((2, 2))))
    return gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=2, num_data=len(X))


LIKELIHOODS = {
    "Gaussian": lambda: gpflow.likelihoods.Gaussian(0.3),
    "Gaussian of X": lambda: gpflow.likelihoods.Gaussian(
        scale=gpflow.functions.Linear(np.ones((2, 1)))
    ),
    "StudentT": lambda: gpflow.likelihoods.StudentT(0.4, df=4.0),
    "Bernoulli": gpflow.likelihoods.Bernoulli,
    "Poisson": gpflow.likelihoods.Poisson,
    "Exponential": lambda: gpflow.likelihoods.Exponential(tf.nn.softplus),
    "Gamma": gpflow.likelihoods.Gamma,
    "Beta": gpflow.likelihoods.Beta,
    "Ordinal": lambda: gpflow.likelihoods.Ordinal(np.array([-0.5, 0.5])),
    "Switched": lambda: gpflow.likelihoods.SwitchedLikelihood(
        [gpflow.likelihoods.Gaussian(0.1), gpflow.likelihoods.StudentT()]
    ),
    "MultiClass": lambda: gpflow.likelihoods.MultiClass(3),
    "Softmax": lambda: gpflow.likelihoods.Softmax(3),
    "Heteroskedastic": lambda: gpflow.likelihoods.HeteroskedasticTFPConditional(
        tfp.distributions.Laplace, gpflow.utilities.positive(1e-3)
    ),
}
KERNELS = {
    "Sum": lambda: gpflow.kernels.RBF(active_dims=[1]) + gpflow.kernels.White(0.1),
    "Product": lambda: gpflow.kernels.Polynomial(2) * gpflow.kernels.RationalQuadratic(),
    "Periodic": lambda: gpflow.kernels.Periodic(gpflow.kernels.Matern52(), period=0.7),
    "ChangePoints": lambda: gpflow.kernels.ChangePoints(
        [gpflow.kernels.RBF(), gpflow.kernels.Matern12()], [0.1], steepness=3.0
    ),
    "ArcCosine": lambda: gpflow.kernels.ArcCosine(1, weight_variances=[0.5, 1.5]),
    "Coregion": lambda: gpflow.kernels.Coregion(3, 2, active_dims=[0]),
    "Convolutional": lambda: gpflow.kernels.Convolutional(gpflow.kernels.RBF(), [3, 3], [2, 2]),
    "LinearCoregionalization": coregionalised,
    "NNGP": lambda: NNGP([nngp.Dense(1.3, 0.1), nngp.Erf(), nngp.Dense()], input_shape=2),
    "FeatureMap": lambda: FeatureMap(gpflow.kernels.RBF(), networks.Perceptron(F=3)),
}
MODELS = {
    **{
        f"{name}-{J}-{sharing}": lambda name=name, J=J, sharing=sharing: model(
            catalogue.kernels(J)[sharing], J, covariance=name
        )
        for name, (J, sharing) in each_value(
            catalogue.COVARIANCES, [(1, "single"), (2, "separate")]
        )
    },
    "sums": sums,
    "conditioned": on_conditioned,
    "keras": lambda: with_network(),
    "priors": with_priors,
    "SVGP": svgp,
    "GPR": lambda: gpflow.models.GPR((X, Y), gpflow.kernels.RBF()),
    "weighted": lambda: model(num_data=tf.Variable(12), divergence_weight=tf.Variable(0.5)),
    "GWI": lambda: model(kind=gvi.models.GWI, num_data=tf.Variable(12)),
}


def trained(make):
    """A model whose variables are where no constructor puts them."""
    result, rng = make(), np.random.default_rng(8)
    for variable in result.trainable_variables:
        variable.assign_add(0.1 * rng.normal(size=variable.shape).astype(variable.dtype.name))
    return result


# The whole anatomy.


def portrait(thing):
    """Everything about a thing: which of its parts are the same, of which class, of which value.

    It walks through the attributes as Python has them, and knows nothing of what is saved.
    """
    numbers, lines, alive = {}, [], []

    def look(part, path):
        if isinstance(part, enum.Enum | type | types.FunctionType | str | int | float | None):
            lines.append((path, type(part), str(part)))
            return
        alive.append(part)
        seen = id(part) in numbers
        number = numbers.setdefault(id(part), len(numbers))
        kind = part.__class__.__name__
        lines.append((path, number, kind))
        if seen:
            return
        if isinstance(part, tf.Variable):
            lines.append((part.trainable, part.shape, part.dtype, part.numpy().tobytes()))
        elif isinstance(part, np.ndarray | tf.Tensor):
            array = np.asarray(part)
            lines.append((array.dtype, array.shape, array.tobytes()))
        elif "keras" in type(part).__module__:
            lines.append([np.asarray(weight).tobytes() for weight in part.weights])
        elif isinstance(part, dict):
            for key, value in part.items():
                look(value, f"{path}[{key}]")
        elif isinstance(part, list | tuple):
            for i, value in enumerate(part):
                look(value, f"{path}[{i}]")
        elif isinstance(part, slice):
            lines.append(repr(part))
        elif isinstance(part, tfp.bijectors.Bijector | tfp.distributions.Distribution):
            look(part.parameters, f"{path}.parameters")
        elif isinstance(part, gpflow.Parameter):
            for name in ("unconstrained_variable", "transform", "prior", "prior_on", "name"):
                look(getattr(part, name), f"{path}.{name}")
        else:
            for name in sorted(vars(part)):
                skip = ("_self_", "_name_scope", "conditional_distribution", "_known")
                if not name.startswith(skip):
                    look(vars(part)[name], f"{path}.{name}")

    look(thing, "")
    return lines


@pytest.mark.parametrize("name", MODELS)
def test_models_are_the_same_in_every_part(name, tmp_path):
    before = trained(MODELS[name])
    save(before, tmp_path / "saved")
    after = load(tmp_path / "saved")
    assert portrait(after) == portrait(before)
    for old, new in zip(before.predict_f(NEW), after.predict_f(NEW), strict=True):
        np.testing.assert_array_equal(new, old)
    shapes = [variable.shape for variable in before.trainable_variables]
    assert [variable.shape for variable in after.trainable_variables] == shapes


def test_a_portrait_sees_what_is_shared():
    """The test above is only as good as its portrait."""
    kernel = gpflow.kernels.RBF()
    once, twice = [kernel, kernel], [kernel, gpflow.utilities.deepcopy(kernel)]
    assert portrait(once) != portrait(twice)
    assert portrait(twice) == portrait([gpflow.kernels.RBF(), gpflow.kernels.RBF()])
    for change in (
        lambda k: gpflow.set_trainable(k.variance, False),
        lambda k: k.variance.assign(1.1),
        lambda k: setattr(k, "active_dims", [0]),
        lambda k: setattr(k.variance, "prior", tfp.distributions.Normal(0.0, 1.0)),
    ):
        changed = gpflow.kernels.RBF()
        change(changed)
        assert portrait(changed) != portrait(gpflow.kernels.RBF())


def test_parts_are_shared_as_before(tmp_path):
    before = model(covariance="CholeskySVGP")
    save(before, tmp_path / "saved")
    after = load(tmp_path / "saved")
    mean, covariance = after.variational.mean_function, after.variational.kernel
    assert mean.inducing_variable is covariance.inducing_variable
    assert mean.kernel is covariance.kernel is after.kernel
    assert mean.mean_function is after.mean_function
    assert len(after.trainable_variables) == len(before.trainable_variables)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods(name, tmp_path):
    before = LIKELIHOODS[name]()
    save(before, tmp_path / "saved")
    after = load(tmp_path / "saved")
    assert portrait(after) == portrait(before)
    F, labels = np.tile(X[:, :1], [1, before.latent_dim or 1]), LABELS
    if name in ("Beta", "Gamma", "Exponential"):
        labels = 0.5 * LABELS + 0.25
    elif name == "Softmax":
        labels = LABELS.astype(int)
    elif name == "Ordinal":  # the outer labels are NaN in GPflow
        labels = np.ones_like(LABELS)
    elif name == "Switched":
        labels = np.hstack([Y[:, :1], LABELS])
    expected = before.log_prob(X, F, labels)
    assert np.all(np.isfinite(expected))
    np.testing.assert_array_equal(after.log_prob(X, F, labels), expected)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name, tmp_path):
    before = KERNELS[name]()
    save(before, tmp_path / "saved")
    after = load(tmp_path / "saved", custom_objects={"Perceptron": networks.Perceptron})
    assert portrait(after) == portrait(before)
    points = {
        "Coregion": LABELS,
        "ChangePoints": X[:, :1],
        "Convolutional": RNG.normal(size=(4, 9)),
    }.get(name, X)
    np.testing.assert_array_equal(after(points), before(points))


def test_divergences_and_losses(tmp_path):
    before = {
        **{name: make() for name, make in catalogue.DIVERGENCES.items()},
        **{name: make() for name, make in catalogue.LOSSES.items()},
    }
    save(before, tmp_path / "saved")
    after = load(tmp_path / "saved")
    assert portrait(after) == portrait(before)
    assert {name: type(part) for name, part in after.items()} == {
        name: type(part) for name, part in before.items()
    }
    assert after["Renyi(0.3)"].alpha == 0.3


@pytest.mark.parametrize(
    "kernel",
    [lambda: catalogue.kernels(2)["separate"], coregionalised, lambda: gpflow.kernels.Linear()],
    ids=["independent", "correlated", "by weights"],
)
def test_conditioned_processes(kernel, tmp_path):
    before = conditioned(kernel())
    save(before, tmp_path / "saved")
    after = load(tmp_path / "saved")
    assert portrait(after) == portrait(before)
    for name in ("mean", "variance", "covariance"):
        np.testing.assert_array_equal(getattr(after, name)(NEW), getattr(before, name)(NEW))


def test_what_the_whole_procedure_returns(tmp_path):
    fitted = trained(MODELS["keras"])
    prior = gvi.GaussianProcess(fitted.mean_function, fitted.kernel)
    posterior = prior.condition(X[:4], Y[:4, :1], 0.1)
    rounds = (Round(np.arange(4), -1.5),)
    before = Learned(
        model=fitted,
        regulariser=Regulariser(
            prior,
            posterior,
            fitted.likelihood,
            X[:4],
            Y[:4, :1],
            rounds,
            converged=True,
        ),
        inputs=Scaling.of(X),
        outputs=Scaling.of(Y[:, :1]),
        history={"loss": [3.0, np.inf], "density": [-1.0, np.nan]},
        calibration=Conformal(fitted, np.sort(np.abs(Y[:, :1]), axis=0)),
    )
    save(before, tmp_path / "saved")
    after = load(tmp_path / "saved")
    assert type(after) is Learned
    assert after.calibration.model is after.model
    assert after.regulariser.prior.kernel is after.model.kernel
    assert repr(after.history) == repr(before.history)
    assert portrait(after) == portrait(before)
    for old, new in zip(before.predict_y(NEW), after.predict_y(NEW), strict=True):
        np.testing.assert_array_equal(new, old)
    for old, new in zip(
        before.predict_interval(NEW, 0.5), after.predict_interval(NEW, 0.5), strict=True
    ):
        assert np.all(np.isfinite(old))
        np.testing.assert_array_equal(new, old)


# Another process.

IN_NEW_PROCESS = (
    "CholeskySVGP(unwhitened)-2-separate",
    "Tempered-1-single",
    "conditioned",
    "keras",
    "priors",
    "SVGP",
)


def facts(thing):
    """What a model predicts, its training loss, and that after a step of training."""
    data = (X, Y[:, : thing.num_latent_gps])
    mean, variance = thing.predict_y(NEW)
    with tf.GradientTape() as tape:
        loss = thing.training_loss(data)
    variables = thing.trainable_variables
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    for variable, gradient in zip(variables, gradients, strict=True):
        variable.assign_sub(1e-3 * tf.convert_to_tensor(gradient))
    later = thing.training_loss(data)
    return {"mean": mean, "variance": variance, "loss": loss, "later": later}


def write_facts(folder):
    """What the new process does: load, predict, train."""
    for name in IN_NEW_PROCESS:
        np.savez(f"{folder}/{name}.npz", **facts(load(f"{folder}/{name}")))


@pytest.mark.slow
def test_in_a_new_process_it_predicts_and_trains_the_same(tmp_path):
    models = {name: trained(MODELS[name]) for name in IN_NEW_PROCESS}
    for name, thing in models.items():
        save(thing, tmp_path / name)
    program = (
        f"from tests.integration import test_save_and_load as t; t.write_facts({str(tmp_path)!r})"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)
    for name, thing in models.items():
        expected = facts(thing)
        assert np.all(expected["loss"] != expected["later"]), name
        with np.load(tmp_path / f"{name}.npz") as found:
            assert set(found) == set(expected)
            for what in expected:
                assert_close(found[what], expected[what])


def test_nothing_is_pickled(tmp_path):
    save(trained(MODELS["keras"]), tmp_path / "saved")
    files = [path for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".npz", ".keras"}
    for path in files:
        assert path.read_bytes()[:2] in (b"{\n", b"PK"), path
    with np.load(tmp_path / "saved" / "values.npz", allow_pickle=False) as values:
        assert all(values[name].dtype.kind in "biuf" for name in values)
