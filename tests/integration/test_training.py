"""Models train under every optimiser, from arrays and from iterators, and learn what is there."""

from __future__ import annotations

import functools
from collections.abc import Callable

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_gvi as gvi
from tests.tolerances import assert_close, assert_estimates

from .. import catalogue
from ..designs import each_value

N, M, NOISE = 20, 4, 0.1
_RNG = np.random.default_rng(23)
X = _RNG.uniform(-2.0, 2.0, size=(N, 1))
Y = np.sin(2.0 * X) + NOISE * _RNG.normal(size=(N, 1))
Z = np.linspace(-1.9, 1.9, M)[:, None]


class Traced(gpflow.functions.Constant):
    """A mean function that counts how often Python runs it: once for each trace."""

    def __init__(self) -> None:
        super().__init__(np.array([0.3]))
        self.calls = 0

    def __call__(self, X: gpflow.base.TensorType) -> tf.Tensor:
        self.calls += 1
        return super().__call__(X)


def make(covariance: str, divergence: str, Z: np.ndarray = Z) -> gvi.models.GVI:
    k = gpflow.kernels.SquaredExponential(lengthscales=0.8)
    inducing_variable = catalogue.inducing_points(Z)
    r = catalogue.COVARIANCES[covariance](k, inducing_variable)
    for part in r.submodules:  # a Q away from P, inside of where a Rényi divergence is finite
        if isinstance(part, gpflow.kernels.Stationary) and part is not k:
            part.variance.assign(0.6)
    svgp = covariance.startswith("CholeskySVGP")
    m = gvi.mean_functions.Inducing(k, inducing_variable) if svgp else Traced()
    return gvi.models.GVI(
        gvi.GaussianProcess(gpflow.functions.Zero(), k),
        gvi.GaussianProcess(m, r),
        gpflow.likelihoods.Gaussian(0.5),
        catalogue.DIVERGENCES[divergence](),
        num_data=N,
    )


class Problem:
    """A model with its compiled closure and its start, so that optimisers share one trace."""

    def __init__(self, covariance: str, divergence: str) -> None:
        self.model = make(covariance, divergence)
        self.closure = self.model.training_loss_closure((X, Y))
        self.variables = self.model.trainable_variables
        self.start = [variable.numpy() for variable in self.variables]

    def restart(self) -> float:
        for variable, value in zip(self.variables, self.start, strict=True):
            variable.assign(value)
        return float(self.closure())


problem = functools.lru_cache(maxsize=1)(Problem)
"""The last problem, for cases that differ in the optimiser alone."""


def scipy(problem: Problem) -> None:
    gpflow.optimizers.Scipy().minimize(
        problem.closure, problem.variables, compile=False, options={"maxiter": 4}
    )


def tf_keras_adam(problem: Problem) -> None:
    optimizer = tf_keras.optimizers.Adam(0.02)
    for _ in range(4):
        optimizer.minimize(problem.closure, problem.variables)


def keras_adam(problem: Problem) -> None:
    optimizer = keras.optimizers.Adam(0.02)
    for _ in range(4):
        with tf.GradientTape() as tape:
            loss = problem.closure()
        gradients = tape.gradient(loss, problem.variables)
        optimizer.apply_gradients(zip(gradients, problem.variables, strict=True))


OPTIMISERS: dict[str, Callable[[Problem], None]] = {
    "Scipy": scipy,
    "tf_keras": tf_keras_adam,
    "Keras 3": keras_adam,
}


@pytest.mark.parametrize(
    ("covariance", "divergence", "optimiser"),
    [
        *catalogue.covariances_in_turn(["Renyi(0.3)", "GaussianWasserstein(exact)"], OPTIMISERS),
        # A covariance whose marginals do not depend on all of its parameters, with each optimiser.
        *(
            pytest.param("KernelisedSVGP", "Renyi(0.3)", optimiser, marks=pytest.mark.slow)
            for optimiser in OPTIMISERS
        ),
    ],
)
def test_loss_decreases(covariance: str, divergence: str, optimiser: str) -> None:
    here = problem(covariance, divergence)
    first = here.restart()
    OPTIMISERS[optimiser](here)
    assert float(here.closure()) < first - 0.1
    moved = [
        np.any(variable.numpy() != value)
        for variable, value in zip(here.variables, here.start, strict=True)
    ]
    # Every parameter took part, but that marginals of a stationary r_0 have no lengthscale.
    marginal_of_r_0 = (covariance, divergence) == ("KernelisedSVGP", "Renyi(0.3)")
    assert sum(moved) == len(moved) - marginal_of_r_0


@pytest.mark.parametrize(
    "divergence",
    [pytest.param("Renyi(0.3)", marks=pytest.mark.slow), "GaussianWasserstein(exact)"],
)
def test_natural_gradients_with_adam_on_the_rest(divergence: str) -> None:
    model = make("CholeskySVGP", divergence)
    q = (model.q_mu, model.q_sqrt)
    by_natural_gradient = {id(parameter.unconstrained_variable) for parameter in q}
    rest = [v for v in model.trainable_variables if id(v) not in by_natural_gradient]
    assert len(rest) == 2  # the noise variance and the inducing points
    closure = model.training_loss_closure((X, Y))
    natural, adam = gpflow.optimizers.NaturalGradient(0.1), tf_keras.optimizers.Adam(0.02)
    losses = [float(closure())]
    for _ in range(4):
        natural.minimize(closure, [q])
        losses.append(float(closure()))
        adam.minimize(closure, rest)
        losses.append(float(closure()))
    assert np.all(np.diff(losses) < 0.0)


def ragged_batches() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)  # 8, 8 and 4


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
def test_batches_of_an_iterator(compiled: bool) -> None:
    model = make("CholeskySVGP", "Renyi(0.3)")
    iterator = iter(ragged_batches().repeat())
    closure = model.training_loss_closure(iterator, compile=compiled)
    batches = [(X[i : i + 8], Y[i : i + 8]) for i in (0, 8, 16)]
    for batch in 2 * batches:
        assert_close(closure(), model.training_loss(batch))
    before = float(model.training_loss((X, Y)))
    optimizer = tf_keras.optimizers.Adam(0.02)
    for _ in range(6):
        optimizer.minimize(closure, model.trainable_variables)
    assert float(model.training_loss((X, Y))) < before - 0.1


@pytest.mark.parametrize(
    ("covariance", "data"),
    each_value(["DiagonalSVGP", "FixedSparsePosterior"], ["arrays", "iterator"]),
)
def test_step_is_traced_once(covariance: str, data: str) -> None:
    model = make(covariance, "Renyi(0.3)")
    source = (X, Y) if data == "arrays" else iter(ragged_batches().repeat())
    closure = model.training_loss_closure(source)
    mean = model.variational.mean_function
    before = mean.calls
    optimizer = keras.optimizers.Adam(0.02)
    counts = []
    for _ in range(7):
        with tf.GradientTape() as tape:
            loss = closure()
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        counts.append(mean.calls)
    assert counts[0] > before
    assert set(counts) == {counts[0]}


@pytest.mark.parametrize(
    ("covariance", "divergence"),
    [
        ("CholeskySVGP", "InducingKL"),
        pytest.param("CholeskySVGP", "GaussianWasserstein(exact)", marks=pytest.mark.slow),
        pytest.param("KernelisedSVGP", "Renyi(0.3)", marks=pytest.mark.slow),
    ],
)
def test_known_function_is_recovered(covariance: str, divergence: str) -> None:
    noise = 0.3
    rng = np.random.default_rng(31)
    inputs = rng.uniform(-2.0, 2.0, size=(150, 1))
    k = gpflow.kernels.SquaredExponential(lengthscales=0.8)
    inducing_variable = catalogue.inducing_points(np.linspace(-2.0, 2.0, 10)[:, None])
    P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(k, inducing_variable),
        catalogue.COVARIANCES[covariance](k, inducing_variable),
    )
    if covariance == "KernelisedSVGP":
        Q.kernel.base_kernel.variance.assign(0.5)
    model = gvi.models.GVI(
        P,
        Q,
        gpflow.likelihoods.Gaussian(1.0),
        catalogue.DIVERGENCES[divergence](),
        num_data=150,
        divergence_weight=1.0 if divergence == "InducingKL" else 0.05,
    )

    def error() -> float:
        new = np.linspace(-1.9, 1.9, 50)[:, None]
        return float(np.sqrt(np.mean((model.predict_f(new)[0] - np.sin(2.0 * new)) ** 2)))

    assert error() > noise
    data = (inputs, np.sin(2.0 * inputs) + noise * rng.normal(size=inputs.shape))
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(data),
        model.trainable_variables,
        options={"maxiter": 100},
        compile=False,
    )
    assert error() < 0.5 * noise  # ten functions of 150 rows leave √(10 / 150) of it, a quarter
    # The noise is told from the function.
    assert_estimates(model.likelihood.variance, noise**2, np.sqrt(2.0 / 150) * noise**2)
