"""Losses against integrals of their definitions over f, and over y, on grids."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.quadrature import NDiagGHQuadrature
from scipy import integrate, special, stats

import gpflow_gvi as gvi
from gpflow_gvi.losses import log_power_integral

from .. import catalogue
from ..designs import each_pair
from ..tolerances import ITERATIVE, assert_close, assert_estimates

X = np.array([[0.2], [1.0], [-0.4]])
SCALE = (0.3 * X + 0.7)[:, 0]
"""The noise of the heteroskedastic likelihoods, one standard deviation for each row of X."""

# Fine enough for GPflow's quadrature to agree with ours to many digits.
QUADRATURE = {"quadrature": NDiagGHQuadrature(1, 80)}


def scale_function() -> gpflow.functions.Linear:
    return gpflow.functions.Linear(A=[[0.3]], b=[0.7])


class Likelihood(NamedTuple):
    """A likelihood of GPflow, its log density by scipy, and whether y is a label."""

    build: Callable[[], gpflow.likelihoods.Likelihood]
    log_density: Callable[[np.ndarray, np.ndarray, float], np.ndarray]
    binary: bool = False


def log_bernoulli(y: np.ndarray, f: np.ndarray, _: float) -> np.ndarray:
    p = 1e-3 + (1.0 - 2e-3) * stats.norm.cdf(f)  # GPflow's link keeps this far from 0 and 1
    return np.log(np.where(y == 1.0, p, 1.0 - p))


LIKELIHOODS = {
    "Gaussian": Likelihood(
        lambda: gpflow.likelihoods.Gaussian(0.4),
        lambda y, f, _: stats.norm.logpdf(y, f, np.sqrt(0.4)),
    ),
    "heteroskedastic": Likelihood(
        lambda: gpflow.likelihoods.Gaussian(scale=scale_function()),
        lambda y, f, scale: stats.norm.logpdf(y, f, scale),
    ),
    "StudentT": Likelihood(
        lambda: gpflow.likelihoods.StudentT(scale=0.8, df=4.0, **QUADRATURE),
        lambda y, f, _: stats.t.logpdf(y, 4.0, f, 0.8),
    ),
    "StudentT(heteroskedastic)": Likelihood(
        lambda: gpflow.likelihoods.StudentT(scale=scale_function(), df=4.0, **QUADRATURE),
        lambda y, f, scale: stats.t.logpdf(y, 4.0, f, scale),
    ),
    "Bernoulli": Likelihood(
        lambda: gpflow.likelihoods.Bernoulli(**QUADRATURE), log_bernoulli, binary=True
    ),
}


def beta_loss(beta: float, p: np.ndarray, integral: Callable[[float], np.ndarray]) -> np.ndarray:
    return -(p ** (beta - 1.0)) / (beta - 1.0) + integral(beta) / beta


def gamma_loss(gamma: float, p: np.ndarray, integral: Callable[[float], np.ndarray]) -> np.ndarray:
    c = gamma - 1.0
    return -gamma / c * p**c * integral(gamma) ** (-c / gamma)


LOSSES = {
    "Log": (gvi.losses.LogLoss(), lambda p, _: -np.log(p)),
    "PredictiveLog": (gvi.losses.PredictiveLogLoss(), lambda p, _: p),
    **{
        f"Beta({value})": (gvi.losses.BetaLoss(value), functools.partial(beta_loss, value))
        for value in (0.8, 1.3, 2.0)
    },
    **{
        f"Gamma({value})": (gvi.losses.GammaLoss(value), functools.partial(gamma_loss, value))
        for value in (0.7, 1.4)
    },
}
"""Each loss and its definition: of p(y|f) and of the function from a power to ∫ p(y'|f)^power dy'.

For the predictive loss it is the density itself, whose expectation still needs the logarithm.
"""


def marginals(J: int) -> tuple[np.ndarray, np.ndarray]:
    f_mean = np.array([[0.5, -0.3], [-0.2, 0.8], [0.1, 0.4]])[:, :J]
    f_variance = np.array([[0.3, 0.5], [0.6, 0.1], [0.02, 0.4]])[:, :J]
    return f_mean, f_variance


def observations(J: int, binary: bool) -> np.ndarray:
    Y = np.array([[0.9, -2.0], [1.4, 0.1], [-0.7, 0.6]])[:, :J]
    return (Y > 0.0) * 1.0 if binary else Y


def tensor_grid(nodes: np.ndarray, weights: np.ndarray, J: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes [n^J, J] and weights [n^J] of a rule over J variables at once."""
    points = np.stack(np.meshgrid(*[nodes] * J, indexing="ij"), axis=-1).reshape(-1, J)
    products = functools.reduce(np.multiply.outer, [weights] * J)
    return points, products.ravel()


def power_integral(case: Likelihood, J: int, scale: float, power: float, F: np.ndarray):
    """Return ∫ p(y|f)^power dy over all of y in J dimensions, for the rows of F."""
    if case.binary:
        labels, ones = tensor_grid(np.array([0.0, 1.0]), np.ones(2), J)
        logs = sum(case.log_density(labels[:, j], F[:, None, j], scale) for j in range(J))
        return np.exp(power * logs) @ ones
    # Densities of y - f: one f stands for all. With y = sinh t the tails end soon.
    t = np.linspace(-14.0, 14.0, 601)
    y, weights = tensor_grid(np.sinh(t), np.cosh(t) * (t[1] - t[0]), J)
    return np.exp(power * case.log_density(y, 0.0, scale).sum(axis=-1)) @ weights


def reference(name: str, case: Likelihood, J: int) -> np.ndarray:
    """Return the loss of each row, as a sum over a grid of f in J dimensions."""
    t = np.linspace(-11.0, 11.0, 301)
    standard, weights = tensor_grid(t, stats.norm.pdf(t) * (t[1] - t[0]), J)
    values = []
    rows = zip(*marginals(J), observations(J, case.binary), SCALE, strict=True)
    for mean, variance, y, scale in rows:
        F = mean + np.sqrt(variance) * standard  # [n^J, J]
        density = np.exp(case.log_density(y, F, scale).sum(axis=-1))
        integral = functools.partial(power_integral, case, J, scale, F=F)
        expected = weights @ LOSSES[name][1](density, integral)
        values.append(-np.log(expected) if name == "PredictiveLog" else expected)
    return np.array(values)


@pytest.mark.parametrize(("loss", "likelihood", "J"), each_pair(LOSSES, LIKELIHOODS, [1, 2]))
def test_loss_is_the_integral_of_its_definition(loss: str, likelihood: str, J: int) -> None:
    """With J = 2 the density is that of both observations together."""
    case = LIKELIHOODS[likelihood]
    value = LOSSES[loss][0](case.build(), X, *marginals(J), observations(J, case.binary))
    assert_close(value, reference(loss, case, J))


def test_log_losses_are_those_of_gpflow_and_of_samples(rng: np.random.Generator) -> None:
    likelihood = gpflow.likelihoods.MultiClass(2)
    f_mean, f_variance = marginals(2)
    Y = np.array([[0.0], [1.0], [1.0]])
    arguments = (likelihood, X, f_mean, f_variance, Y)
    expected = gvi.losses.LogLoss()(*arguments)
    predictive = gvi.losses.PredictiveLogLoss()(*arguments)
    np.testing.assert_array_equal(
        expected, -likelihood.variational_expectations(X, f_mean, f_variance, Y)
    )
    samples = f_mean + np.sqrt(f_variance) * rng.normal(size=(20_000, *f_mean.shape))
    # RobustMax: the largest of two has probability 1 - 1e-3, the other 1e-3.
    right = np.argmax(samples, axis=-1) == Y[:, 0]
    p = np.where(right, 1.0 - 1e-3, 1e-3)
    for value, sampled in ((expected, -np.log(p)), (np.exp(-predictive), p)):
        assert_estimates(sampled.mean(axis=0), value, stats.sem(sampled))


def softmax(samples: np.ndarray) -> np.ndarray:
    return special.softmax(samples, axis=-1)


def robust_max(samples: np.ndarray) -> np.ndarray:
    """The largest of three has probability 1 - 1e-3, each other 5e-4."""
    is_largest = np.arange(3) == np.argmax(samples, axis=-1)[..., None]
    return np.where(is_largest, 1.0 - 1e-3, 5e-4)


@pytest.mark.parametrize("order", [0.8, 1.5, 2.0])
@pytest.mark.parametrize("kind", [gvi.losses.BetaLoss, gvi.losses.GammaLoss])
@pytest.mark.parametrize("likelihood", [gpflow.likelihoods.Softmax, gpflow.likelihoods.MultiClass])
@pytest.mark.draws
def test_robust_loss_of_classes_is_that_of_samples(likelihood, kind, order, rng) -> None:
    f_mean, f_variance = rng.normal(size=(3, 3)), rng.uniform(0.1, 1.0, size=(3, 3))
    Y = np.array([[0], [2], [1]])
    built = likelihood(3)
    built.num_monte_carlo_points = 20_000  # of Softmax, so that errors of samples are small
    samples = f_mean + np.sqrt(f_variance) * rng.normal(size=(20_000, 3, 3))
    p = {"Softmax": softmax, "MultiClass": robust_max}[likelihood.__name__](samples)
    definition = beta_loss if kind is gvi.losses.BetaLoss else gamma_loss
    of_y = np.take_along_axis(p, np.broadcast_to(Y, (len(p), 3, 1)), axis=-1)[..., 0]
    sampled = definition(order, of_y, lambda power: np.sum(p**power, axis=-1))
    tf.random.set_seed(0)
    value = kind(order)(built, X, f_mean, f_variance, Y)
    # Both are samples' means under Softmax, and their errors add.
    assert_estimates(sampled.mean(axis=0), value, np.sqrt(2.0) * stats.sem(sampled))


CONSTANTS = {
    gvi.losses.BetaLoss: lambda beta: 1.0 - 1.0 / (beta - 1.0),
    gvi.losses.GammaLoss: lambda gamma: -gamma / (gamma - 1.0),
}
"""What the losses tend to beside the log loss, which does not depend on Q."""


# Bernoulli's integral is a sum over labels, and that of the others a formula.
@pytest.mark.parametrize(
    ("kind", "likelihood"), [*itertools.product(CONSTANTS, ["Gaussian", "Bernoulli"])]
)
def test_limit_at_one_is_the_log_loss(kind, likelihood: str) -> None:
    constant = CONSTANTS[kind]
    case = LIKELIHOODS[likelihood]
    Y = observations(2, case.binary)
    _, log_value, log_gradient = value_and_gradients(gvi.losses.LogLoss(), case.build(), Y)
    _, value, gradient = value_and_gradients(kind(1.0), case.build(), Y)
    np.testing.assert_array_equal(value, log_value)
    np.testing.assert_array_equal(gradient, log_gradient)
    values, gradients = [], []
    for c in (1e-4, -1e-4):
        _, value, gradient = value_and_gradients(kind(1.0 + c), case.build(), Y)
        values.append(value - constant(1.0 + c))
        gradients.append(gradient)
    # Orders on either side of one differ to first order, but their average does not.
    assert_close(np.mean(values, axis=0), log_value, ITERATIVE)
    assert_close(np.mean(gradients, axis=0), log_gradient, ITERATIVE)


def value_and_gradients(loss, likelihood, Y) -> tuple[list[tf.Tensor], np.ndarray, np.ndarray]:
    """Return the marginals, the loss, and its gradients by f_mean and f_variance."""
    arguments = [tf.constant(part) for part in marginals(2)]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        value = loss(likelihood, X, *arguments, Y)
    return arguments, value.numpy(), np.array(tape.gradient(value, arguments))


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("loss", catalogue.LOSSES)
def test_gradients_are_those_of_finite_differences(loss: str, likelihood: str) -> None:
    case = LIKELIHOODS[likelihood]
    built, Y = case.build(), observations(2, case.binary)
    kind = catalogue.LOSSES[loss]()
    arguments, _, gradients = value_and_gradients(kind, built, Y)
    # Rows are independent: one call has them all with each of f_mean and f_variance moved in each
    # column, to both sides.
    steps = 1e-5 * np.eye(4).reshape(4, 2, 1, 2)  # [moved, argument, row, column]
    steps = np.concatenate([steps, -steps])
    moved = [(np.array(a) + steps[:, i]).reshape(-1, 2) for i, a in enumerate(arguments)]
    values = kind(built, np.tile(X, (8, 1)), *moved, np.tile(Y, (8, 1))).numpy().reshape(2, 4, 3)
    expected = np.einsum("acn->anc", ((values[0] - values[1]) / 2e-5).reshape(2, 2, 3))
    assert_close(gradients, expected, ITERATIVE)


@pytest.mark.parametrize("likelihood", ["Gaussian", "StudentT"])
@pytest.mark.parametrize("kind", [gvi.losses.BetaLoss, gvi.losses.GammaLoss])
def test_outliers_lose_their_pull(kind, likelihood: str) -> None:
    residuals = np.array([[1.0], [10.0], [100.0], [1000.0]])

    def pull(loss: gvi.losses.Loss) -> np.ndarray:
        f_mean = tf.zeros_like(residuals)
        with tf.GradientTape() as tape:
            tape.watch(f_mean)
            value = loss(
                LIKELIHOODS[likelihood].build(),
                np.ones((4, 1)),
                f_mean,
                np.full((4, 1), 0.1),
                residuals,
            )
        return -tape.gradient(value, f_mean).numpy()[:, 0]

    robust = pull(kind(1.5))
    assert robust[0] > 0.0
    assert np.all(np.diff(robust) <= 0.0)
    assert 0.0 <= robust[-1] < ITERATIVE.float64 * robust[0]
    if likelihood == "Gaussian":
        assert_close(pull(gvi.losses.LogLoss()), residuals[:, 0] / 0.4)


@pytest.mark.parametrize("kind", [gvi.losses.BetaLoss, gvi.losses.GammaLoss])
def test_expectation_that_diverges_is_infinite_and_not_nan(kind) -> None:
    """E N(y; f, s)^c diverges for s + c v ≤ 0: rows one (beyond) and two (on the border)."""
    f_variance = np.array([[0.9, 0.1], [0.8, 0.1], [0.7, 0.1]])
    Y = np.array([[0.0, 50.0], [0.0, 0.0], [0.0, 0.0]])
    value = kind(0.5)(gpflow.likelihoods.Gaussian(0.4), X, np.zeros((3, 2)), f_variance, Y)
    np.testing.assert_array_equal(np.isposinf(value), [True, True, False])
    assert np.isfinite(value[2])


@pytest.mark.parametrize("kind", [gvi.losses.BetaLoss, gvi.losses.GammaLoss])
@pytest.mark.parametrize(("order", "is_finite"), [(0.2, False), (0.25, False), (0.3, True)])
def test_powers_of_students_t_have_integrals_above_an_order(kind, order, is_finite) -> None:
    """p(y|f)^β falls as |y|^(-β(ν+1)), whose integral is finite for β(ν+1) > 1 alone."""
    likelihood = gpflow.likelihoods.StudentT(df=3.0)
    value = kind(order)(likelihood, X, np.zeros((3, 1)), np.ones((3, 1)), np.zeros((3, 1)))
    np.testing.assert_array_equal(np.isfinite(value), is_finite)
    np.testing.assert_array_equal(np.isposinf(value), not is_finite)


@pytest.mark.parametrize("loss", ["Beta(0.8)", "Beta(2.0)", "Gamma(1.4)"])
def test_heavy_tails_are_those_of_students_t_of_this_variance(loss: str) -> None:
    """`HeavyTailed` is a Gaussian by its class, but not by its density given f."""
    likelihood = gvi.likelihoods.HeavyTailed(0.4, 4.0)
    scale = np.sqrt(0.4 * (4.0 - 2.0) / 4.0)
    of_t = gpflow.likelihoods.StudentT(scale=scale, df=4.0)
    at = X, *marginals(2), observations(2, False)
    assert_close(LOSSES[loss][0](likelihood, *at), LOSSES[loss][0](of_t, *at))


class Logistic(gpflow.likelihoods.ScalarLikelihood):
    """A likelihood of a user's own: p(y|f) = s (1 - s) with s the logistic function of y - f."""

    def _scalar_log_prob(self, X, F, Y):
        return tf.math.log_sigmoid(Y - F) + tf.math.log_sigmoid(F - Y)

    _conditional_mean = _conditional_variance = None


@pytest.mark.parametrize("kind", [gvi.losses.BetaLoss, gvi.losses.GammaLoss])
def test_likelihood_without_a_known_integral_is_refused(kind, capsys) -> None:
    """By `learn` before anything is fitted, and by the loss itself."""
    f = tf.zeros([3, 2], dtype=tf.float64)
    labels = np.zeros((3, 1))
    poisson = gpflow.likelihoods.Poisson()
    with pytest.raises(TypeError, match="likelihood is Poisson"):
        gvi.learn((X, labels), likelihood=poisson, loss=kind(), verbose=1)
    assert capsys.readouterr().out == ""
    two = gpflow.likelihoods.HeteroskedasticTFPConditional()
    for refused in (kind().check, lambda each: kind()(each, X, f, f + 1.0, labels)):
        with pytest.raises(TypeError, match=r"likelihood is Heteroskedastic.*; .*Use LogLoss"):
            refused(two)
    with pytest.raises(
        TypeError, match=r"likelihood is Poisson; .*'Gaussian'.*log_power_integral.register"
    ):
        kind()(gpflow.likelihoods.Poisson(), X, f[:, :1], f[:, :1] + 1.0, labels)


def test_likelihood_of_ones_own_is_registered() -> None:
    @log_power_integral.register
    def _(likelihood: Logistic, X, F, power):
        return tf.zeros_like(F) + special.betaln(power, power)  # as dy = ds / (s (1 - s))

    case = Likelihood(
        lambda: Logistic(quadrature=NDiagGHQuadrature(1, 80)),
        lambda y, f, _: stats.logistic.logpdf(y, f),
    )
    value = gvi.losses.BetaLoss(1.3)(case.build(), X, *marginals(1), observations(1, False))
    assert_close(value, reference("Beta(1.3)", case, 1))


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("kind", [gvi.losses.BetaLoss, gvi.losses.GammaLoss])
def test_order_must_be_positive_and_finite(kind, value: float) -> None:
    name = kind.__name__.removesuffix("Loss").lower()
    with pytest.raises(ValueError, match=f"{name} is {value}; it must be positive and finite"):
        kind(value)


def test_degrees_of_freedom_and_pi_are_not_rounded_to_single_precision():
    likelihood = gpflow.likelihoods.StudentT(scale=0.7, df=3.3)
    density = stats.t(3.3, scale=0.7).pdf
    expected = np.log(2.0 * integrate.quad(lambda y: density(y) ** 1.4, 0.0, np.inf)[0])
    F = tf.zeros([1, 1], tf.float64)
    value = log_power_integral(likelihood, F, F, 1.4)
    assert_close(value, [[expected]])
