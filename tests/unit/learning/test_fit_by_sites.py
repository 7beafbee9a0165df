"""Labels in `learn`: against probabilities that are known, and what it chooses among."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import gpflow
import numpy as np
import pytest
from gpflow.likelihoods import MultiClass, Poisson, Softmax, StudentT
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeClassifier

import gpflow_gvi as gvi
from gpflow_gvi.learning.fit_by_sites import SiteFits
from gpflow_gvi.learning.judge import members
from gpflow_gvi.learning.recipe import Recipe
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.learning.settings import RECIPE, RegulariserSettings, Settings
from gpflow_gvi.learning.start import TrainingData
from gpflow_gvi.regulariser import expectations
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

NAMES = np.array(["no", "yes"])


def _p(X):
    return expit(2.0 * np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 0])


SLOWLY = pytest.param("MultiClass", marks=pytest.mark.slow)


def _draw(N, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    return X, (rng.random(N) < _p(X)).astype(int)


@pytest.fixture(scope="module", params=["Bernoulli", "Softmax", SLOWLY])
def learned(request):
    X, y = _draw(200, 1)
    likelihood = {"Bernoulli": None, "Softmax": Softmax(2), "MultiClass": MultiClass(2)}
    options = {"likelihood": likelihood[request.param], "num_inducing": 10}
    return gvi.learn((X, NAMES[y]), kernel=gpflow.kernels.SquaredExponential(), **options)


@pytest.mark.slow
def test_samples_of_labels_are_as_frequent_as_probable(learned):
    X, _ = _draw(6, 3)
    samples = learned.predict_y_samples(X, 20_000, seed=0)
    assert samples.shape == (20_000, 6)
    assert set(np.unique(samples)) == {"no", "yes"}
    expected = learned.predict_proba(X)[:, 1]
    # Probabilities of a Softmax are averages over 512 even points of f themselves.
    error = np.sqrt(expected * (1.0 - expected) / 20_000) + 1.0 / 512
    assert_estimates(np.mean(samples == "yes", axis=0), expected, error)


def test_all_predictions_of_labels_are_of_the_same_probabilities(learned, monkeypatch):
    monkeypatch.setattr(expectations, "NUM_SAMPLES_OF_DENSITIES", 512)  # as for probabilities
    X, y = _draw(50, 4)
    p = learned.predict_proba(X)
    for _ in range(2):
        mean, variance = (np.asarray(part) for part in learned.predict_y(X))
        columns = p[:, -mean.shape[1] :]
        # Probabilities under RobustMax are normalised, as its quadrature is not exact.
        assert_close(mean, columns, ITERATIVE)
        assert_close(variance, columns * (1.0 - columns), ITERATIVE)
        logs = learned.predict_log_density((X, NAMES[y]))
        assert_close(logs, np.log(p[np.arange(50), y]), ITERATIVE)
    with pytest.raises(ValueError, match="none of the 2 classes"):
        learned.predict_log_density((X, np.full(50, "maybe")))


@pytest.mark.slow
@pytest.mark.parametrize(("N", "likelihood"), [(2, StudentT()), (3, Softmax(2))])
def test_fewer_rows_than_folds(N, likelihood, rng):
    X = rng.normal(size=(N, 1))
    options = {"likelihood": likelihood, "kernel": gpflow.kernels.Matern52(), "num_inducing": 3}
    learned = gvi.learn((X, np.arange(N) % 2), **options)
    assert np.all(np.isfinite(learned.predict_y(X)[0]))


def test_labels_come_back_with_calibrated_probabilities(learned):
    X, y = _draw(2000, 2)
    p = learned.predict_proba(X)
    assert learned.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(learned.predict(X), NAMES[p.argmax(axis=1)])
    # 200 labels tell so much; one half everywhere is wrong by 0.28. Under RobustMax, whose evidence
    # hardly changes from 0.138 to 0.141, fits end in between.
    most = 0.15 if isinstance(learned.likelihood, MultiClass) else 0.14
    assert np.mean(np.abs(p[:, 1] - _p(X))) < most
    truth, ignorance = log_loss(y, _p(X)), np.log(2.0)
    assert log_loss(y, p) < truth + 0.5 * (ignorance - truth)
    figures = gvi.metrics.evaluate(learned, (X, NAMES[y]))
    assert_close(figures["nll"], log_loss(y, p))
    assert figures["ece"] < 0.1
    densities = learned.predict_log_density((X, NAMES[y]))
    assert_close(-np.mean(densities), figures["nll"], ITERATIVE)


def test_far_away_it_knows_that_it_does_not_know(learned):
    at_data = gvi.classification.entropies(learned, np.linspace(-3.0, 3.0, 31)[:, None])
    far_away = gvi.classification.entropies(learned, np.array([[-40.0], [40.0]]))
    assert np.min(far_away.total) > np.median(at_data.total)
    # Under RobustMax the aleatoric entropy is a constant, next to zero, and all else is epistemic.
    times = 1.2 if isinstance(learned.likelihood, MultiClass) else 3.0
    assert np.min(far_away.epistemic) > times * np.median(at_data.epistemic)


@pytest.mark.slow
def test_saved_it_predicts_the_same_labels(tmp_path):
    X, y = _draw(60, 3)
    learned = gvi.learn((X, y == 1), num_inducing=10, kernel=gpflow.kernels.SquaredExponential())
    learned.save(tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), learned.predict(X))
    assert loaded.predict(X).dtype == bool


def _steps(N, seed):
    """Labels that a tree knows and a smooth function does not, and 5 % of errors."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(N, 2))
    y = (np.floor(5.0 * X[:, 0]) + np.floor(2.0 * X[:, 1])) % 2
    return X, np.where(rng.random(N) < 0.05, 1.0 - y, y).astype(int)


@pytest.mark.slow
def test_labels_in_several_columns_are_learned_by_default():
    X, y = _draw(300, 6)
    learned = gvi.learn((X, np.column_stack([y, 1 - y])), likelihood=gpflow.likelihoods.Bernoulli())
    x = np.linspace(-2.5, 2.5, 50)[:, None]
    p = np.asarray(learned.predict_y(x)[0])
    assert np.mean(np.abs(p - np.column_stack([_p(x), 1.0 - _p(x)]))) < 0.1


@pytest.mark.slow
def test_around_a_classifier_that_is_cross_fitted():
    X, y = _steps(200, 4)
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0)
    options = {"kernel": gpflow.kernels.SquaredExponential(), "num_inducing": 20}
    around, alone = (
        gvi.learn((X, NAMES[y]), predictor=predictor, **options) for predictor in (tree, None)
    )
    X, y = _steps(1000, 5)
    losses = [log_loss(y, each.predict_proba(X)) for each in (around, alone)]
    assert losses[0] < losses[1] - 0.05
    # A tree is too sure of its leaves; the weight of its log odds mends that.
    whole = DecisionTreeClassifier(min_samples_leaf=5, random_state=0).fit(*_steps(200, 4))
    assert losses[0] < log_loss(y, np.clip(whole.predict_proba(X), 1e-3, 1.0 - 1e-3))


@pytest.mark.slow
def test_around_a_classifier_that_was_fitted_to_names():
    X, y = _steps(300, 6)
    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0).fit(X, NAMES[y])
    others = _steps(100, 7)
    learned = gvi.learn(
        (X, NAMES[y]),
        predictor=tree,
        kernel=gpflow.kernels.SquaredExponential(),
        validation_data=(others[0], NAMES[others[1]]),
        num_inducing=20,
    )
    X, y = _steps(1000, 8)
    assert gvi.metrics.evaluate(learned, (X, NAMES[y]))["accuracy"] > 0.8


@pytest.mark.slow
def test_the_kernel_that_predicts_better_is_taken():
    X, y = _draw(100, 9)
    rough = gpflow.kernels.SquaredExponential(lengthscales=1e-3)
    gpflow.set_trainable(rough, False)
    smooth = gpflow.kernels.Matern52()
    learned = gvi.learn((X, NAMES[y]), kernel=[rough, smooth], num_inducing=15)
    assert isinstance(learned.regulariser.prior.kernel, gpflow.kernels.Matern52)


def _counts(N, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    return X, rng.poisson(np.exp(1.0 + np.sin(X)))


@pytest.mark.slow
def test_of_counts_the_kernel_that_predicts_better_is_taken():
    X, Y = _counts(60, 10)
    rough = gpflow.kernels.SquaredExponential(lengthscales=1e-3)
    gpflow.set_trainable(rough, False)
    smooth = gpflow.kernels.Matern52()
    options = {"likelihood": Poisson(), "num_inducing": 15}
    learned = gvi.learn((X, Y), kernel=[rough, smooth], **options)
    assert isinstance(learned.regulariser.prior.kernel, gpflow.kernels.Matern52)
    best = learned.summary().judged[0]
    assert "Matern52" in best.what
    # The score is the density of counts that were left out, which other counts have, too.
    x, y = _counts(2000, 11)
    densities = learned.predict_log_density((x, y))
    density = np.mean(densities)
    assert_estimates(best.facts["nll_unseen"], -density, np.std(densities) / np.sqrt(60))
    assert density < np.mean(stats.poisson(np.exp(1.0 + np.sin(x))).logpmf(y))


def test_with_tails_that_are_not_heavy_held_rows_are_predicted_by_an_exact_process(rng):
    X = rng.uniform(-3.0, 3.0, size=(40, 1))
    Y = np.sin(X) + 0.5 * rng.normal(size=X.shape)
    kernel, likelihood = gpflow.kernels.Matern52(), StudentT(0.5, df=1e6)
    for part in (kernel, likelihood):
        gpflow.set_trainable(part, False)
    units = Scaling.none(X), Scaling.none(Y)
    data = TrainingData(X, Y, Y, 0, (1,), False, units)
    fits = SiteFits(data, Settings(RegulariserSettings(predictors=None), likelihood=likelihood))
    candidate = fits.candidate(kernel).replace(mean=gpflow.functions.Zero(1))
    given, held = np.arange(30), np.arange(30, 40)
    mean, variance = fits.predict_without(candidate, given, held, np.zeros((40, 0, 1)))
    exact = gpflow.models.GPR((X[given], Y[given]), kernel, noise_variance=0.25)
    for ours, theirs in zip((mean, variance), exact.predict_f(X[held]), strict=True):
        assert_close(ours, theirs, ITERATIVE, scale=10.0)  # updates of sites end before


@pytest.mark.slow
def test_scores_are_in_original_units(rng):
    X = rng.uniform(-3.0, 3.0, size=(40, 1))
    Y = np.sin(X) + 0.1 * rng.standard_t(3, size=X.shape)
    options = {"likelihood": StudentT(), "num_inducing": 10}
    scores = [
        gvi.learn((X, unit * Y), kernel=gpflow.kernels.Matern52(), **options)
        .summary()
        .candidates[0]
        .facts["nll"]
        for unit in (1.0, 100.0)
    ]
    assert_close(scores[1] - scores[0], np.log(100.0), ITERATIVE)


def test_one_class_alone_is_refused(rng):
    with pytest.raises(ValueError, match="examples of class 'no' alone"):
        gvi.learn((rng.normal(size=(20, 1)), np.repeat("no", 20)))
    assert Settings().classes is None


@pytest.mark.slow  # `learn` twice, with all its candidates
def test_labels_by_few_of_many_features_are_learned(rng):
    X = rng.normal(size=(400, 150))
    p = expit(3.0 * (X[:, 0] - X[:, 1] + X[:, 2]))
    y = np.where(rng.uniform(size=400) < p, "yes", "no")
    losses = {
        predictor: log_loss(
            y[150:],
            gvi.learn((X[:150], y[:150]), predictor=predictor).predict_proba(X[150:])[:, 1],
        )
        for predictor in ("auto", None)
    }
    assert losses["auto"] < losses[None] - 0.1


@pytest.mark.slow
def test_labels_that_change_fast_are_learned_as_from_the_right_lengthscale(rng):
    """From its usual one scikit-learn's process ends where there is no function, at 0.69."""
    X = rng.uniform(-2.0, 2.0, size=(1500, 2))
    p = expit(9.0 * np.sin(4.0 * X[:, 0]) * np.sin(4.0 * X[:, 1]))
    y = NAMES[(rng.random(1500) < p).astype(int)]
    learned = gvi.learn((X[:500], y[:500]))
    exact = GaussianProcessClassifier(ConstantKernel(10.0) * RBF(0.3)).fit(X[:500], y[:500])
    expected = log_loss(y[500:], exact.predict_proba(X[500:])[:, 1])
    assert log_loss(y[500:], learned.predict_proba(X[500:])[:, 1]) < expected + 0.02


@pytest.mark.slow
def test_labels_of_one_group_say_more_of_each_other_than_of_the_next_one():
    """A group is known by a value of its rows: half of what is lost without groups is gained.

    Whether smooth kernels find the groups is chance: in this draw they do not.
    """
    rng = np.random.default_rng(2)
    group, X = rng.integers(60, size=500), rng.normal(size=(500, 3))
    X[:, 0] = np.round(rng.gamma(2.0, size=60), 3)[group]
    of_groups = 2.5 * rng.normal(size=60)[group]
    p = expit(1.5 * X[:, 1] + of_groups)
    y = (rng.random(500) < p).astype(int)
    found = gvi.GVIClassifier(random_state=0).fit(X[:400], y[:400]).predict_proba(X[400:])
    average = np.mean(expit(1.5 * X[400:, 1, None] + 2.5 * rng.normal(size=1000)), axis=1)
    known, blind, loss = (log_loss(y[400:], each) for each in (p[400:], average, found))
    assert loss < 0.5 * (known + blind)


@pytest.mark.slow  # `learn` twice, with all its candidates
def test_labels_by_a_box_in_some_features_are_learned_from_few_rows(rng):
    """Trees know that the rows inside a box have one label, a stationary kernel does not."""
    X = rng.uniform(-1.0, 1.0, (1200, 6))
    y = np.where(np.all(np.abs(X[:, :2] - 0.2) < 0.6, axis=1), "in", "out")
    losses = {
        predictor: log_loss(
            y[200:],
            gvi.learn((X[:200], y[:200]), predictor=predictor).predict_proba(X[200:])[:, 1],
        )
        for predictor in ("auto", None)
    }
    assert losses["auto"] < 0.7 * losses[None]


def _probability(X):
    """That of one label, which changes faster than few rows tell."""
    return expit(3.0 * np.sign(np.sin(20.0 * X[:, :1])))


class _Counted(ClassifierMixin, BaseEstimator):
    """Keeps how often it is fitted; it knows the probability, or backwards the opposite."""

    fits: ClassVar[dict[bool, int]] = {}

    def __init__(self, backwards=False):
        self.backwards = backwards

    def fit(self, X, y):
        self.fits[self.backwards] = self.fits.get(self.backwards, 0) + 1
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        p = np.hstack([1.0 - _probability(X), _probability(X)])
        return p[:, ::-1] if self.backwards else p


@dataclasses.dataclass(frozen=True)
class _RecipeOfEstimators(Recipe):
    estimators: tuple[_Counted, ...] = ()

    def predictors(self, data):
        return self.estimators


@pytest.mark.slow
@pytest.mark.parametrize("backwards", [[False, True], [True]])
def test_a_predictor_without_weight_is_cross_fitted_once(backwards, rng):
    X = rng.normal(size=(120, 2))
    Y = (rng.random((120, 1)) < _probability(X)).astype(float)
    recipe = _RecipeOfEstimators(estimators=tuple(map(_Counted, backwards)))
    data = TrainingData(X, Y, Y, 0, X.shape[1:], True, (Scaling.none(X), Scaling.none(Y)))
    settings = RegulariserSettings(predictors=RECIPE, recipe=recipe)
    fits = SiteFits(data, Settings(settings, likelihood=gpflow.likelihoods.Bernoulli()))
    _Counted.fits.clear()
    pool = members([fits], is_free=True, mixes=True, judges=True)
    assert _Counted.fits[True] == fits.settings.num_folds
    if False in backwards:
        assert _Counted.fits[False] > fits.settings.num_folds
    assert sum(member.weight for member in pool) == pytest.approx(1.0)


@pytest.mark.parametrize("count", [1, 5, 10])
def test_a_constant_is_as_frequent_as_the_evidence_has_it(count):
    """By quadrature: the variance of f of the greatest evidence, and the posterior mean of Φ(f)."""
    Y = (np.arange(20)[:, None] < count).astype(float)
    X = np.random.default_rng(0).normal(size=(20, 2))
    data = TrainingData(X, Y, Y, 0, (2,), True, (Scaling.none(X), Scaling.none(Y)))
    settings = RegulariserSettings(predictors=None)
    fits = SiteFits(data, Settings(settings, likelihood=gpflow.likelihoods.Bernoulli()))
    start = fits.candidate(settings.recipe.floor(data)[0])
    rows, means = np.arange(20), np.zeros((20, 0, 1))
    found = fits.fit(start, rows, fits.minimise)
    f = np.linspace(-8.0, 8.0, 4001)
    log_likelihood = stats.binom(20, stats.norm.cdf(f)).logpmf(count)

    def joint(variance):
        return np.exp(log_likelihood + stats.norm(0.0, np.sqrt(variance)).logpdf(f))

    log_variance = minimize_scalar(
        lambda v: -np.log(np.sum(joint(np.exp(v)))), bounds=(-7.0, 3.0), method="bounded"
    ).x
    weights = joint(np.exp(log_variance))
    expected = np.sum(weights * stats.norm.cdf(f)) / np.sum(weights)
    mean, variance = (part.item() for part in fits.predict_without(found, rows, rows[:1], means))
    assert stats.norm.cdf(mean / np.sqrt(1.0 + variance)) == pytest.approx(expected, abs=0.02)
