"""The whole procedure: units, splits, what is returned, and data that make it hard."""

from __future__ import annotations

import dataclasses

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.learning import Learned, Settings
from gpflow_gvi.learning.procedure import Hooks, Procedure
from gpflow_gvi.learning.q_training import BatchTraining, CosineAdam, Passes
from gpflow_gvi.learning.rows.split import Split
from gpflow_gvi.learning.settings import LBFGS, RegulariserSettings
from tests.references import jitter_of_posteriors
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

QUICK = {"num_inducing": 8, "epochs": 1}


def _kernel():
    return gpflow.kernels.SquaredExponential()


def _curve(N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(100.0, 106.0, size=(N, 1))  # far from standard units
    return X, 1e4 * (3.0 + np.sin(X - 100.0) + 0.1 * rng.normal(size=X.shape))


@pytest.fixture(scope="module")
def learned():
    return gvi.learn(_curve(150), kernel=_kernel(), calibration_fraction=0.3, **QUICK)


def test_predicts_in_original_units(learned):
    X, Y = _curve(400, seed=1)
    mean, variance = learned.predict_y(X)
    truth = 1e4 * (3.0 + np.sin(X - 100.0))
    assert_estimates(mean, truth, np.sqrt(learned.predict_f(X)[1]))
    seen = 105  # rows, as the others calibrate
    assert_estimates(np.sqrt(variance), 1e3, 1e3 / np.sqrt(2 * seen))
    ratio = np.mean(np.square(Y - mean) / variance)
    assert_estimates(ratio, 1.0, np.sqrt(2.0 / 400 + 2.0 / seen))


@pytest.mark.parametrize("name", ["calibration_fraction", "validation_fraction"])
def test_noise_is_predicted_by_a_constant_where_rows_are_set_aside(rng, name):
    X, Y = rng.normal(size=(60, 3)), rng.normal(size=(60, 1))
    mean, _ = gvi.learn((X, Y), **{name: 0.25}).predict_y(rng.normal(size=(50, 3)))
    assert np.ptp(mean) < 1e-6


def test_densities_are_those_of_the_predictions(learned):
    X, Y = _curve(20, seed=1)
    mean, variance = learned.predict_y(X)
    expected = scipy.stats.norm.logpdf(Y, mean, np.sqrt(variance))[:, 0]
    assert_close(learned.predict_log_density((X, Y)), expected)
    assert_close(learned.predict_log_density((X, Y[:, 0])), expected)
    figures = gvi.metrics.evaluate(learned, (X, Y))
    assert_close(figures["nll"], -expected.mean())


def test_function_and_noise_make_up_an_observation(learned):
    X, _ = _curve(20, seed=1)
    f_mean, f_variance = learned.predict_f(X)
    y_mean, y_variance = learned.predict_y(X)
    assert_close(f_mean, y_mean)
    noise = np.asarray(y_variance - f_variance)
    assert np.all(noise > 0.0)
    assert_close(noise, noise[0, 0])
    _, covariance = learned.predict_f(X, full_cov=True)
    assert_close(np.diag(covariance[0]), f_variance[:, 0])


@pytest.mark.draws
def test_samples_have_the_moments_of_the_function(learned):
    X, _ = _curve(5, seed=1)
    samples = np.asarray(learned.predict_f_samples(X, 4000))
    mean, variance = (np.asarray(part) for part in learned.predict_f(X))
    assert samples.shape == (4000, 5, 1)
    assert_estimates(samples.mean(axis=0), mean, np.sqrt(variance / 4000))
    assert_estimates(samples.var(axis=0), variance, np.sqrt(2.0 / 4000) * variance)


def test_samples_of_observations_have_the_moments_of_the_prediction(learned):
    X, _ = _curve(5, seed=1)
    samples = learned.predict_y_samples(X, 20_000, seed=0)
    mean, variance = (np.asarray(part) for part in learned.predict_y(X))
    assert_estimates(samples.mean(axis=0), mean, np.sqrt(variance / 20_000))
    covariance = np.array(learned.predict_f(X, full_cov=True)[1][0])
    np.fill_diagonal(covariance, variance)  # each observation has noise of its own
    error = np.sqrt((variance @ variance.T + covariance**2) / 20_000)
    assert_estimates(np.cov(samples[..., 0].T), covariance, error)
    np.testing.assert_array_equal(
        learned.predict_y_samples(X, 2, seed=3), learned.predict_y_samples(X, 2, seed=3)
    )


def test_intervals_with_and_without_calibration(learned):
    X, Y = _curve(2000, seed=1)
    for predictor in (learned, dataclasses.replace(learned, calibration=None)):
        lower, upper = predictor.predict_interval(X, 0.8)
        held = np.mean((lower <= Y) & (upper >= Y))
        assert_estimates(held, 0.8, np.sqrt(0.8 * 0.2 / 45))  # as many rows calibrate
    mean, variance = learned.predict_y(X)
    # Without calibration: the quantiles of the predictive density.
    assert_close(upper, scipy.stats.norm.ppf(0.9, mean, np.sqrt(variance)))
    with pytest.raises(ValueError, match=r"coverage is 1\.5"):
        predictor.predict_interval(X, 1.5)


def test_history_has_the_loss_its_terms_and_the_held_out_density(learned):
    assert {"loss", "val_nll"} <= set(learned.history)
    assert all(len(values) == 1 for values in learned.history.values())


@pytest.mark.slow
def test_is_what_its_seed_makes_it():
    X, _ = _curve(10, seed=1)
    first, second = (
        gvi.learn(_curve(60), kernel=_kernel(), seed=3, **QUICK).predict_y(X) for _ in range(2)
    )
    assert_close(first, second, ITERATIVE)


@pytest.mark.slow
def test_units_do_not_matter():
    X, Y = _curve(60)
    x, _ = _curve(10, seed=1)
    plain = gvi.learn((X, Y), kernel=_kernel(), **QUICK).predict_y(x)
    scaled = gvi.learn((7.0 * X - 2.0, 0.001 * Y[:, 0] + 5.0), kernel=_kernel(), **QUICK)
    mean, variance = scaled.predict_y(7.0 * x - 2.0)
    assert_close(mean, 0.001 * plain[0] + 5.0, ITERATIVE)
    assert_close(variance, 1e-6 * plain[1], ITERATIVE)


def test_saved_and_loaded_it_predicts_the_same(learned, tmp_path):
    X, _ = _curve(10, seed=1)
    learned.save(tmp_path / "model")
    for loaded in (gvi.load(tmp_path / "model"), Learned.load(tmp_path / "model")):
        assert_close(loaded.predict_y(X), learned.predict_y(X))
        assert_close(loaded.predict_interval(X, 0.9), learned.predict_interval(X, 0.9))
    gvi.save(_kernel(), tmp_path / "kernel")
    with pytest.raises(TypeError, match="SquaredExponential, not a Learned"):
        Learned.load(tmp_path / "kernel")


@pytest.mark.slow
def test_validation_data_of_the_caller_are_not_trained_with():
    data, validation_data = _curve(60), _curve(30, seed=1)
    learned = gvi.learn(data, kernel=_kernel(), validation_data=validation_data, **QUICK)
    assert int(learned.model.num_data) == 60
    # Tempering is by the held-out residuals: with them, the mean of (y - m)²/v is one.
    X, Y = validation_data
    mean, variance = learned.predict_y(X)
    assert_close(np.mean(np.square(Y - mean) / variance), 1.0)


def test_rows_held_out_by_itself_join_in_the_end(learned):
    assert int(learned.model.num_data) == 105  # all but those of the calibration


class Seen(Hooks):
    """Keeps the model that has not seen the rows for validation."""

    def before_refit(self, learned):
        self.learned = learned


def _split_and_settings(**changes):
    settings = Settings(
        regulariser=RegulariserSettings(
            kernels=lambda _: [_kernel()], num_inducing=8, heavy_tails=False
        ),
        training=BatchTraining(Passes(epochs=0), CosineAdam(), None),
        trains=True,
        **changes,
    )
    return Split.of(_curve(60), settings), settings


def test_the_refit_takes_the_factor_that_was_found_without_it():
    split, settings = _split_and_settings()
    hooks = Seen()
    learned = Procedure(split, settings, hooks).run()
    assert [int(each.model.num_data) for each in (hooks.learned, learned)] == [50, 60]
    X, Y = split.validation
    mean, variance = hooks.learned.predict_y(X)
    assert_close(np.mean(np.square(Y - mean) / variance), 1.0)  # what tempering is for
    factors = [each.model.variational.kernel.factor for each in (hooks.learned, learned)]
    np.testing.assert_array_equal(*factors)
    # P is the sparse posterior given all rows.
    inputs, outputs = (np.concatenate(parts) for parts in zip(split.train, (X, Y), strict=True))
    sgpr = gpflow.models.SGPR(
        split.standard((inputs, outputs)),
        learned.regulariser.prior.kernel,
        learned.regulariser.inducing_points,
        noise_variance=learned.regulariser.likelihood.variance.numpy(),
    )
    x = learned.inputs.standard(X)
    with jitter_of_posteriors():
        expected = sgpr.predict_f(x)[0]
    assert_close(learned.model.regulariser.mean(x), expected, ITERATIVE)


def test_without_a_refit_or_tempering_neither_takes_place():
    split, settings = _split_and_settings(refit=False)
    assert int(Procedure(split, settings).run().model.num_data) == 50
    split, settings = _split_and_settings(temper=None)
    learned = Procedure(split, settings).run()
    assert int(learned.model.num_data) == 60
    assert isinstance(learned.model.variational.kernel, gvi.covariances.CholeskySVGP)


@pytest.mark.slow
def test_network_divergence_and_model_of_the_callers_choice():
    layers = [tf.keras.Input((1,)), tf.keras.layers.Dense(1, kernel_initializer="zeros")]
    learned = gvi.learn(
        _curve(60),
        kernel=[_kernel(), gpflow.kernels.Matern52()],
        network=tf.keras.Sequential(layers),
        model=gvi.models.GWI,
        divergence=gvi.divergences.GaussianWasserstein("marginal"),
        divergence_weight=0.5,
        **QUICK,
    )
    assert isinstance(learned.model, gvi.models.GWI)
    assert learned.model.divergence_weight == 0.5
    X, _ = _curve(5, seed=1)
    P, Q = (learned.model.regulariser, learned.model.variational)
    x = learned.inputs.standard(X)
    expected = sum(
        np.sum(value) for value in (np.square(P.mean(x) - Q.mean(x)), P.variance(x), Q.variance(x))
    )
    assert_close(learned.model.divergence(Q, P, x), expected / 5)


def test_the_divergence_of_inducing_variables_makes_it_a_gpflow_svgp():
    learned = gvi.learn(
        _curve(60),
        kernel=_kernel(),
        divergence=gvi.divergences.InducingKL(),
        divergence_weight=1.0,
        validation_fraction=None,
        **QUICK,
    )
    mean, tempered = learned.model.variational.mean_function, learned.model.variational.kernel
    peer = gpflow.models.SVGP(
        learned.model.regulariser.kernel,
        learned.likelihood,
        mean.inducing_variable,
        q_mu=mean.q_mu.numpy(),
        q_sqrt=tempered.kernel.q_sqrt.numpy(),
        whiten=mean.whiten,
    )
    X = np.linspace(-2.0, 2.0, 7)[:, None]
    with jitter_of_posteriors():
        f_mean, f_variance = peer.predict_f(X)
    found = learned.model.predict_f(X)
    assert_close(found[0], f_mean, ITERATIVE)
    assert_close(found[1], tempered.factor * f_variance, ITERATIVE)


@pytest.mark.slow
def test_several_outputs():
    X, Y = _curve(60)
    learned = gvi.learn((X, np.hstack([Y, -0.01 * Y])), kernel=_kernel(), **QUICK)
    mean, variance = (np.asarray(part) for part in learned.predict_y(X))
    assert mean.shape == variance.shape == (60, 2)
    assert_close(mean[:, 1], -0.01 * mean[:, 0])


@pytest.mark.slow
def test_the_default_recipe_takes_several_features(rng):
    settings = Settings(
        regulariser=RegulariserSettings(num_inducing=20, minimise=LBFGS(20)),
        training=BatchTraining(Passes(epochs=1), CosineAdam(), None),
    )
    X = rng.normal(size=(80, 3)) * [1.0, 100.0, 0.01]
    X[:, 2] = 0.5  # constant
    Y = np.sin(2.0 * X[:, :1]) + 0.01 * X[:, 1:2] + 0.1 * rng.normal(size=(80, 1))
    learned = Procedure(Split.of((X, Y), settings), settings).run()
    mean, _ = learned.predict_y(X)
    assert gvi.metrics.rmse(Y, mean) < 0.3 * np.std(Y)


@pytest.mark.filterwarnings("ignore::gpflow_gvi.errors.NumericsWarning")
@pytest.mark.parametrize("N", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_hardly_any_data(N):
    """But not of one row, which tells no scale."""
    X, Y = _curve(N)
    with pytest.raises(ValueError, match="Y has one row"):
        gvi.learn((X[:1], Y[:1]), kernel=_kernel(), **QUICK)
    mean, variance = gvi.learn((X, Y), kernel=_kernel(), **QUICK).predict_y(X)
    assert np.all(np.isfinite(mean))
    assert np.all(variance > 0.0)


def test_too_few_rows_to_hold_out_give_a_warning():
    with pytest.warns(NumericsWarning, match=r"validation_fraction=0\.1: 20 rows are too few"):
        gvi.learn(_curve(20), kernel=_kernel(), **QUICK)


def test_an_exact_function_of_correlated_columns_is_as_certain_as_it_was_judged(rng):
    x = rng.uniform(-1.0, 1.0, size=60)
    columns = x, x**2, x**3, x**4, np.exp(x), np.sin(3.0 * x), *rng.normal(size=(4, 60))
    X = np.stack(columns, axis=1)
    Y = X @ rng.normal(size=(10, 1))
    kernel = gpflow.kernels.Linear() + gpflow.kernels.Constant()
    mean, variance = gvi.learn((X[:40], Y[:40]), kernel=kernel).predict_y(X[40:])
    assert np.max(np.sqrt(variance)) < 1e-4 * np.std(Y)
    assert np.max(np.abs(Y[40:] - mean) / np.sqrt(variance)) < 5.0


@pytest.mark.slow
def test_rows_of_one_group_say_more_of_each_other_than_of_the_next_one():
    """A group is known by a value of its rows, on which Y depends smoothly beside its own effect.

    What groups have of their own is not noise: who knows all but these has errors of one. Smooth
    kernels with short lengthscales find them by chance, but not in this draw.
    """
    rng = np.random.default_rng(0)
    group = rng.integers(150, size=500)
    X = rng.normal(size=(500, 4))
    X[:, 0] = np.round(rng.gamma(2.0, size=150), 3)[group]
    f = 3.0 * (np.tanh(X[:, 0] - 1.5) + X[:, 1] + 0.5 * np.sin(2.0 * X[:, 2]))
    f += rng.normal(size=150)[group]
    Y = (f + 0.3 * rng.normal(size=500))[:, None]
    mean, variance = gvi.learn((X[:400], Y[:400])).predict_y(X[400:])
    of_known = np.isin(group[400:], group[:400])
    errors = (mean[:, 0] - f[400:])[of_known]
    assert np.sqrt(np.mean(np.square(errors))) < 0.6
    inside = np.abs(Y[400:] - mean) < 2.0 * np.sqrt(variance)
    assert np.mean(inside) >= 0.88


@pytest.mark.slow
def test_duplicated_rows_and_more_inducing_points_than_data():
    X, Y = (np.repeat(part, 2, axis=0) for part in _curve(30))
    learned = gvi.learn((X, Y), kernel=_kernel(), num_inducing=500, epochs=1)
    assert np.all(np.isfinite(learned.predict_y(X)[0]))


def test_constant_targets_are_refused_with_a_reason():
    X, Y = _curve(60)
    with pytest.raises(ValueError, match="Y is constant in column 0"):
        gvi.learn((X, np.full_like(Y, 3.0)), kernel=_kernel(), **QUICK)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"validation_fraction": 1.0}, r"validation_fraction is 1\.0"),
        ({"calibration_fraction": -0.1}, r"calibration_fraction is -0\.1"),
        ({"num_inducing": 0}, "num_inducing is 0"),
        ({"epochs": -1}, "epochs is -1"),
    ],
)
def test_bad_options(change, words):
    with pytest.raises(ValueError, match=words):
        gvi.learn(_curve(60), kernel=_kernel(), **{**QUICK, **change})


def test_models_that_cannot_be_are_refused():
    with pytest.raises(TypeError, match="GVI, which has no divergence of its own"):
        gvi.learn(_curve(60), model=gvi.models.GVI)


def test_bad_data():
    X, Y = _curve(60)
    with pytest.raises(ValueError, match="X has 60 rows and Y has 59"):
        gvi.learn((X, Y[1:]), kernel=_kernel())
    with pytest.raises(ValueError, match="Y has NaN"):
        gvi.learn((X, np.where(Y > 3e4, np.nan, Y)), kernel=_kernel())
    with pytest.raises(ValueError, match=r"validation_data\[1\] has NaN"):
        gvi.learn((X, Y), validation_data=(X, np.full_like(Y, np.nan)), kernel=_kernel())


def test_a_network_of_the_wrong_width_is_named():
    layers = [tf.keras.Input((1,)), tf.keras.layers.Dense(3)]
    X, Y = _curve(60)
    with pytest.raises(ValueError, match="3"):
        gvi.learn(
            (X, np.hstack([Y, Y])), kernel=_kernel(), network=tf.keras.Sequential(layers), **QUICK
        )


@pytest.mark.slow
def test_a_network_that_returns_nan_stops_training():
    with pytest.raises(gvi.errors.NonFiniteLossError, match="nan"):
        gvi.learn(_curve(60), kernel=_kernel(), network=lambda X: np.nan * X, **QUICK)


def test_data_that_are_no_pair_are_told():
    X, Y = _curve(60)
    with pytest.raises(TypeError, match=r"learn\(\(X, Y\)\)"):
        gvi.learn(X, Y)
    with pytest.raises(ValueError, match=r"data is a dict; .*pair of arrays \(X, Y\).*Dataset"):
        gvi.learn({"X": X, "Y": Y})
    with pytest.raises(ValueError, match=r"Y has examples of class 'cat' alone"):
        gvi.learn((X, np.full(60, "cat")))
    with pytest.raises(ValueError, match=r"validation_data is a ndarray"):
        gvi.learn((X, Y), validation_data=X)


@pytest.mark.slow
def test_a_trend_and_a_season_go_on_where_the_data_end(rng):
    t = np.arange(160.0)[:, None]
    f = 5.0 + 0.08 * t + 1.5 * np.sin(2.0 * np.pi * t / 12.0)
    Y = f + 0.3 * rng.normal(size=t.shape)
    learned = gvi.learn((t[:96], Y[:96]))
    mean, variance = learned.predict_f(t[96:])
    assert np.sqrt(np.mean(np.square(mean - f[96:]))) < 0.5  # without a trend it is above 3
    assert np.mean(np.abs(mean - f[96:]) < 3.0 * np.sqrt(variance)) > 0.9
    assert variance[-1, 0] > variance[0, 0]


@pytest.mark.slow
def test_the_least_effort_has_tails_as_well(rng):
    X = rng.uniform(-2.0, 2.0, size=(400, 1))
    Y = np.sin(2.0 * X) + 0.1 * rng.standard_t(2.0, size=X.shape)
    fits = [
        gvi.learn((X[:200], Y[:200]), effort="fast", num_inducing=20, noise=noise)
        for noise in (None, "constant")
    ]
    densities = [np.mean(fit.predict_log_density((X[200:], Y[200:]))) for fit in fits]
    assert densities[0] > densities[1] + 0.1
    mean, variance = fits[1].predict_y(X[200:])
    gaussian = scipy.stats.norm.logpdf(Y[200:], mean, np.sqrt(variance))
    assert_close(densities[1], np.mean(gaussian))
