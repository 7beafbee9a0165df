"""Candidates are judged by fits that have not seen the rows that they predict."""

from __future__ import annotations

import re

import gpflow
import numpy as np
import pytest
import scipy.stats
from gpflow.likelihoods import Bernoulli
from sklearn.datasets import make_friedman1
from sklearn.linear_model import LinearRegression

import gpflow_gvi as gvi
from gpflow_gvi.learning.fit_by_evidence import EvidenceFits
from gpflow_gvi.learning.judge import members, unseen
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.learning.score import Calibration, Predictions, degrees_of_freedom
from gpflow_gvi.learning.search import search
from gpflow_gvi.learning.settings import LBFGS, RECIPE, RegulariserSettings, Settings
from gpflow_gvi.learning.start import TrainingData
from tests.tolerances import ITERATIVE, assert_close, assert_estimates


def _fits(X, Y, *kernels, standardise=False, **options):
    units = Scaling.none(X), Scaling.none(Y)
    data = TrainingData(X, Y, Y, 0, X.shape[1:], False, units)
    regulariser = RegulariserSettings(kernels=lambda _: kernels, noise="constant", **options)
    return EvidenceFits(data, Settings(regulariser, standardise=standardise))


def _given_everything():
    kernel = gpflow.kernels.SquaredExponential(1.3, 0.8)
    gpflow.set_trainable(kernel, False)
    return kernel


def test_each_fold_is_predicted_by_an_exact_process_of_the_others(rng):
    """Where hyper-parameters are known; rows of equal inputs are left out together."""
    X = rng.uniform(-2.0, 2.0, size=(15, 1))[rng.integers(0, 15, size=30)]
    Y = np.sin(X) + 0.3 * rng.normal(size=X.shape)
    kernel = _given_everything()
    fits = _fits(X, Y, kernel, predictors=None)
    fits.likelihood = gpflow.likelihoods.Gaussian(0.09)
    gpflow.set_trainable(fits.likelihood, False)
    ((_, found),) = unseen(fits, search(fits))
    assert len(found.mean) == 3  # partitions
    for r in range(3):
        for x in np.unique(X):
            own = X[:, 0] == x
            assert_close(found.mean[r, own], found.mean[r, own][0], scale=1.0)
        folds = fits.predictors.of_partition(r).fold if r else fits.predictors.fold
        held = folds == folds[0]
        exact = gpflow.models.GPR((X[~held], Y[~held]), kernel, noise_variance=0.09)
        mean, variance = exact.predict_y(X[held])
        assert_close(found.mean[r, held], mean, ITERATIVE, scale=1.0)
        assert_close(found.variance[r, held], variance, ITERATIVE)


@pytest.mark.parametrize("judges", [True, False])
def test_what_predicts_is_at_an_optimum_of_the_evidence(judges, rng):
    """Also if the kernels to choose among were hardly fitted."""
    X = rng.uniform(-2.0, 2.0, size=(80, 2))
    Y = np.sin(4.0 * X[:, :1]) + 0.5 * X[:, 1:] + 0.1 * rng.normal(size=(80, 1))
    starts = gpflow.kernels.Matern52(), gpflow.kernels.SquaredExponential(lengthscales=[5.0, 5.0])
    fits = _fits(X, Y, *starts, predictors=None, minimise_briefly=LBFGS(1))
    best, *_ = members([fits], is_free=False, mixes=False, judges=judges)
    P, likelihood = best.regulariser.prior, best.regulariser.likelihood
    exact = gpflow.models.GPR((X, Y), P.kernel, likelihood=likelihood)
    found = exact.training_loss().numpy()
    gpflow.optimizers.Scipy().minimize(exact.training_loss, exact.trainable_variables)
    assert found < exact.training_loss().numpy() + 0.1


def test_predictors_without_weight_change_no_prediction(rng):
    X = rng.uniform(-2.0, 2.0, size=(60, 2))
    Y = np.sin(X[:, :1]) + 0.3 * rng.normal(size=(60, 1))
    fits = _fits(X, Y, _given_everything(), predictors=RECIPE)
    assert fits.predictors.num_means
    plain = fits.candidate(_given_everything())
    around = plain.replace(weights=np.zeros((fits.predictors.num_means, 1)))
    found = unseen(fits, [fits.screened(each) for each in (plain, around)])
    (_, expected), (_, ours) = found
    assert_close(ours.mean, expected.mean, ITERATIVE, scale=1.0)
    assert_close(ours.variance, expected.variance, ITERATIVE)


def test_scales_are_compared_in_the_same_way_where_one_of_two_outputs_is_on_a_grid(rng):
    """A grid that nobody has looked at is forgotten by no scale."""
    X = rng.uniform(-2.0, 2.0, size=(30, 1))
    f = 5.0 + np.sin(X)
    Y = np.hstack([np.round(2.0 * f) / 2.0, f + 0.1 * rng.normal(size=X.shape)])
    of_y, of_other_scale = (_fits(X, Y, _given_everything(), predictors=None) for _ in range(2))
    members([of_y, of_other_scale], is_free=False, mixes=False, judges=False)
    assert np.all(np.isfinite(of_y.spacing) == [True, False])
    np.testing.assert_array_equal(of_other_scale.spacing, of_y.spacing)


def test_around_predictors_nothing_has_seen_the_row(rng):
    """A predictor that knows each row by heart, y of it included, is of no use elsewhere."""
    X = rng.normal(size=(60, 2))
    Y = rng.normal(size=(60, 1))
    learned = gvi.learn((X, Y), kernel=gpflow.kernels.Linear(), predictor=LinearRegression())
    judged = learned.regulariser.judged
    new = rng.normal(size=(5000, 2)), rng.normal(size=(5000, 1))
    densities = np.asarray(learned.predict_log_density(new))
    promised = judged.nll_after + np.sum(np.log(learned.outputs.scale))
    error = np.std(densities) * np.sqrt(1.0 / 60 + 1.0 / 5000)
    assert_estimates(promised, -np.mean(densities), error)


@pytest.mark.parametrize("tails", [True, False])
def test_the_calibration_mends_the_scale(tails, rng):
    Y = rng.normal(size=(4000, 2)) * [1.5, 0.4]
    found = Calibration.of(
        Predictions(np.zeros((1, 4000, 2)), np.ones((1, 4000, 2)), Y), tails=tails
    )
    error = np.array([1.5, 0.4]) ** 2 * np.sqrt(2.0 / 4000)
    assert_estimates(found.factor, [1.5**2, 0.4**2], error)


def test_values_on_a_grid_are_judged_by_the_mass_around_them():
    Y = np.array([[1.0], [2.0]])
    predictions = Predictions(np.array([[[1.1], [4.0]]]), np.array([[[0.04], [0.25]]]), Y)
    found = Calibration(np.ones(1), None).log_densities(predictions, np.full((2, 1), 0.5))
    laws = scipy.stats.norm([1.1, 4.0], [0.2, 0.5])
    expected = np.log((laws.cdf(Y[:, 0] + 0.25) - laws.cdf(Y[:, 0] - 0.25)) / 0.5)
    assert_close(found, expected)
    spike = Predictions(Y[None], np.full((1, 2, 1), 1e-12), Y)
    assert_close(
        Calibration(np.ones(1), None).log_densities(spike, np.full((len(spike.Y), 1), 0.5)),
        np.log(2.0),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_of_twenty_rows_in_ten_dimensions_it_is_not_certain(seed):
    """It is hardly worse than the distribution of Y, by which a row is predicted without inputs."""
    X, Y = make_friedman1(520, 10, noise=1.0, random_state=seed)
    Y = ((Y - np.mean(Y)) / np.std(Y))[:, None]
    learned = gvi.learn((X[:20], Y[:20]))
    nll = -np.mean(learned.predict_log_density((X[20:], Y[20:])))
    assert nll < scipy.stats.norm().entropy() + 0.5


def _moments(learned, X):
    return [np.asarray(part) for part in learned.predict_y(X)]


def test_each_row_twice_is_each_row_once(rng):
    X = rng.uniform(-3.0, 3.0, size=(60, 1))
    Y, new = np.sin(2.0 * X) + 0.2 * rng.normal(size=X.shape), np.linspace(-3.0, 3.0, 50)[:, None]
    once = gvi.learn((X, Y))
    twice = gvi.learn((np.r_[X, X], np.r_[Y, Y]))
    for ours, theirs in zip(_moments(twice, new), _moments(once, new), strict=True):
        assert_close(ours, theirs, ITERATIVE, scale=1.0)  # the size of Y
    assert "60 are copies and count once" in str(twice.summary())


def test_a_gross_value_is_told_and_left_out(rng):
    X = rng.normal(size=(60, 2))
    Y = X @ [[1.0], [-2.0]] + 0.1 * rng.normal(size=(60, 1))
    wrong = Y.copy()
    wrong[17] += 50.0 * np.std(Y)
    with pytest.warns(gvi.errors.NumericsWarning, match=r"in row 17\. Such rows are left out"):
        learned = gvi.learn((X, wrong))
    new = rng.normal(size=(200, 2))
    error = np.sqrt(np.mean(np.square(_moments(learned, new)[0] - new @ [[1.0], [-2.0]])))
    assert error < 0.1  # the noise


@pytest.mark.slow
def test_what_is_promised_of_noise_is_its_entropy(rng):
    X, Y = rng.normal(size=(150, 3)), rng.normal(size=(150, 1))
    learned = gvi.learn((X, Y))
    promised = float(learned.summary().facts["NLL on rows not seen"])
    assert_estimates(promised, scipy.stats.norm().entropy(), np.sqrt(0.5 / 150))
    new = rng.normal(size=(3000, 3)), rng.normal(size=(3000, 1))
    nll = -np.mean(learned.predict_log_density(new))
    assert nll < scipy.stats.norm().entropy() + 5.0 * np.sqrt(0.5 / 150)


@pytest.mark.slow
def test_what_is_promised_of_labels_that_say_nothing_is_their_frequency(rng):
    """A tree knows them by heart, and a kernel with ten lengthscales nearly so."""
    X, y = rng.normal(size=(80, 10)), np.where(rng.random(80) < 0.3, "yes", "no")
    learned = gvi.learn((X, y))
    entropy = scipy.stats.bernoulli(np.mean(y == "yes")).entropy()
    facts = learned.summary().facts
    promised, constant = (
        float(facts[name]) for name in ("NLL on rows not seen", "NLL without inputs")
    )
    assert entropy < constant < entropy + 0.03  # each label has not seen itself
    assert promised < constant + 0.03
    new = rng.normal(size=(2000, 10))
    labels = np.where(rng.random(2000) < 0.3, "yes", "no")
    truth = scipy.stats.bernoulli(0.3).entropy()
    assert -np.mean(learned.predict_log_density((new, labels))) < truth + 0.06


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [None, gpflow.likelihoods.Poisson(), Bernoulli()])
def test_rows_of_equal_inputs_alone_are_learned_as_a_constant(likelihood, rng):
    Y = rng.integers(0, 2, size=(40, 1)) + (0.0 if likelihood is not None else 0.5)
    Y = Y if likelihood is not None else Y + 0.1 * rng.normal(size=Y.shape)
    learned = gvi.learn((np.ones((40, 2)), Y), likelihood=likelihood)
    mean, _ = learned.predict_y(np.ones((3, 2)))
    error = np.std(Y) / np.sqrt(40.0)
    assert_estimates(np.ravel(mean), np.mean(Y), error)


@pytest.mark.slow
@pytest.mark.parametrize("of_classes", [False, True])
def test_a_column_of_two_categories_tells_their_two_means(of_classes, rng):
    """There is nothing between the inputs that rows left out could be predicted by."""
    X = np.repeat([[0.0], [1.0]], 60, axis=0)
    if of_classes:
        y = (rng.uniform(size=X.shape) < 0.2 + 0.6 * X).astype(int)
        learned = gvi.learn((X, y), likelihood=gpflow.likelihoods.Bernoulli())
    else:
        y = np.round(30.0 + 8.0 * X + 8.0 * rng.normal(size=X.shape))
        learned = gvi.learn((X, y))
        assert "each row is left out alone" in str(learned.summary())
    assert int(learned.model.num_data) == 120
    of_each = y.reshape(2, 60)
    errors = np.std(of_each, axis=1) / np.sqrt(60.0)
    found = np.ravel(learned.predict_y(np.array([[0.0], [1.0]]))[0])
    assert_estimates(found, np.mean(of_each, axis=1), errors)
    assert found[1] - found[0] > 3.0 * np.hypot(*errors)


def test_a_warning_tells_that_a_kernel_is_worse_than_nothing(rng):
    X = rng.uniform(-1.0, 1.0, size=(60, 1))
    kernel = gpflow.kernels.SquaredExponential(variance=100.0, lengthscales=0.05)
    noise = gpflow.likelihoods.Gaussian(1e-4)
    for part in (kernel, noise):
        gpflow.set_trainable(part, False)
    with pytest.warns(gvi.errors.NumericsWarning, match="predicted worse than without any inputs"):
        gvi.learn((X, rng.normal(size=(60, 1))), kernel=kernel, likelihood=noise)


def test_a_warning_tells_that_a_trained_q_is_worse_than_nothing(rng):
    """The mean of the prior, which the caller wants for Q, does not know how frequent classes are.

    The reference is the entropy of their frequencies.
    """
    X, labels = rng.uniform(size=(200, 1)), np.repeat(["a", "b", "c"], [160, 20, 20])
    rng.shuffle(labels)
    kernel = gpflow.kernels.SquaredExponential()
    asked = {"mean": "regulariser", "regulariser": "prior", "epochs": 1, "kernel": kernel}
    held_out = X[100:], labels[100:]
    with pytest.warns(gvi.errors.NumericsWarning, match="than without any inputs") as caught:
        learned = gvi.learn((X[:100], labels[:100]), validation_data=held_out, **asked)
    _, counts = np.unique(labels[100:], return_counts=True)
    (message,) = (str(each.message) for each in caught if "without any" in str(each.message))
    found, of_constant = map(float, re.findall(r"(?:is|constant) (\d+\.\d+)", message))
    assert abs(of_constant - scipy.stats.entropy(counts / 100.0)) < 0.03
    assert found > of_constant + 0.1
    facts = learned.summary().facts
    assert abs(float(facts["NLL without inputs"]) - of_constant) < 0.002
    assert facts["Q"].startswith("trained for 1 epoch, ")


def test_that_warning_is_in_original_units(rng):
    """A line goes on where the function has turned; the reference is the entropy of normal Y."""
    X = rng.uniform(0.0, 1.0, size=(60, 1))
    X_held_out = rng.uniform(-5.0, -4.0, size=(200, 1))
    scales = np.array([20.0, 3.0])

    def observed(x):
        return scales * (np.abs(x) + 0.1 * rng.normal(size=(len(x), 2)))

    held_out = X_held_out, observed(X_held_out)
    asked = {"mean": "inducing", "epochs": 1, "kernel": gpflow.kernels.Linear()}
    with pytest.warns(gvi.errors.NumericsWarning, match="than without any inputs") as caught:
        gvi.learn((X, observed(X)), validation_data=held_out, **asked)
    (message,) = (str(each.message) for each in caught if "without any" in str(each.message))
    found, of_constant = map(float, re.findall(r"(?:is|constant) (\d+\.\d+)", message))
    expected = np.sum(scipy.stats.norm.entropy(scale=np.std(held_out[1], axis=0)))
    assert abs(of_constant - expected) < 0.05
    assert found > of_constant + 1.0


def test_rows_held_out_are_not_told_by_the_sum_of_all(rng):
    """Y less its mean sums to zero: with more features than rows a line knows what is missing.

    The reference has a mean of its own, of a variance so large that all means are alike.
    """
    X = rng.normal(size=(6, 8))
    Y = rng.normal(size=(6, 1))
    kernel = gpflow.kernels.Linear(0.5)
    gpflow.set_trainable(kernel, False)
    held = np.array([3])
    given = np.array([0, 1, 2, 4, 5])

    def of(Y):
        mean = Y.mean()
        fits = _fits(X, Y - mean, kernel, predictors=None, standardise=True)
        fits.likelihood = gpflow.likelihoods.Gaussian(0.01)
        gpflow.set_trainable(fits.likelihood, False)
        predict = fits.predict_without
        return mean + predict(fits.candidate(kernel), given, held, np.zeros((6, 0, 1)))[0]

    free = kernel + gpflow.kernels.Constant(1e6)
    expected = gpflow.models.GPR((X[given], Y[given]), free, noise_variance=0.01).predict_f(X[held])
    other = Y.copy()
    other[held] += 5.0
    for found in (of(Y), of(other)):
        assert_close(found, expected[0], ITERATIVE, scale=1.0)


@pytest.mark.parametrize("N", [3, 4, 20])
def test_the_interval_of_few_rows_of_noise_is_that_of_students_t(N, rng):
    """y ~ ȳ + s √(1 + 1/N) t of N - 1 degrees of freedom, of a Gaussian whose σ is not known.

    The factor is found by as few squared errors, with a prior: it may be off by a fifth.
    """
    X = rng.normal(size=(N, 1))
    Y = rng.normal(size=(N, 1))
    learned = gvi.learn((X, Y), kernel=None if N < 5 else gpflow.kernels.Constant())
    lower, upper = learned.predict_interval(X[:1], coverage=0.9)
    law = scipy.stats.t(N - 1, scale=np.std(Y, ddof=1) * np.sqrt(1.0 + 1.0 / N))
    assert 0.8 < (upper - lower) / (2.0 * law.ppf(0.95)) < 1.25


@pytest.mark.slow
def test_coverage_of_few_rows_of_noise():
    """However few they are, and with as many features: 40 draws of 500 observations."""
    covered = []
    for draw in range(40):
        rng = np.random.default_rng(draw)
        N, D = ((3, 2), (5, 5), (8, 2), (12, 5))[draw % 4]
        learned = gvi.learn((rng.normal(size=(N, D)), rng.normal(size=(N, 1))), effort="fast")
        lower, upper = learned.predict_interval(rng.normal(size=(500, D)), coverage=0.9)
        new = rng.normal(size=(500, 1))
        covered.append(np.mean((lower <= new) & (new <= upper)))
    assert 0.8 < np.mean(covered) < 0.97


def test_degrees_of_freedom_are_those_of_a_sum_of_two_estimates(rng):
    """v̂ = v_f χ²_γ/γ + σ² χ²_m/m varies as much as v χ²_ν/ν: its variance is 2 v²/ν."""
    share = np.array([[0.5], [0.1], [0.9], [0.3]])  # σ²/v
    m, gamma = 0.75 * np.sum(share), 0.75 * np.sum(1.0 - share)
    chi2 = [rng.chisquare(of, size=200_000) / of for of in (gamma, m)]
    estimates = (1.0 - share) * chi2[0] + share * chi2[1]  # [4, S]
    squares = np.mean(np.square(estimates - 1.0), axis=0) / 2.0
    error = np.std(squares) / np.sqrt(len(squares))
    assert_estimates(
        1.0 / degrees_of_freedom(3.0 * share, np.full((4, 1), 3.0))[0], squares.mean(), error
    )
