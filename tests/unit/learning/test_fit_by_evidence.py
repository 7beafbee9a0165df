"""What `learn` chooses among, on data whose truth is known."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from sklearn.datasets import make_regression
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.tree import DecisionTreeRegressor

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.learning import search, starts
from gpflow_gvi.learning.candidates import Fitted, near_best
from gpflow_gvi.learning.fit_by_evidence import EvidenceFits
from gpflow_gvi.learning.noise import MIN_RATIO, VaryingNoise
from gpflow_gvi.learning.recipe import Recipe
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.learning.settings import LBFGS, RegulariserSettings, Settings
from gpflow_gvi.learning.start import TrainingData
from gpflow_gvi.mean_functions import CrossFitted, Predictor
from tests.tolerances import ITERATIVE, STANDARD_ERRORS, assert_close, assert_estimates


def _kernel():
    return gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])


def _deviation(X):
    return np.where(X[:, :1] > 0.0, 1.0, 0.1)


@pytest.fixture(scope="module")
def varying():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(400, 2))
    return X, np.sin(2.0 * X[:, 1:]) + _deviation(X) * rng.normal(size=(400, 1))


def _nll(learned, X, Y):
    mean, variance = learned.predict_y(X)
    return -scipy.stats.norm.logpdf(Y, mean, np.sqrt(variance)).mean()


@pytest.mark.slow
def test_noise_that_varies_is_found(varying):
    X, Y = varying
    learned = gvi.learn((X[:250], Y[:250]), kernel=_kernel(), noise="auto", num_inducing=40)
    noise = learned.regulariser.likelihood.variance
    assert isinstance(noise, VaryingNoise)
    _, variance = learned.predict_y(X[250:])
    _, of_f = learned.predict_f(X[250:])
    large = X[250:, 0] > 0.0
    deviation = np.sqrt(variance - of_f)[:, 0]
    assert_estimates(np.median(deviation[large]), 1.0, 1.0 / np.sqrt(2 * 125))
    assert 0.05 < np.median(deviation[~large]) < 0.2  # 0.1, within a factor of two
    truth = -scipy.stats.norm.logpdf(Y[250:], np.sin(2.0 * X[250:, 1:]), _deviation(X[250:])).mean()
    constant = gvi.learn((X[:250], Y[:250]), kernel=_kernel(), num_inducing=40)
    assert _nll(learned, X[250:], Y[250:]) < truth + 0.35
    assert _nll(learned, X[250:], Y[250:]) < _nll(constant, X[250:], Y[250:]) - 0.3


@pytest.mark.slow  # two structures of kernels
def test_a_kink_that_noise_hides_has_a_rough_kernel(rng):
    X = rng.uniform(-2.0, 2.0, size=(200, 1))
    Y = np.abs(X) + np.where(X > 0.0, 0.3, 0.02) * rng.normal(size=X.shape)
    learned = gvi.learn((X, Y))
    parts = learned.regulariser.prior.kernel.kernels
    assert any(isinstance(part, gpflow.kernels.Matern52) for part in parts)
    constant = gvi.learn((X, Y), noise="constant")
    x = np.linspace(-1.8, 1.8, 300)[:, None]
    errors = [np.mean((each.predict(x) - np.abs(x)) ** 2) for each in (learned, constant)]
    assert errors[0] < errors[1]


@pytest.fixture(scope="module")
def steps():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2.0, 2.0, size=(300, 2))
    jumps = 3.0 * np.sign(np.sin(3.0 * X[:, :1])) + X[:, 1:]
    return X, jumps + 0.1 * rng.normal(size=jumps.shape)


def test_around_a_predictor_residuals_are_those_of_new_rows(rng):
    X = rng.uniform(-2.0, 2.0, size=(300, 2))
    Y = np.sign(X[:, :1]) + X[:, 1:] + 0.5 * rng.normal(size=(300, 1))
    tree = DecisionTreeRegressor(random_state=0)
    learned = gvi.learn((X[:200], Y[:200]), kernel=_kernel(), predictor=tree, num_inducing=40)
    mean = learned.regulariser.prior.mean_function
    assert isinstance(mean, CrossFitted)
    assert len(mean.models) == 5
    predicted, variance = learned.predict_y(X[200:])
    inside = np.abs(Y[200:] - predicted) < 1.96 * np.sqrt(variance)
    # A tree has no error at all at the rows of its fit.
    assert np.mean(inside) > 0.95 - STANDARD_ERRORS * np.sqrt(0.95 * 0.05 / 100)
    error = np.sqrt(np.mean(np.square(predicted - Y[200:])))
    of_tree = tree.fit(X[:200], Y[:200]).predict(X[200:])[:, None]
    assert error < np.sqrt(np.mean(np.square(of_tree - Y[200:])))


@pytest.mark.slow
def test_a_predictor_of_another_scale_has_the_weight_that_mends_it(rng):
    X = rng.uniform(-2.0, 2.0, size=(300, 1))
    jumps = np.sign(np.sin(40.0 * X))  # too fast for a process that sees noise as well
    Y = jumps + 0.1 * rng.normal(size=X.shape)
    data = X[:200], Y[:200]
    learned = gvi.learn(data, predictor=lambda X: 3.0 * np.sign(np.sin(40.0 * X)))
    predicted = learned.predict(X[200:])
    # With the weight 1 the error is 2, with the weight 0 it is 1; of a third the noise is left.
    assert_estimates(np.mean(predicted * jumps[200:]), 1.0, 0.1 / np.sqrt(200))
    assert np.sqrt(np.mean(np.square(predicted - jumps[200:]))) < 0.1


def test_rows_of_the_data_are_predicted_the_same_in_each_call(steps):
    """The first call is without a graph, others are by one, which scales by the reciprocal."""
    X, Y = (part[:50] for part in steps)
    tree = DecisionTreeRegressor(random_state=0)
    learned = gvi.learn((X, Y), kernel=_kernel(), predictor=tree, num_inducing=20)
    m_P = learned.regulariser.prior.mean_function
    found = np.asarray(m_P(learned.inputs.standard(X)))
    assert_close(np.sort(found, axis=0), np.sort(m_P.out_of_fold, axis=0))
    expected = learned.model.predict_f(learned.inputs.standard(X))[0]
    for _ in range(3):
        mean = learned.outputs.standard(learned.predict_y(X)[0])
        assert_close(mean, expected)


@pytest.mark.filterwarnings("ignore:squared errors of rows")  # a step is a few rows off
def test_a_fitted_predictor_is_judged_by_rows_that_it_has_not_seen(steps):
    X, Y = steps
    tree = DecisionTreeRegressor(random_state=0).fit(X[:150], Y[:150])
    learned = gvi.learn(
        (X[:150], Y[:150]),
        kernel=_kernel(),
        predictor=tree,
        validation_data=(X[150:220], Y[150:220]),
    )
    assert int(learned.model.num_data) == 70
    predicted, variance = learned.predict_y(X[220:])
    covered = np.mean(np.abs(Y[220:] - predicted) < 1.96 * np.sqrt(variance))
    assert covered > 0.95 - STANDARD_ERRORS * np.sqrt(0.95 * 0.05 / 80)


@pytest.mark.slow
def test_it_is_saved_with_its_predictors_and_not_exported(steps, tmp_path):
    X, Y = steps
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    learned = gvi.learn(
        (X[:120], Y[:120]),
        kernel=_kernel(),
        predictor=tree,
        noise="varying",
        num_inducing=10,
        effort="fast",
    )
    learned.save(tmp_path / "saved")
    loaded = gvi.load(tmp_path / "saved")
    for data in (X[:120], X[120:]):
        for ours, theirs in zip(loaded.predict_y(data), learned.predict_y(data), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(TypeError, match=r"predictors .* run in Python"):
        gvi.export(learned, tmp_path / "exported")


def test_an_estimator_without_predictions_of_its_rows_is_refused_before_they_are_used(steps):
    class Nothing(DecisionTreeRegressor):
        def predict(self, X):
            return np.full(len(X), np.nan)

    with pytest.raises(ValueError, match=r"predictor Nothing returns .* not all finite"):
        gvi.learn(steps, kernel=_kernel(), predictor=Nothing())


@pytest.mark.slow
def test_predictions_of_the_others_temper(rng):
    """Where all hyper-parameters are given and the noise is too small, the factor mends it."""
    X = rng.uniform(-2.0, 2.0, size=(200, 2))
    Y = rng.normal(size=(200, 1))
    kernel, noise = _kernel(), gpflow.likelihoods.Gaussian(0.04)
    kernel.variance.assign(0.01)
    for part in (kernel, noise):
        gpflow.set_trainable(part, False)
    with pytest.warns(NumericsWarning, match=r"left out are .* times their variance"):
        learned = gvi.learn((X, Y), kernel=kernel, likelihood=noise, num_inducing=30)
    mean, variance = learned.predict_y(X)
    # It is 1 of rows left out, and 20 without the factor; there are few points in this kernel.
    assert 0.85 < np.mean((Y - mean) ** 2 / variance) < 1.15


def test_the_noise_is_the_formula():
    ratio = np.array([[0.0], [0.5], [4.0]])
    noise = VaryingNoise(Predictor(lambda X: ratio), 0.3, 0.7, bounds=(0.0, 0.5))
    expected = np.minimum(0.3 * np.maximum(ratio, MIN_RATIO) ** 0.7, 0.5)
    assert_close(noise(np.zeros((3, 1))), expected)
    assert_close(noise.predict(np.zeros((3, 1))), expected)


@pytest.mark.parametrize(
    ("likelihood", "options", "error", "message"),
    [
        (
            gpflow.likelihoods.MultiClass(2),
            {"predictor": DecisionTreeRegressor()},
            TypeError,
            "DecisionTreeRegressor, which has no method predict_proba",
        ),
        (
            gpflow.likelihoods.Poisson(),
            {"predictor": DecisionTreeRegressor()},
            ValueError,
            "predictor is for labels.*likelihood is Poisson",
        ),
        (
            gpflow.likelihoods.Gaussian(scale=0.1),
            {"predictor": DecisionTreeRegressor()},
            ValueError,
            "predictor and noise='varying' are for real-valued Y",
        ),
    ],
)
def test_what_cannot_be_taken_into_account_is_refused(likelihood, options, error, message, rng):
    X = rng.normal(size=(40, 2))
    Y = (X[:, :1] > 0.0).astype(float)
    with pytest.raises(error, match=message):
        gvi.learn((X, Y), kernel=_kernel(), likelihood=likelihood, **options)


@pytest.mark.slow
def test_what_is_not_trainable_stays_as_it_is(steps):
    X, Y = steps
    kernel, noise = _kernel(), gpflow.likelihoods.Gaussian(0.3)
    kernel.variance.assign(0.7)
    for part in (kernel.variance, noise):
        gpflow.set_trainable(part, False)
    tree = DecisionTreeRegressor(max_depth=3)
    learned = gvi.learn(
        (X[:60], Y[:60]), kernel=kernel, likelihood=noise, predictor=tree, num_inducing=10
    )
    P = learned.regulariser
    assert float(P.prior.kernel.variance.numpy()) == 0.7
    assert_close(float(P.likelihood.variance.numpy()), 0.3)


@pytest.mark.slow
def test_two_relevant_features_among_thirty_are_found(rng):
    # With equal lengthscales the evidence is greatest where all of Y is noise.
    X = rng.uniform(-2.0, 2.0, size=(400, 30))
    f, sd = np.sin(2.0 * X[:, :1]) * X[:, 1:2], 0.2
    Y = f + sd * rng.normal(size=f.shape)
    learned = gvi.learn((X[:300], Y[:300]), effort="fast", num_inducing=100)
    truth = -scipy.stats.norm.logpdf(Y[300:], f[300:], sd).mean()
    assert _nll(learned, X[300:], Y[300:]) < truth + 0.25
    smooth, _ = learned.regulariser.prior.kernel.kernels  # and a linear function
    assert set(np.argsort(smooth.lengthscales.numpy())[:2]) == {0, 1}


def test_relevance_is_relative_to_that_of_the_most_relevant_feature(rng):
    X = rng.normal(size=(500, 4))
    relevance = starts.relevance(X, X[:, :1] + 0.5 * X[:, 1:2])
    # The variance that a feature explains is in proportion to the square of its slope.
    assert relevance[0] == 1.0
    assert 0.15 < relevance[1] < 0.35  # ¼, but for what trees of 500 rows take for relevant
    np.testing.assert_array_equal(relevance[2:], 0.05)
    np.testing.assert_array_equal(starts.relevance(X, np.ones((500, 1))), np.full(4, 0.05))


def test_a_second_kernel_stays_a_candidate_while_it_is_not_much_worse():
    fits = [Fitted(None, None, nll, None) for nll in (0.4, np.nan, 0.12, 0.05, 0.1)]
    assert [each.nll for each in near_best(fits, 0.1)] == [0.05, 0.1]
    assert [each.nll for each in near_best(fits[:3], 0.1)] == [0.12]


def _fits(X, Y, **options):
    units = Scaling.none(X), Scaling.none(Y)
    data = TrainingData(X, Y, Y, 0, X.shape[1:], False, units)
    settings = Settings(RegulariserSettings(**options), standardise=False)
    return EvidenceFits(data, settings)


@pytest.mark.slow
def test_a_fit_has_the_greatest_evidence(rng):
    """That of GPflow's GPR."""
    X = rng.uniform(-3.0, 3.0, size=(120, 1))
    rows = X, np.sin(2.0 * X) + 0.2 * rng.normal(size=X.shape)
    fits, kernel = _fits(*rows, predictors=None), gpflow.kernels.SquaredExponential()
    found = fits.fit(fits.candidate(kernel), np.arange(120), fits.minimise)
    exact = gpflow.models.GPR(rows, kernel, noise_variance=0.1)
    gpflow.optimizers.Scipy().minimize(exact.training_loss, exact.trainable_variables)
    best = float(exact.log_marginal_likelihood())
    assert best - 0.05 < -found.loss < best + ITERATIVE.float64 * abs(best)


@pytest.mark.slow
def test_the_network_of_a_kernel_is_fitted_with_it(rng):
    X = rng.uniform(-1.0, 1.0, size=(60, 1))
    y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.normal(size=60)
    layers = [keras.Input((1,)), keras.layers.Dense(8, activation="tanh", dtype="float64")]
    network = keras.Sequential(layers)
    given = gvi.kernels.FeatureMap(gpflow.kernels.Linear(), network)
    before = [np.array(weight) for weight in network.get_weights()]
    learned = gvi.learn((X, y), kernel=given)
    for weight, was in zip(network.get_weights(), before, strict=True):  # it is the user's own
        np.testing.assert_array_equal(weight, was)
    linear = gvi.learn((X, y), kernel=gpflow.kernels.Linear())
    new = np.linspace(-1.0, 1.0, 50)[:, None]
    truth = np.sin(6.0 * new)
    error, of_a_line = (np.std(each.predict_f(new)[0] - truth) for each in (learned, linear))
    assert error < 0.5 * of_a_line


@pytest.mark.parametrize("num_rows", [90, 150])
def test_the_screening_predicts_each_row_by_an_exact_process_of_the_others(num_rows, rng):
    """Also those that hyper-parameters were not fitted to."""
    fitted, others = rng.uniform(-3.0, 2.0, [60, 1]), rng.uniform(2.0, 3.0, [num_rows - 60, 1])
    X = np.concatenate([fitted, others])
    Y = np.sin(9.0 * X) + 0.1 * rng.normal(size=X.shape)
    fits = _fits(X, Y, max_rows=60, predictors=None)
    start = fits.candidate(gpflow.kernels.SquaredExponential(lengthscales=0.2))
    found = search.fitted(fits, start, fits.minimise_briefly)
    kernel, noise = found.candidate.kernel, found.candidate.likelihood
    for n in (0, 30, 60, 80):
        rest = np.arange(num_rows) != n
        exact = gpflow.models.GPR((X[rest], Y[rest]), kernel, likelihood=noise)
        expected = exact.predict_f(X[n : n + 1])[0]
        assert_close(found.mean[n : n + 1], expected, ITERATIVE, scale=1.0)  # the size of Y


@pytest.mark.parametrize(("slope", "is_kept"), [(2.0, True), (0.2, False)])
def test_predictors_with_much_larger_errors_than_a_process_are_left_out(slope, is_kept, rng):
    X = rng.uniform(-2.0, 2.0, size=(60, 2))
    curve = 0.0 if is_kept else np.sin(2.0 * X[:, :1])
    fits = _fits(
        X,
        slope * X[:, 1:] + curve + 0.1 * rng.normal(size=(60, 1)),
        predictors=lambda data: [LinearRegression()],
    )
    start = fits.candidate(gpflow.kernels.SquaredExponential())
    plain = search.fitted(fits, start, fits.minimise_briefly)
    fits.keep_useful_predictors(plain)
    assert fits.predictors.num_means == is_kept


@pytest.mark.slow
def test_a_function_that_varies_fast_has_as_many_inducing_points_as_it_takes(rng):
    X = rng.uniform(-1.0, 1.0, size=(700, 2))
    f = np.sin(12.0 * X[:, :1]) * np.sin(12.0 * X[:, 1:])
    rows = (X[:400], f[:400] + 0.05 * rng.normal(size=(400, 1)))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.3)
    errors = {
        M: gvi.learn(rows, kernel=kernel, num_inducing=M).predict_f(X[400:])[0] - f[400:]
        for M in (None, 200)
    }
    exact = gpflow.models.GPR(rows, gpflow.kernels.SquaredExponential(lengthscales=0.15))
    loss = tf.autograph.experimental.do_not_convert(exact.training_loss)  # which is slow
    gpflow.optimizers.Scipy().minimize(loss, exact.trainable_variables, options={"maxiter": 30})
    of_exact = exact.predict_f(X[400:])[0] - f[400:]
    rmse = {M: np.sqrt(np.mean(np.square(e))) for M, e in errors.items()}
    assert rmse[None] < 1.15 * np.sqrt(np.mean(np.square(of_exact)))
    assert rmse[None] < 0.9 * rmse[200]


@pytest.mark.parametrize(("lengthscale", "expected"), [(0.05, 50), (2.0, 10)])
def test_more_rows_have_as_many_inducing_points_as_miss_little(lengthscale, expected, rng):
    X = rng.uniform(-1.0, 1.0, size=(100, 2))
    recipe = Recipe(max_rows_of_points=80)
    fits = _fits(X, X[:, :1], recipe=recipe, num_inducing=10, max_inducing=50, predictors=None)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
    assert fits.num_points(fits.candidate(kernel)) == expected


def test_a_smooth_function_has_no_more_inducing_points_than_usual(rng):
    X = rng.uniform(-1.0, 1.0, size=(400, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(400, 1))
    learned = gvi.learn((X, Y), kernel=_kernel())
    assert len(learned.regulariser.inducing_points) <= 200


def test_iterations_that_are_asked_for_are_not_exceeded():
    """Among the variables may be the weights of a network, or an inducing distribution."""
    weights = tf.Variable(np.ones(60))
    scales = np.geomspace(1.0, 1e6, 60)
    evaluations = []

    def loss():
        evaluations.append(1)
        return tf.reduce_sum(scales * tf.square(weights))

    LBFGS(2)(loss, [weights])
    assert len(evaluations) <= 2 * 2 + 2  # a line search has few evaluations


@pytest.mark.parametrize(("D", "expected"), [(5, 20), (50, 50)])
def test_brief_fits_have_as_many_iterations_as_features(D, expected):
    settings = RegulariserSettings(minimise_briefly=LBFGS(20))
    assert settings.briefly(D) == LBFGS(expected)


@pytest.mark.slow  # kernels of eighty features
def test_a_linear_function_of_few_of_many_features_is_found(rng):
    X = rng.normal(size=(300, 80))
    Y = X[:, :3] @ np.array([[1.0], [-2.0], [1.5]]) + 0.5 * rng.normal(size=(300, 1))
    learned = gvi.learn((X[:50], Y[:50]))
    mean, variance = learned.predict_y(X[50:])
    rmse = np.sqrt(np.mean(np.square(Y[50:] - mean)))
    assert rmse < 0.8  # where the noise alone has 0.5, and the mean of Y 2.7
    covered = np.mean(np.abs(Y[50:] - mean) < 1.96 * np.sqrt(variance))
    assert covered > 0.95 - STANDARD_ERRORS * np.sqrt(0.95 * 0.05 / 250)


@pytest.mark.slow
def test_noise_of_few_rows_is_not_taken_for_a_function():
    """A kernel with short lengthscales predicts them as if there were none."""
    rng = np.random.default_rng(2)
    X, x = rng.uniform(-3.0, 3.0, (40, 1)), rng.uniform(-3.0, 3.0, (500, 1))
    Y, y = (0.5 * rows + 0.2 * rng.normal(size=rows.shape) for rows in (X, x))
    nll = -np.mean(gvi.learn((X, Y)).predict_log_density((x, y)))
    of_truth = 0.5 * np.log(2.0 * np.pi * np.e * 0.2**2)
    assert nll < of_truth + 0.3


def test_features_that_do_not_matter_cost_little():
    """A prior that keeps lengthscales short would leave all features in."""
    rng = np.random.default_rng(2)
    X, x = rng.normal(size=(100, 8)), rng.normal(size=(500, 8))
    Y, y = (
        np.sin(2.0 * rows[:, :1]) + 0.5 * rows[:, 1:2] ** 2 + 0.3 * rng.normal(size=(len(rows), 1))
        for rows in (X, x)
    )
    learned = gvi.learn((X, Y), kernel=starts.one_kernel(8))
    exact = gpflow.models.GPR((X, Y), gpflow.kernels.SquaredExponential(lengthscales=[3.0] * 8))
    loss = tf.autograph.experimental.do_not_convert(exact.training_loss)
    gpflow.optimizers.Scipy().minimize(loss, exact.trainable_variables)
    nlls = [-np.mean(model.predict_log_density((x, y))) for model in (learned, exact)]
    assert nlls[0] < nlls[1] + 0.05


def test_the_mode_of_a_prior_is_where_it_is_said_to_be():
    values = np.array([0.1, 3.0])
    assert_close(starts.with_mode(values, 1.5).mode(), values)


def test_very_few_rows_leave_doubt():
    """A function through all of them would be known without doubt."""
    rng = np.random.default_rng(52)
    X, x = rng.uniform(-3.0, 3.0, (8, 1)), rng.uniform(-3.0, 3.0, (300, 1))
    Y, y = (0.5 * rows + 0.1 * rng.normal(size=rows.shape) for rows in (X, x))
    assert -np.mean(gvi.learn((X, Y)).predict_log_density((x, y))) < 2.0


@pytest.mark.slow
def test_a_linear_function_of_many_features_is_known_as_a_linear_model_knows_it():
    """Hyper-parameters for each feature have an optimum of the evidence without noise, too."""
    X, Y = make_regression(605, 20, n_informative=6, noise=20.0, random_state=0)
    X, Y, x, y = X[:105], Y[:105, None], X[105:], Y[105:]
    of_learned = -np.mean(gvi.learn((X, Y)).predict_log_density((x, y[:, None])))
    mean, spread = BayesianRidge().fit(X, Y[:, 0]).predict(x, return_std=True)
    of_linear_model = -np.mean(scipy.stats.norm(mean, spread).logpdf(y))
    assert of_learned < of_linear_model + 0.05


@pytest.mark.slow
def test_a_small_difference_of_two_columns_is_known_as_least_squares_know_it(rng):
    difference = 0.001
    columns = rng.normal(size=(300, 2)) @ [[1.0, 1.0], [0.0, difference]]
    Y = (columns @ [[-1.0], [1.0]]) / difference + 0.3 * rng.normal(size=(300, 1))
    learned = gvi.learn((columns[:80], Y[:80]))
    of_linear_model = LinearRegression().fit(columns[:80], Y[:80]).predict(columns[80:])
    errors = [
        np.mean((each - Y[80:]) ** 2)
        for each in (learned.predict_y(columns[80:])[0], of_linear_model)
    ]
    assert errors[0] < 1.1 * errors[1]


@pytest.mark.parametrize("standardise", [True, False])
def test_the_prior_of_the_noise_is_for_standard_units(standardise, rng):
    """In others a tenth may be far from any noise."""
    X = rng.uniform(-3.0, 3.0, (19, 1))
    options = {"kernel": gpflow.kernels.SquaredExponential(), "standardise": standardise}
    likelihood = gvi.learn((X, np.sin(X)), **options).regulariser.likelihood
    assert (likelihood.variance.prior is not None) == standardise
