"""Learning under likelihoods of GPflow: their truth is known by simulation."""

from __future__ import annotations

import functools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from scipy import optimize, stats

import gpflow_gvi as gvi
from gpflow_gvi._core.data import Data
from gpflow_gvi.learning.rows import targets
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.regulariser.lbfgs import lbfgs
from tests.tolerances import ITERATIVE, STANDARD_ERRORS, assert_close, assert_estimates

N = 120


def _simulated(name, seed=0, N=N):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    f = np.sin(2.0 * X)
    return X, {
        "student": lambda: 100.0 + 10.0 * (f + 0.2 * rng.standard_t(3, size=f.shape)),
        "poisson": lambda: 1.0 * rng.poisson(20.0 * np.exp(f)),
        "gamma": lambda: rng.gamma(2.0, 1e3 * np.exp(f)),
        "beta": lambda: rng.beta(3.0 * stats.norm.cdf(f), 3.0 * stats.norm.cdf(-f)),
        "ordinal": lambda: 1.0 * np.digitize(2.0 * f + rng.normal(size=f.shape), [-1.0, 0.0, 1.0]),
        "varying": lambda: 100.0 + 10.0 * (f + np.exp(0.5 * X - 1.5) * rng.normal(size=f.shape)),
    }[name]()


LIKELIHOODS = {
    "student": likelihoods.StudentT,
    "poisson": likelihoods.Poisson,
    "gamma": likelihoods.Gamma,
    "beta": likelihoods.Beta,
    "ordinal": lambda: likelihoods.Ordinal(np.array([-1.0, 0.0, 1.0])),
    "varying": likelihoods.HeteroskedasticTFPConditional,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_density_is_that_of_svgp_and_intervals_hold(name):
    """GPflow's SVGP with the same likelihood, with all its parameters trained."""
    X, Y = _simulated(name)
    x, y = _simulated(name, seed=1, N=400)
    learned = gvi.learn((X, Y), kernel=gpflow.kernels.Matern52(), likelihood=LIKELIHOODS[name]())
    found = float(np.mean(learned.predict_log_density((x, y))))
    units = Scaling.of(Y) if name in ("student", "varying") else Scaling.none(Y)
    fitted = (
        LIKELIHOODS[name]()
        if name != "ordinal"
        else gvi.likelihoods.Ordinal(np.array([-1.0, 0.0, 1.0]))
    )
    J = fitted.latent_dim or 1
    kernel = gpflow.kernels.SeparateIndependent([gpflow.kernels.Matern52() for _ in range(J)])
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(X[::4])
    )
    mean = gpflow.functions.Constant(np.full(J, 6.0 if name == "gamma" else 0.0))
    svgp = gpflow.models.SVGP(kernel, fitted, Z, num_latent_gps=J, mean_function=mean)
    data = (X, units.standard(Y))
    gpflow.optimizers.Scipy().minimize(
        svgp.training_loss_closure(data), svgp.trainable_variables, options={"maxiter": 300}
    )
    rival = float(np.mean(svgp.predict_log_density((x, units.standard(y)))))
    rival -= float(np.sum(np.log(units.scale)))
    assert found > rival - 0.05
    lower, upper = learned.predict_interval(x, 0.9)
    held = np.mean((lower <= y) & (upper >= y))
    error = np.sqrt(0.9 * 0.1 / 400)
    if name in ("ordinal", "poisson"):  # whole numbers are held more often
        assert 0.9 - STANDARD_ERRORS * error < held < 1.0
    else:
        assert_estimates(held, 0.9, error)


def test_the_level_is_the_maximum_of_the_likelihood(monkeypatch):
    monkeypatch.setattr(targets, "WIDE", 1e9)  # without a prior
    monkeypatch.setattr(targets, "lbfgs", functools.partial(lbfgs, tolerance=1e-15))
    X, Y = _simulated("poisson")
    found = targets.level(likelihoods.Poisson(), Data.of((X, Y)))
    assert_close(found, np.log(Y.mean()), ITERATIVE)
    X, Y = _simulated("varying")
    found = targets.level(likelihoods.HeteroskedasticTFPConditional(), Data.of((X, Y / 50.0)))
    assert_close(found, [Y.mean() / 50.0, np.log(Y.std() / 50.0)], ITERATIVE)
    X, Y = _simulated("ordinal")
    likelihood = gvi.likelihoods.Ordinal(np.array([-1.0, 0.0, 1.0]))
    ends = np.array([-np.inf, -1.0, 0.0, 1.0, np.inf])
    counts = np.bincount(Y[:, 0].astype(int), minlength=4)
    best = optimize.minimize_scalar(
        lambda c: -np.sum(counts * np.log(np.diff(stats.norm.cdf(ends - c)))), (-1.0, 1.0)
    )
    assert_close(targets.level(likelihood, Data.of((X, Y))), best.x, ITERATIVE)


def test_counts_that_are_all_zero_have_a_finite_level():
    X = np.zeros((5, 1))
    found = targets.level(likelihoods.Poisson(), Data.of((X, np.zeros((5, 1)))))
    assert -20.0 < float(found[0]) < -1.0


def test_responses_are_a_step_of_scoring():
    """Of counts: log λ + (y - λ) / (mean square of y - λ), and of real numbers themselves."""
    X, Y = _simulated("poisson")
    found = targets.responses(likelihoods.Poisson(), Data.of((X, Y)))
    residual = Y - Y.mean()
    expected = np.log(Y.mean()) + residual / np.mean(np.square(residual))
    assert_close(found, expected, ITERATIVE)
    np.testing.assert_array_equal(targets.responses(None, Data.of((X, Y))), Y)
    student = targets.responses(likelihoods.StudentT(), Data.of((X, Y)))
    assert student.shape == Y.shape


def test_units_of_latent_functions_and_of_predictions():
    units = Scaling(np.array([5.0]), np.array([2.0]))
    of_f = targets.units_of_f(likelihoods.HeteroskedasticTFPConditional(), units)
    np.testing.assert_array_equal(of_f.shift, [5.0, 0.0])
    np.testing.assert_array_equal(of_f.scale, [2.0, 1.0])
    switched = likelihoods.SwitchedLikelihood([likelihoods.Gaussian()] * 3)
    none = Scaling.none(np.zeros((4, 2)))
    assert targets.units_of_f(switched, none).scale.shape == (1,)
    assert targets.units_of_predictions(switched, none).scale.shape == (3,)
    assert targets.units_of_f(None, units) is units


QUICK = {"kernel": gpflow.kernels.SquaredExponential(), "num_inducing": 8}


def test_counts_from_end_to_end(tmp_path):
    X, Y = _simulated("poisson")
    learned = gvi.learn((X, Y), likelihood=likelihoods.Poisson(), calibration_fraction=0.3, **QUICK)
    at = np.linspace(-2.5, 2.5, 20)[:, None]
    mean, variance = learned.predict_y(at)
    truth = 20.0 * np.exp(np.sin(2.0 * at))
    assert np.mean(np.abs(mean - truth) / truth) < 0.3
    assert np.all(variance > mean)  # that of the rate is added
    lower, upper = learned.predict_interval(at, 0.8)
    np.testing.assert_array_equal(lower, np.round(lower))
    x, y = _simulated("poisson", seed=1, N=400)
    ends = learned.predict_interval(x, 0.8)
    held = np.mean((ends[0] <= y) & (ends[1] >= y))
    assert 0.8 - STANDARD_ERRORS * np.sqrt(0.8 * 0.2 / 400) < held < 1.0
    learned.save(tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_interval(at, 0.8), (lower, upper))
    with pytest.raises(ValueError, match=r"\.5 in row 0.*counts"):
        learned.predict_log_density((x, y + 0.5))
    # With no score above it, an interval is all that a count may be.
    lower, upper = learned.predict_interval(at, 0.999)
    assert np.all(lower == 0.0)
    assert np.all(np.isinf(upper))


@pytest.mark.slow
def test_the_regressor_takes_a_likelihood():
    X, Y = _simulated("poisson")
    model = gvi.GVIRegressor(likelihood=likelihoods.Poisson(), random_state=0, **QUICK)
    prediction = model.fit(X, Y[:, 0]).predict(X)
    assert prediction.shape == (N,)
    assert np.all(prediction > 0.0)
    assert np.corrcoef(prediction, Y[:, 0])[0, 1] > 0.7
    switched = likelihoods.SwitchedLikelihood([likelihoods.Gaussian()] * 2)
    with pytest.raises(TypeError, match=r"SwitchedLikelihood.*gpflow_gvi\.learn"):
        gvi.GVIRegressor(likelihood=switched).fit(X, np.c_[Y, Y > 20.0])
    classifier = gvi.GVIClassifier(likelihood=likelihoods.Softmax(3))
    with pytest.raises(ValueError, match="Softmax of 3 classes, but y has 2"):
        classifier.fit(X, Y[:, 0] > 20.0)


@pytest.mark.slow
def test_several_latents_of_one_observation_have_a_kernel_each():
    X, Y = _simulated("varying")
    learned = gvi.learn(
        (X, Y),
        likelihood=likelihoods.HeteroskedasticTFPConditional(),
        effort="fast",
        num_inducing=8,
    )
    assert len(learned.regulariser.prior.kernel.kernels) == 2
    assert learned.predict_f(X)[0].shape == (N, 2)
    at = np.array([[-2.0], [2.0]])
    sd = np.sqrt(learned.predict_y(at)[1])
    assert sd[1, 0] > 3.0 * sd[0, 0]  # e² times, in truth
    assert_close(learned.predict_y(at)[0], learned.predict_f(at)[0][:, :1])
    assert tf.reduce_all(learned.predict_interval(at)[0] < learned.predict_y(at)[0])


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1000])
def test_counts_that_are_all_equal_have_that_rate(count, rng):
    X = rng.normal(size=(30, 2))
    options = {"likelihood": likelihoods.Poisson(), "effort": "fast", "num_inducing": 10}
    mean, _ = gvi.learn((X, np.full(30, count)), **options).predict_y(X[:2])
    error = np.sqrt(max(count, 1.0) / 30)  # of a mean
    assert_estimates(mean, count, error)
