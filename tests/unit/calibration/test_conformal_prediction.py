"""Conformal intervals and sets against what they promise."""

from __future__ import annotations

import math

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from gpflow_gvi.calibration.conformal_prediction import Conformal, conformal
from gpflow_gvi.calibration.tempering import temper
from gpflow_gvi.errors import NumericsWarning
from tests.models import data, make
from tests.tolerances import P_VALUE, assert_close, assert_estimates

ONES = np.ones((12, 1))


class Line:
    """A model of known mean and variance: y ~ N(slope·x, sd²)."""

    def __init__(self, slope: float = 2.0, sd: float = 1.0) -> None:
        self.slope, self.sd = slope, sd

    def predict_y(self, X: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        X = tf.convert_to_tensor(X)
        return self.slope * X, tf.fill(X.shape, tf.cast(self.sd**2, X.dtype))


def test_intervals_reach_out_by_an_order_statistic() -> None:
    """Ten residuals 1, 2, ..., 10 in each of two outputs, which are ten times as large in one."""
    X = np.zeros((10, 2))
    Y = np.random.default_rng(0).permutation(np.arange(1.0, 11.0))[:, None] * [1.0, -10.0]
    intervals = conformal(Line(sd=3.0), (X, Y))
    new = np.array([[0.0, 1.0], [5.0, 5.0], [7.0, -3.0]])
    # ⌈11·c⌉ is the rank.
    for coverage, rank in ((0.9, 10), (0.85, 10), (0.5, 6), (0.01, 1), (2 / 11, 2), (10 / 11, 10)):
        lower, upper = intervals.predict_interval(new, coverage)
        assert lower.shape == upper.shape == new.shape
        assert_close(upper, 2.0 * new + rank * np.array([1.0, 10.0]))
        assert_close(lower, 2.0 * new - rank * np.array([1.0, 10.0]))
    # 95 % is the default, for which ten points are too few.
    for coverage in ((), (0.95,), (0.91,)):
        with pytest.warns(NumericsWarning, match=r"for which 10 calibration .* at least (19|11), "):
            lower, upper = intervals.predict_interval(new, *coverage)
        assert np.all(np.equal(upper, np.inf))
        assert np.all(np.equal(lower, -np.inf))


@pytest.mark.filterwarnings("ignore:coverage is .* too few:UserWarning")
@pytest.mark.parametrize("n", [9, 19, 99, 199, 999])
def test_ranks_are_exact(n: int) -> None:
    """In integers there is no rounding; 100 · 0.55 has some."""
    intervals = Conformal(Line(), np.arange(1.0, n + 1.0)[:, None])
    for percent in range(1, 100):
        rank = -((n + 1) * percent // -100)
        expected = rank if rank <= n else np.inf
        assert intervals.quantile(percent / 100) == [expected]
        assert intervals.quantile(1.0 - (100 - percent) / 100) == [expected]


@pytest.mark.parametrize(("n", "coverage"), [(19, 0.9), (50, 0.8), (11, 0.5)])
def test_coverage_is_at_least_nominal(n: int, coverage: float) -> None:
    """Whatever the model: here it has a wrong slope, a wrong variance and the wrong tails.

    Given the calibration data the coverage of a new point has a Beta distribution with parameters
    k and n + 1 - k, where k is the rank (Vovk 2012): its mean lies in [c, c + 1/(n+1)).
    """
    repetitions = 20_000
    rng = np.random.default_rng(5)
    # Each output is a repetition, as the outputs are treated one by one.
    X = rng.normal(size=(n + 1, repetitions))
    Y = X + rng.standard_t(2.0, size=X.shape) * np.exp(X)
    intervals = conformal(Line(slope=1.7, sd=0.2), (X[:n], Y[:n]))
    lower, upper = (part.numpy() for part in intervals.predict_interval(X[n:], coverage))
    covered = np.mean((lower <= Y[n:]) & (Y[n:] <= upper))
    rank = math.ceil((n + 1) * coverage)
    assert coverage <= rank / (n + 1) < coverage + 1.0 / (n + 1)
    assert_estimates(covered, rank / (n + 1), np.sqrt(coverage * (1.0 - coverage) / repetitions))


def test_coverage_given_the_calibration_data_has_a_beta_distribution() -> None:
    n, repetitions, coverage = 30, 5000, 0.8
    rng = np.random.default_rng(6)
    Y = rng.laplace(size=(n, repetitions))
    intervals = conformal(Line(sd=0.5), (np.zeros_like(Y), Y))
    _, upper = intervals.predict_interval(np.zeros((1, repetitions)), coverage)
    covered = 1.0 - np.exp(-upper.numpy()[0])  # of a Laplace variable within ± upper
    rank = math.ceil((n + 1) * coverage)
    assert stats.kstest(covered, stats.beta(rank, n + 1 - rank).cdf).pvalue > P_VALUE


def test_conformal_intervals_of_models() -> None:
    """Of GPflow's, tempered and untempered: a common factor makes no difference to them."""
    X, Y = data()
    gpr = gpflow.models.GPR((X[:30], Y[:30]), gpflow.kernels.SquaredExponential())
    model = make()
    tempered = temper(model, (X[:30], Y[:30]))
    ends = []
    for each in (gpr, model, tempered):
        lower, upper = conformal(each, (X[30:], Y[30:])).predict_interval(X, 0.8)
        inside = (lower <= Y) & (upper >= Y)
        assert np.mean(inside[30:]) >= 0.8, "the calibration points themselves are covered"
        assert_close(0.5 * (lower + upper), each.predict_y(X)[0])
        ends.append(upper)
    assert_close(ends[1], ends[2])


def test_infinitely_many_deviations_of_zero_are_infinite() -> None:
    intervals = Conformal(Line(sd=0.0), np.array([[1.0], [2.0]]))
    lower, upper = intervals.predict_interval(np.ones((1, 1)), 0.9)
    assert upper == np.inf
    assert lower == -np.inf


def test_conformal_in_single_precision() -> None:
    X, Y = (part.astype(np.float32) for part in data())
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        intervals = conformal(make(), (X, Y))
        for coverage in (0.9, 0.999):
            for end in intervals.predict_interval(X, coverage):
                assert end.dtype == np.float32
                assert not np.any(np.isnan(end))


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 95, np.nan])
def test_coverage_lies_between_zero_and_one(coverage: float) -> None:
    intervals = conformal(Line(), (ONES, ONES))
    with pytest.raises(ValueError, match=f"coverage is {coverage}; it must lie between 0 and 1"):
        intervals.predict_interval(ONES, coverage)


def test_batches_of_inputs_are_refused() -> None:
    intervals = conformal(Line(), (ONES, ONES))
    with pytest.raises(ValueError, match=r"X has shape \(2, 3, 1\); it must be \[N, D\]"):
        intervals.predict_interval(np.ones((2, 3, 1)))
    with pytest.raises(ValueError, match=r"X has shape \(12, 1, 1\); it must be \[N, D\]"):
        conformal(Line(), (ONES[:, None], ONES))


BAD_CONFORMAL = {
    "no model": (TypeError, lambda: "line", ONES, r"model is 'line'; .*predict_y\(X\)"),
    "columns": (
        ValueError,
        lambda: make(2),
        ONES,
        r"Y of calibration_data has shape \(12, 1\), but the model predicts \(12, 2\)",
    ),
    "NaN": (ValueError, lambda: Line(), ONES * np.inf, "Y has NaN or infinite values"),
    "NaN predicted": (
        ValueError,
        lambda: Line(slope=np.nan),
        ONES,
        "predictions are NaN or infinite at 12 of the 12 rows of calibration_data",
    ),
    "no variance": (ValueError, lambda: Line(sd=0.0), ONES, "no variance at 12 of the 12 rows"),
}


@pytest.mark.parametrize("case", BAD_CONFORMAL)
def test_conformal_says_what_is_wrong(case: str) -> None:
    error, model, Y, message = BAD_CONFORMAL[case]
    with pytest.raises(error, match=message):
        conformal(model(), (ONES, Y))
