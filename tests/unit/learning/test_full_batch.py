"""Training on all rows at once, as experiments have it."""

from __future__ import annotations

import dataclasses
import json

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.experiments.config import Experiment
from gpflow_gvi.experiments.curves import thesis_curve
from gpflow_gvi.experiments.parts.objective import halton_box
from gpflow_gvi.experiments.parts.training import LBFGSTraining
from gpflow_gvi.experiments.run import run
from gpflow_gvi.learning.procedure import Hooks
from gpflow_gvi.learning.q_training import minimised
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.learning.start import Start, TrainingData
from gpflow_gvi.regulariser.lbfgs import lbfgs
from tests.tolerances import ITERATIVE, assert_close

N, NOISE = 40, 0.2
_RNG = np.random.default_rng(3)
X = np.sort(_RNG.uniform(-2.0, 2.0, size=(N, 1)), axis=0)
Y = np.sin(2.0 * X) + np.sqrt(NOISE) * _RNG.normal(size=(N, 1))
Z = np.linspace(-2.0, 2.0, 7)[:, None]


def bayesian() -> gvi.models.GVI:
    """Return the model of a Bayesian posterior at inducing points, at its prior."""
    k = gpflow.kernels.Matern52(lengthscales=0.8)
    P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    inducing = gpflow.inducing_variables.InducingPoints(Z)
    gpflow.set_trainable(inducing, False)
    mean = gvi.mean_functions.Inducing(k, inducing, q_mu=np.zeros([len(Z), 1]))
    Q = gvi.GaussianProcess(mean, gvi.covariances.CholeskySVGP(k, inducing))
    likelihood = gpflow.likelihoods.Gaussian(NOISE)
    gpflow.set_trainable(likelihood, False)
    return gvi.models.GVI(P, Q, likelihood, gvi.divergences.InducingKL(), num_data=N)


def given_to_the_minimiser(model: gvi.models.GVI):
    """The loss and the variables that a minimiser is called with."""
    given = []
    minimised(
        lambda *arguments: given.extend(arguments),
        lambda: model.training_loss((X, Y)),
        model.trainable_variables,
    )
    return given


def rows() -> TrainingData:
    unit = Scaling(np.zeros(1), np.ones(1))
    return TrainingData(X, Y, Y, 0, (1,), False, (unit, unit))


def test_it_ends_at_the_bound_of_titsias():
    model = bayesian()
    train = LBFGSTraining(iterations=300, tolerance=1e-14).build(None)
    result = train(model, rows(), None, share=1.0, hooks=Hooks())
    sgpr = gpflow.models.SGPR((X, Y), model.kernel, Z, noise_variance=NOISE)
    assert_close(model.elbo((X, Y)), sgpr.elbo(), tolerance=ITERATIVE)
    assert_close(min(result.history["loss"]), -sgpr.elbo(), tolerance=ITERATIVE)


def test_loss_and_gradient_are_those_of_a_tape():
    model = bayesian()
    loss, variables = given_to_the_minimiser(model)
    value, gradients = loss.value_and_gradients(variables)
    with tf.GradientTape() as tape:
        expected = model.training_loss((X, Y))
    assert_close(value, expected)
    for ours, theirs in zip(gradients, tape.gradient(expected, variables), strict=True):
        assert_close(ours, theirs)


def test_a_step_to_where_the_loss_is_not_finite_is_shortened():
    model = bayesian()
    loss, variables = given_to_the_minimiser(model)
    start = {id(variable): variable.numpy() for variable in variables}
    far = {id(variable): np.full(variable.shape, 1e200) for variable in variables}
    assert np.isnan(loss.value_and_gradients(variables, far)[0])
    before, _ = loss.value_and_gradients(variables, start)  # which assigns them
    lbfgs(loss, variables, max_iterations=200)
    assert float(model.training_loss((X, Y))) < before


def test_a_box_is_covered_evenly_and_always_by_the_same_points():
    data = dataclasses.replace(rows(), X=np.hstack([X, 10.0 * X]))
    context = halton_box(data, 256, 0.25)
    points = context(data.X).numpy()
    np.testing.assert_array_equal(points, context(data.X[:3]).numpy())
    lower, upper = data.X.min(axis=0) - 0.25, data.X.max(axis=0) + 0.25
    assert np.all((points >= lower) & (points <= upper))
    cells = np.floor(4.0 * (points - lower) / (upper - lower)).astype(int)
    counts = np.bincount(4 * cells[:, 0] + cells[:, 1], minlength=16)
    assert np.all((counts >= 12) & (counts <= 20))  # 16 of each; at random some have 8


def test_a_network_can_start_at_the_mean_of_the_posterior():
    data, k = rows(), gpflow.kernels.Matern52(lengthscales=0.8)
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    inducing = gpflow.inducing_variables.InducingPoints(Z)
    start = Start(**vars(data), P=prior, prior=prior, Z=inducing, noise_variance=NOISE)
    part = {"kind": "network", "readout": "random", "fitted_to": "posterior"}
    experiment = Experiment.model_validate({"data": "yacht", "mean": part})
    between = np.linspace(X.min(), X.max(), 101)[:, None]
    expected, _ = gpflow.models.SGPR((X, Y), k, Z, noise_variance=NOISE).predict_f(between)
    left = experiment.mean.build(start)(between) - expected
    assert np.sqrt(np.mean(np.square(left))) < 0.05 * np.std(expected)


CURVE = {
    "data": {"kind": "thesis_curve", "number": 4},
    "regulariser": {
        "kernel": {"kind": "squared_exponential", "lengthscale": 0.2},
        "inducing": {"power": 2},
    },
    "mean": {
        "kind": "network",
        "layers": [{"kind": "dense", "units": 20, "activation": "tanh"}] * 2,
        "readout": "random",
    },
    "covariance": "diagonal",
    "divergence": {"kind": "projected_kl", "weight": 0.1},
    "refit": False,
}


def metrics_of(experiment, folder):
    path = run(Experiment.model_validate(experiment), folder, pictures=False)
    return path, json.loads((path / "metrics.json").read_text())["validation"]


@pytest.mark.slow
def test_a_run_moves_a_network_to_the_data(tmp_path):
    training = {"kind": "lbfgs", "iterations": 300}
    folder, metrics = metrics_of({**CURVE, "training": training}, tmp_path)
    assert metrics["rmse"] < 0.6 < np.std(thesis_curve(4)["validation"][1])  # the noise is 0.5
    losses = np.loadtxt(folder / "history.csv", delimiter=",", skiprows=1)[:, 1]
    assert np.argmin(losses) > len(losses) // 2


@pytest.mark.slow
def test_few_points_with_several_starts_tell_noise_from_function(tmp_path):
    of_few = {
        **CURVE,
        "data": {"kind": "thesis_curve", "number": 1},
        "regulariser": {**CURVE["regulariser"], "evidence": "inducing", "starts": 6},
        "mean": "regulariser",
        "covariance": "regulariser",
        "training": {"kind": "lbfgs", "iterations": 1},
    }
    _, metrics = metrics_of(of_few, tmp_path)
    assert metrics["rmse"] < 0.8 * np.std(thesis_curve(1)["validation"][1])
