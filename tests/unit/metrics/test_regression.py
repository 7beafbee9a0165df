"""Metrics against their definitions, SciPy and scikit-learn, and what they are when rescaled."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, stats

import gpflow_gvi as gvi
from gpflow_gvi import metrics
from tests.tolerances import ITERATIVE, assert_close

N, J = 40, 2


@pytest.fixture
def predicted(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Observations, means and variances."""
    Y, mean = rng.normal(size=(2, N, J))
    return Y, mean, rng.gamma(2.0, size=(N, J))


def test_nll_is_summed_over_outputs_and_averaged_over_points(predicted) -> None:
    Y, mean, variance = predicted
    points = [
        stats.multivariate_normal.logpdf(Y[n], mean[n], np.diag(variance[n])) for n in range(N)
    ]
    assert_close(metrics.nll(Y, mean, variance), -np.mean(points))


@pytest.mark.parametrize(
    ("metric", "reference"),
    [("rmse", "root_mean_squared_error"), ("mae", "mean_absolute_error")],
)
def test_errors_are_those_of_sklearn(metric: str, reference: str, predicted) -> None:
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    Y, mean, _ = predicted
    # Over all entries: scikit-learn's mean over outputs is another one for the root.
    expected = getattr(sklearn_metrics, reference)(Y.ravel(), mean.ravel())
    assert_close(getattr(metrics, metric)(Y, mean), expected)


def test_crps_is_its_integral(predicted) -> None:
    Y, mean, variance = (part[:6] for part in predicted)

    def score(y: float, m: float, v: float) -> float:
        below = integrate.quad(lambda z: stats.norm.cdf(z, m, np.sqrt(v)) ** 2, -np.inf, y)[0]
        above = integrate.quad(lambda z: stats.norm.sf(z, m, np.sqrt(v)) ** 2, y, np.inf)[0]
        return below + above

    expected = np.mean(
        [score(*entry) for entry in zip(Y.flat, mean.flat, variance.flat, strict=True)]
    )
    assert_close(metrics.crps(Y, mean, variance), expected)


def test_coverage_and_width_of_intervals() -> None:
    lower = np.array([[0.0, 0.0], [1.0, -np.inf]])
    upper = np.array([[1.0, 2.0], [2.0, np.inf]])
    # In, on the upper end, on the lower end, in.
    assert metrics.coverage([[0.5, 2.0], [1.0, 1e9]], lower, upper) == 1.0
    assert metrics.coverage([[-0.1, 2.1], [1.5, -1e9]], lower, upper) == 0.5
    assert metrics.width(lower, upper) == np.inf
    assert metrics.width(lower[:1], upper[:1]) == 1.5


def test_calibration_error_counts_central_intervals(predicted) -> None:
    Y, mean, variance = predicted
    errors = []
    for level in metrics.LEVELS:
        lower, upper = stats.norm.interval(level, mean, np.sqrt(variance))
        errors.append(abs(metrics.coverage(Y, lower, upper) - level))
    assert_close(metrics.calibration_error(Y, mean, variance), np.mean(errors))


@pytest.mark.parametrize("convert", [tf.constant, np.float32, np.ndarray.tolist])
def test_any_arrays_go_in_and_floats_come_out(convert, predicted) -> None:
    parts = tuple(convert(part) for part in predicted)
    for metric, arguments in (
        (metrics.nll, parts),
        (metrics.crps, parts),
        (metrics.calibration_error, parts),
        (metrics.coverage, parts),
        (metrics.rmse, parts[:2]),
        (metrics.mae, parts[:2]),
    ):
        result = metric(*arguments)
        assert type(result) is float
        precision = np.float32 if convert is np.float32 else np.float64
        assert_close(result, metric(*predicted[: len(arguments)]), precision=precision)


ONES = np.ones((3, 1))


@pytest.mark.parametrize(
    ("call", "message"),
    {
        "a vector and a column": (
            lambda: metrics.rmse(ONES, ONES[:, 0]),
            r"Y has shape \(3, 1\), mean has shape \(3,\); they must be the same",
        ),
        "vectors": (
            lambda: metrics.mae(ONES[:, 0], ONES[:, 0]),
            r"Y has shape \(3,\); .*Y\[:, None\] makes a column",
        ),
        "nothing": (lambda: metrics.mae(ONES[:0], ONES[:0]), r"Y has shape \(0, 1\).*one entry"),
        "NaN": (lambda: metrics.crps(ONES, ONES * np.nan, ONES), "mean is NaN in 3 of 3 entries"),
        "no variance": (
            lambda: metrics.nll(ONES, ONES, 0.0 * ONES),
            "variance is zero, .* in 3 of 3 entries .*first is 0.0",
        ),
        "ends exchanged": (
            lambda: metrics.width(ONES, 0.0 * ONES),
            "lower is above upper in 3 of 3 intervals; pass the lower ends first",
        ),
    }.values(),
)
def test_bad_input(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# A model as a whole.


def model(
    rng: np.random.Generator, likelihood: gpflow.likelihoods.Likelihood | None = None
) -> gpflow.models.GPModel:
    """Return a GPflow model of two outputs."""
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(),
        gpflow.likelihoods.Gaussian(0.3) if likelihood is None else likelihood,
        rng.normal(size=(4, 1)),
        num_latent_gps=J,
    )
    model.q_mu.assign(rng.normal(size=(4, J)))
    return model


def assert_same_figures(
    found: dict[str, float], expected: dict[str, float], precision: type = np.float64
) -> None:
    assert found.keys() == expected.keys()
    for name, figure in found.items():
        assert_close(figure, expected[name], precision=precision)


def test_evaluate_gives_every_metric_of_the_predictions(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(N, 1)), rng.normal(size=(N, J))
    svgp = model(rng)
    result = metrics.evaluate(svgp, (X, Y), coverage_level=0.8)
    mean, variance = (part.numpy() for part in svgp.predict_y(X))
    lower, upper = stats.norm.interval(0.8, mean, np.sqrt(variance))
    expected = {
        "nll": -np.mean(svgp.predict_log_density((X, Y))),
        "rmse": metrics.rmse(Y, mean),
        "mae": metrics.mae(Y, mean),
        "crps": metrics.crps(Y, mean, variance),
        "coverage": metrics.coverage(Y, lower, upper),
        "width": metrics.width(lower, upper),
        "calibration_error": metrics.calibration_error(Y, mean, variance),
    }
    assert_same_figures(result, expected)
    assert_close(result["nll"], metrics.nll(Y, mean, variance))
    assert set(result) == set(metrics.METRICS)
    assert all(type(value) is float for value in result.values())


def test_nll_is_that_of_the_likelihood(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(N, 1)), rng.normal(size=(N, J))
    quadrature = gpflow.quadrature.NDiagGHQuadrature(1, 80)
    svgp = model(rng, gpflow.likelihoods.StudentT(scale=0.5, df=4.0, quadrature=quadrature))
    result = metrics.evaluate(svgp, (X, Y))
    f_mean, f_variance = (part.numpy() for part in svgp.predict_f(X))
    f = np.linspace(-12.0, 12.0, 4001)[:, None, None]
    density = stats.t.pdf(Y, 4.0, f, 0.5) * stats.norm.pdf(f, f_mean, np.sqrt(f_variance))
    expected = -np.mean(np.sum(np.log(integrate.trapezoid(density, f, axis=0)), axis=-1))
    assert_close(result["nll"], expected, ITERATIVE)


class Recorder:
    """A model that remembers how many rows it was asked for at a time."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def predict_y(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        self.rows.append(len(X))
        return 2.0 * X, 1.0 + X**2

    def predict_log_density(self, data: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        X, Y = data
        self.rows.append(len(X))
        return stats.norm.logpdf(Y, 2.0 * X, np.sqrt(1.0 + X**2))[:, 0]


def test_many_rows_are_predicted_in_blocks(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(2, 25_001, 1))
    recorder = Recorder()
    result = metrics.evaluate(recorder, (X, Y))
    assert max(recorder.rows) <= 10_000
    assert sum(recorder.rows) == 2 * len(X)
    assert_close(result["nll"], metrics.nll(Y, 2.0 * X, 1.0 + X**2))
    assert_close(result["rmse"], metrics.rmse(Y, 2.0 * X))


def test_the_true_process_is_best_in_the_direction_of_each_metric(rng: np.random.Generator) -> None:
    """The orientations say which of two predictions is the better one."""
    X = rng.normal(size=(4000, 1))
    Y = 2.0 * X + rng.normal(size=X.shape)

    class Line:
        def __init__(self, slope: float, sd: float) -> None:
            self.slope, self.sd = slope, sd

        def predict_y(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return self.slope * X, tf.fill(X.shape, tf.cast(self.sd**2, X.dtype))

        def predict_log_density(self, data: tuple[tf.Tensor, tf.Tensor]) -> np.ndarray:
            return stats.norm.logpdf(data[1], self.slope * data[0], self.sd)[:, 0]

    lines = ((2.0, 1.0), (1.0, 2.0), (1.0, 0.8))
    best, wide, narrow = (metrics.evaluate(Line(*line), (X, Y)) for line in lines)
    for name, metric in metrics.METRICS.items():
        assert metric.name == name
        for worse in (wide, narrow):
            if metric.orientation == "target":
                assert abs(best[name] - 0.95) < abs(worse[name] - 0.95)
            elif name != "width" or worse is wide:  # narrow is no fault of a width
                sign = {"lower": 1.0, "higher": -1.0}[metric.orientation]
                assert sign * best[name] < sign * worse[name]


def test_evaluate_in_single_precision(rng: np.random.Generator) -> None:
    X, Y = rng.normal(size=(N, 1)), rng.normal(size=(N, J))
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        svgp = model(np.random.default_rng(1))
        single = metrics.evaluate(svgp, (X.astype(np.float32), Y.astype(np.float32)))
    double = metrics.evaluate(model(np.random.default_rng(1)), (X, Y))
    assert_same_figures(single, double, np.float32)


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [
        (ValueError, {"coverage_level": 1.0}, r"coverage_level is 1.0; .*between 0 and 1"),
        (ValueError, {"Y": np.ones((5, 1))}, r"Y has shape \(5, 1\), mean has shape \(5, 2\)"),
        (ValueError, {"Y": np.full((5, J), np.nan)}, "Y has NaN"),
        (TypeError, {"model": gvi}, r"model is <module.*it must have a method predict_y"),
    ],
)
def test_evaluate_says_what_is_wrong(
    error: type[Exception], options: dict, message: str, rng: np.random.Generator
) -> None:
    options = dict(options)
    data = np.ones((5, 1)), options.pop("Y", np.ones((5, J)))
    likelihood = options.pop("likelihood", None)
    evaluated = options.pop("model", None) or model(rng, likelihood)
    with pytest.raises(error, match=message):
        metrics.evaluate(evaluated, data, **options)
