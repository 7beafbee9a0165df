"""The regulariser: its alternation, against GPflow's own fits, and where it must say no."""

from __future__ import annotations

import warnings
from functools import partial

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.regulariser.evidence import DataEvidence, InducingEvidence
from gpflow_gvi.regulariser.fit import fit_regulariser
from gpflow_gvi.regulariser.inducing_points import Selection, kmeans, uniform
from gpflow_gvi.regulariser.lbfgs import lbfgs
from tests.minimisers import comparing_with_a_tape
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

few_iterations = partial(lbfgs, max_iterations=30)
to_the_end = partial(lbfgs, tolerance=1e-15)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(20231001)
    X = np.sort(rng.uniform(-3.0, 3.0, size=(60, 1)), axis=0)
    return X, np.sin(2.0 * X) + 0.2 * rng.normal(size=X.shape)


def _kernel():
    return gpflow.kernels.SquaredExponential()


@pytest.fixture(scope="module")
def fitted(data):
    """The kernel that was given, what came out, and where each round started."""
    starts = []

    def remember(loss, variables):
        starts.append([variable.numpy() for variable in variables])
        few_iterations(loss, variables)

    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.2)  # far from the optimum
    return kernel, fit_regulariser(data, kernel, 8, minimise=remember), starts


@pytest.mark.parametrize("likelihood", [None, gpflow.likelihoods.StudentT()])
def test_sets_of_one_row_are_refused(data, likelihood):
    X, Y = data
    with pytest.raises(ValueError, match=r"X has shape \(60, 1, 1\); it must be \[N, D\]"):
        fit_regulariser((X[:, None], Y), _kernel(), 8, likelihood=likelihood)


def test_with_all_points_it_is_gpr(data):
    regulariser = fit_regulariser(data, _kernel(), 60, select=uniform, minimise=to_the_end)
    gpr = gpflow.models.GPR(data, _kernel())
    loss = tf.autograph.experimental.do_not_convert(gpr.training_loss)
    gpflow.optimizers.Scipy().minimize(loss, gpr.trainable_variables, options={"ftol": 1e-15})
    assert_close(regulariser.log_evidence, float(gpr.log_marginal_likelihood()))
    noise = regulariser.likelihood.variance.numpy()
    assert_close(noise, gpr.likelihood.variance.numpy(), ITERATIVE)
    x = np.linspace(-4.0, 4.0, 9)[:, None]
    for ours, theirs in zip(regulariser.posterior.predict(x), gpr.predict_f(x), strict=True):
        assert_close(ours, theirs, ITERATIVE)


@pytest.mark.parametrize("evidence", [InducingEvidence(), DataEvidence()])
def test_derivatives_by_numpy_are_those_by_a_tape(evidence, data):
    X, Y = data
    kernel = gpflow.kernels.Matern52() + gpflow.kernels.Linear(0.1)
    kernel.kernels[0].lengthscales.prior = tfp.distributions.LogNormal(np.float64(0), np.float64(1))
    kernel.kernels[1].variance.prior = tfp.distributions.Normal(np.float64(0), np.float64(1))
    compared = []
    minimise = comparing_with_a_tape(compared)
    several = X, np.hstack([Y, np.cos(Y)])
    mean = gpflow.functions.Linear(np.ones((1, 2)))
    gpflow.set_trainable(mean, False)
    fit_regulariser(several, kernel, 9, mean_function=mean, evidence=evidence, minimise=minimise)
    assert set(compared) == {4}


def test_the_prior_keeps_no_memory_of_the_data(fitted):
    regulariser = fitted[1]
    x = np.linspace(-4.0, 4.0, 9)[:, None]
    np.testing.assert_array_equal(regulariser.prior.mean(x), np.zeros((9, 1)))
    variance = regulariser.prior.variance(x)
    assert_close(variance, np.full((9, 1), variance[0, 0]))


def test_outputs_belong_to_their_inducing_points(data, fitted):
    X, Y = data
    regulariser = fitted[1]
    indices = regulariser.history[-1].indices
    np.testing.assert_array_equal(regulariser.inducing_points, X[indices])
    np.testing.assert_array_equal(regulariser.inducing_outputs, Y[indices])


def test_stops_when_the_choice_repeats_and_says_so(data):
    regulariser = fit_regulariser(data, _kernel(), 8)
    assert regulariser.converged
    repeated = fit_regulariser(data, regulariser.prior.kernel, 8, max_rounds=1)
    assert set(repeated.history[0].indices) == set(regulariser.history[-1].indices)
    assert not repeated.converged


def test_each_round_starts_from_the_values_that_were_given(fitted):
    kernel, regulariser, starts = fitted
    assert len(starts) == len(regulariser.history) > 1
    for start in starts[1:]:
        for first, later in zip(starts[0], start, strict=True):
            np.testing.assert_array_equal(first, later)
    assert_close(kernel.lengthscales.numpy(), 0.2)  # the caller's own is as it was


def test_history_ends_with_the_loss_of_the_hyper_parameters(data, fitted):
    regulariser = fitted[1]
    last = regulariser.history[-1]
    gpr = gpflow.models.GPR(
        (data[0][last.indices], data[1][last.indices]),
        regulariser.prior.kernel,
        likelihood=regulariser.likelihood,
    )
    assert_close(last.loss, -float(gpr.log_marginal_likelihood()))


def test_priors_on_hyper_parameters_count(data):
    kernel = _kernel()
    kernel.lengthscales.prior = tfp.distributions.LogNormal(np.float64(1.5), np.float64(0.01))
    regulariser = fit_regulariser(data, kernel, 20)
    assert_estimates(np.log(regulariser.prior.kernel.lengthscales.numpy()), 1.5, 0.01)


@pytest.mark.slow
def test_fits_more_data_than_an_exact_process_could(rng):
    X = rng.uniform(-3.0, 3.0, size=(50_000, 1))
    Y = np.sin(2.0 * X) + 0.2 * rng.normal(size=X.shape)
    regulariser = fit_regulariser(
        (X, Y), _kernel(), 20, evidence=DataEvidence(), minimise=few_iterations, max_rounds=1
    )
    noise = regulariser.likelihood.variance.numpy()
    assert_estimates(noise, 0.04, 0.04 * np.sqrt(2.0 / 50_000))
    x = np.linspace(-2.5, 2.5, 11)[:, None]
    mean, variance = regulariser.posterior.predict(x)
    assert_estimates(mean, np.sin(2.0 * x), np.sqrt(variance))


def test_all_data_take_points_that_are_not_rows(data):
    regulariser = fit_regulariser(
        data, _kernel(), 10, select=kmeans, evidence=DataEvidence(), minimise=lambda *_: None
    )
    assert regulariser.inducing_outputs is None
    assert regulariser.history[-1].indices is None


def test_several_outputs_with_kernels_and_noises_of_their_own(data):
    X, Y = data
    kernel = gpflow.kernels.SeparateIndependent([_kernel(), _kernel()])
    likelihood = gpflow.likelihoods.Gaussian(np.array([0.1, 0.1]))
    both = fit_regulariser(
        (X, np.hstack([Y, 3.0 * Y[::-1]])),
        kernel,
        60,
        select=uniform,
        likelihood=likelihood,
        minimise=to_the_end,
    )
    first = fit_regulariser((X, Y), _kernel(), 60, select=uniform, minimise=to_the_end)
    noises = both.likelihood.variance.numpy()
    assert_close(noises[0], first.likelihood.variance.numpy(), ITERATIVE)
    x = np.linspace(-4.0, 4.0, 9)[:, None]
    assert_close(both.posterior.mean(x)[:, :1], first.posterior.mean(x), ITERATIVE)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"num_inducing": 0}, ValueError, "num_inducing is 0"),
        ({"num_inducing": 2.5}, ValueError, r"num_inducing is 2\.5"),
        ({"max_rounds": 0}, ValueError, "max_rounds is 0"),
        ({"select": kmeans}, ValueError, "not rows of the data.*DataEvidence"),
    ],
)
def test_bad_arguments(data, change, error, words):
    arguments = {"num_inducing": 5, **change}
    with pytest.raises(error, match=words):
        fit_regulariser(data, _kernel(), **arguments)


def test_bad_data(data):
    X, Y = data
    with pytest.raises(ValueError, match="Y has NaN"):
        fit_regulariser((X, np.where(Y > 1.0, np.nan, Y)), _kernel(), 5)
    beyond = gpflow.kernels.Matern32(active_dims=[3])
    with pytest.raises(ValueError, match=r"Matern32 with active_dims .* X has 1 columns"):
        fit_regulariser(data, beyond, 5)
    with pytest.raises(ValueError, match="X has 60 rows and Y has 59"):
        fit_regulariser((X, Y[1:]), _kernel(), 5)
    three = gpflow.functions.Constant(np.zeros(3))
    for likelihood in (None, gpflow.likelihoods.StudentT()):
        with pytest.raises(ValueError, match=r"Y has 1 columns, but .* 3 outputs. Give Y 3"):
            fit_regulariser(data, _kernel(), 5, mean_function=three, likelihood=likelihood)


@pytest.mark.parametrize("N", [1, 2])
def test_hardly_any_data(N):
    X, Y = np.arange(N, dtype=float)[:, None], np.zeros((N, 1))
    regulariser = fit_regulariser((X, Y), _kernel(), 5, minimise=few_iterations, max_rounds=1)
    assert len(regulariser.inducing_points) == N
    assert np.all(np.isfinite(regulariser.posterior.variance(X)))


def test_duplicated_rows_are_chosen_once(data):
    X, Y = (np.repeat(part, 2, axis=0) for part in data)
    regulariser = fit_regulariser((X, Y), _kernel(), 10, minimise=lambda *_: None, max_rounds=1)
    assert len(np.unique(regulariser.inducing_points)) == len(regulariser.inducing_points)


def test_traces_the_loss_once_for_all_rounds(data):
    traced = []

    class Counting(gpflow.kernels.SquaredExponential):
        def K(self, X, X2=None):
            if not tf.executing_eagerly() and X2 is None:
                traced.append(X.shape)
            return super().K(X, X2)

    kernel = Counting()
    fit_regulariser(data, kernel, 3, minimise=few_iterations, max_rounds=2)
    before = len(traced)
    traced.clear()
    fit_regulariser(data, kernel, 3, minimise=few_iterations, max_rounds=6)
    assert len(traced) <= before


def test_a_choice_that_comes_back_later_ends_the_alternation_unconverged(data):
    choices = iter([[0, 1, 2], [3, 4, 5], [2, 0, 1], [6, 7, 8]])

    def select(X, num_points, *, kernel, seed=0):
        indices = np.array(next(choices))
        return Selection(X[indices], indices)

    regulariser = fit_regulariser(data, _kernel(), 3, select=select, minimise=lambda *_: None)
    assert len(regulariser.history) == 2
    assert not regulariser.converged


def test_with_nothing_trainable_the_hyper_parameters_stay_and_p_is_conditioned(data):
    kernel, noise = _kernel(), gpflow.likelihoods.Gaussian(0.04)
    for part in (kernel, noise):
        gpflow.set_trainable(part, False)
    kernel.variance.prior = tfp.distributions.Gamma(
        np.float64(2.0), np.float64(3.0)
    )  # of no effect
    regulariser = fit_regulariser(data, kernel, 60, likelihood=noise, select=uniform)
    gpr = gpflow.models.GPR(data, kernel, likelihood=noise)
    assert_close(regulariser.log_evidence, gpr.log_marginal_likelihood())
    x = np.linspace(-4.0, 4.0, 9)[:, None]
    for ours, theirs in zip(regulariser.posterior.predict(x), gpr.predict_f(x), strict=True):
        assert_close(ours, theirs)
    by_scale = gpflow.likelihoods.Gaussian(scale=0.2)
    gpflow.set_trainable(by_scale, False)
    same = fit_regulariser(data, kernel, 60, likelihood=by_scale, select=uniform)
    assert_close(same.log_evidence, regulariser.log_evidence)


def test_what_p_cannot_be_fitted_with_is_refused_before_any_work(data):
    def minimise(loss, variables):
        raise AssertionError("there was work")

    mixed = gpflow.kernels.LinearCoregionalization([_kernel()], W=np.ones((2, 1)))
    with pytest.raises(TypeError, match="LinearCoregionalization, whose outputs are correlated"):
        fit_regulariser(data, mixed, 5, minimise=minimise)
    noise = gpflow.likelihoods.Gaussian(scale=gpflow.functions.Linear())
    with pytest.raises(TypeError, match=r"function of x, Linear, .* one noise variance"):
        fit_regulariser(data, _kernel(), 5, likelihood=noise, minimise=minimise)
    with pytest.raises(TypeError, match=r"evidence is 'data'; .* InducingEvidence\(\) or Data"):
        fit_regulariser(data, _kernel(), 5, evidence="data", minimise=minimise)


def test_noise_that_is_a_function_of_x_is_that_of_each_row(data):
    """The evidence with all rows as inducing points is log N(y; 0, K + diag σ(x)²)."""
    X, Y = data
    kernel, scale = _kernel(), gpflow.functions.Linear(A=[[0.1]], b=[0.5])
    noise = gpflow.likelihoods.Gaussian(scale=scale)
    for part in (kernel, noise):
        gpflow.set_trainable(part, False)
    regulariser = fit_regulariser(
        data, kernel, 60, likelihood=noise, select=uniform, evidence=DataEvidence()
    )
    covariance = kernel(X).numpy() + np.diag((0.1 * X[:, 0] + 0.5) ** 2)
    expected = scipy.stats.multivariate_normal(np.zeros(60), covariance).logpdf(Y[:, 0])
    assert_close(regulariser.log_evidence, expected, ITERATIVE)


def test_points_that_do_not_tell_the_hyper_parameters_are_told(rng):
    """Six points are fitted without noise; the other rows say so, by their density under P."""
    X = rng.normal(size=(60, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.3 * rng.normal(size=(60, 1))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])
    with pytest.warns(NumericsWarning, match=r"54 rows that are not .*DataEvidence\(\)") as told:
        found = fit_regulariser((X, Y), kernel, 6)
    Z, U = found.inducing_points, found.inducing_outputs
    gpr = gpflow.models.GPR((Z, U), found.prior.kernel, noise_variance=found.likelihood.variance)
    others = np.array([i for i in range(60) if i not in found.history[-1].indices])
    density = tf.reduce_mean(gpr.predict_log_density((X[others], Y[others]))).numpy()
    constant = np.mean(scipy.stats.norm.logpdf(Y[others], np.mean(Y[others]), np.std(Y[others])))
    assert f"by {constant - density:.3g} nats" in str(told[0].message)


def test_points_that_tell_them_are_taken_without_a_word(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_regulariser(data, _kernel(), 30)
