"""A step that is not finite is named and undone, and notices reach the user."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_gvi as gvi
from gpflow_gvi.errors import NonFiniteLossError
from tests import networks
from tests.designs import each_value
from tests.tolerances import assert_close

N, M = 8, 3
_RNG = np.random.default_rng(11)
X = _RNG.normal(size=(N, 2))
Y = _RNG.normal(size=(N, 1))
Z = _RNG.normal(size=(M, 2))


def prior() -> gvi.GaussianProcess:
    return gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.SquaredExponential())


def make(**options: Any) -> gvi.models.GVI:
    """Return a model whose Q has an Inducing mean and a covariance of adjustable width."""
    P = prior()
    covariance = gvi.covariances.Tempered(gvi.covariances.CholeskySVGP(P.kernel, Z), 1.0)
    Q = gvi.GaussianProcess(gvi.mean_functions.Inducing(P.kernel, Z), covariance)
    divergence = options.pop("divergence", gvi.divergences.ProjectedRenyi(2.0))
    likelihood = gpflow.likelihoods.Gaussian()
    return gvi.models.GVI(P, Q, likelihood, divergence, num_data=N, **options)


def too_wide(model: gvi.models.GVI) -> None:
    """Let Q be more than twice as wide as P, where Renyi(2) is infinite."""
    model.variational.kernel.factor.assign(9.0)


def not_a_number(model: gvi.models.GVI) -> None:
    """Do what an optimiser does with a NaN gradient."""
    variable = model.q_mu.unconstrained_variable
    variable.assign(np.nan * variable)


BREAK: dict[str, tuple[Callable[[gvi.models.GVI], None], dict[str, Any], str]] = {
    "divergence": (too_wide, {}, "the divergence (ProjectedRenyi) is inf"),
    "loss": (
        too_wide,
        {"loss": gvi.losses.BetaLoss(0.5), "divergence": gvi.divergences.ProjectedKL()},
        "the loss (BetaLoss) is inf",
    ),
    "both": (
        not_a_number,
        {},
        "the loss (LogLoss) is nan and the divergence (ProjectedRenyi) is nan",
    ),
}


def values(model: gvi.models.GVI) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.variational.variables]


def assert_at(model: gvi.models.GVI, state: list[np.ndarray]) -> None:
    for value, expected in zip(values(model), state, strict=True):
        np.testing.assert_array_equal(value, expected)


def move(model: gvi.models.GVI, to: float) -> None:
    model.q_mu.assign(np.full((M, 1), to))


@pytest.mark.parametrize(("term", "compiled"), each_value(BREAK, [False, True]))
def test_step_that_is_not_finite_is_undone_and_named(term: str, compiled: bool) -> None:
    break_it, options, message = BREAK[term]
    model = make(**options)
    closure = model.training_loss_closure((X, Y), compile=compiled)
    start = values(model)
    break_it(model)
    with pytest.raises(NonFiniteLossError, match=re.escape(f"{message}. The parameters")):
        closure()
    assert_at(model, start)  # where there was no finite loss yet: as when the closure was made
    for to in (0.1, 0.2):
        move(model, to)
        good, last = values(model), closure()
        break_it(model)
        with pytest.raises(NonFiniteLossError, match=re.escape(message)):
            closure()
        assert_at(model, good)
        assert float(closure()) == float(last)


def test_a_covariance_that_is_none_is_named_with_its_remedy() -> None:
    """With an r_0 of 2 k it is -2 k at Z, whose log determinant does not exist."""
    P = prior()
    twice = gpflow.kernels.SquaredExponential(variance=2.0)
    r = gvi.covariances.FixedSparsePosterior(P.kernel, X, base_kernel=twice)
    Q = gvi.GaussianProcess(gvi.mean_functions.Network(networks.dense(keras)), r)
    divergence = gvi.divergences.RegularisedKL()
    model = gvi.models.GVI(P, Q, gpflow.likelihoods.Gaussian(), divergence, num_data=N)
    model.compile("adam")
    with pytest.raises(NonFiniteLossError, match=r"(?s)RegularisedKL.*but SparsePosterior is one"):
        model.fit((X, Y), epochs=1, batch_size=N)


def test_a_prior_without_density_at_a_parameter_is_named() -> None:
    model = make(divergence=gvi.divergences.ProjectedKL())
    model.likelihood.variance.prior = tfp.distributions.Uniform(np.float64(2.0), np.float64(3.0))
    with pytest.raises(NonFiniteLossError, match="its terms are, but log_prior_density, of priors"):
        model.training_loss_closure((X, Y))()


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_step_in_a_graph_of_the_user_is_undone(compiled: bool) -> None:
    """Again and again: an update that races the restoration may win only now and then."""
    model = make()
    variables = model.trainable_variables
    closure = model.training_loss_closure((X, Y), compile=compiled)
    optimizer = keras.optimizers.SGD(1e-3)
    optimizer.build(list(variables))

    @tf.function(autograph=compiled)  # as users have it, and without its long conversion
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = closure()
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    for attempt in range(5):
        move(model, 0.1 * attempt)
        good = values(model)
        before = float(step())
        not_a_number(model)
        words = r"(?s)not finite.*last finite loss.*the loss \(LogLoss\)"
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            step()
        assert_at(model, good)
        assert_close(float(model.training_loss((X, Y))), before)


def test_moving_statistics_are_undone_as_well() -> None:
    network = networks.regularised(keras, dropout=0.0)
    P = prior()
    Q = gvi.GaussianProcess(gvi.mean_functions.Network(network), P.kernel)
    model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(), num_data=N)
    closure = model.training_loss_closure((X, Y))
    closure()
    good = [np.array(value) for value in network.get_weights()]
    first = network.layers[0].kernel
    first.assign(np.full(first.shape, np.nan))
    with pytest.raises(NonFiniteLossError, match="restored"):
        closure()
    for value, expected in zip(network.get_weights(), good, strict=True):
        np.testing.assert_array_equal(value, expected)


class Cliff(gvi.losses.Loss):
    """A loss that gets better with f until it is NaN, from f = 3 on; its gradient is finite."""

    def _loss(self, likelihood, at):
        slope = -tf.reduce_sum(at.f_mean, axis=-1)
        return tf.where(slope <= -3.0, tf.constant(np.nan, slope.dtype), slope)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_step_of_scipy_is_undone(compiled: bool) -> None:
    P = prior()
    mean = gpflow.functions.Constant([0.0])
    likelihood = gpflow.likelihoods.Gaussian()
    gpflow.set_trainable(likelihood, False)
    Q = gvi.GaussianProcess(mean, P.kernel)
    model = gvi.models.PGVI(P, Q, likelihood, num_data=N, loss=Cliff(), divergence_weight=1e-6)
    closure = model.training_loss_closure((X, Y))
    tried = []

    def tracked() -> tf.Tensor:
        tf.py_function(lambda value: tried.append(float(value[0])), [mean.c + 0.0], [])
        return closure()

    error = tf.errors.InvalidArgumentError if compiled else NonFiniteLossError
    with pytest.raises(error, match=r"(?s)not finite.*the loss \(Cliff\)"):
        gpflow.optimizers.Scipy().minimize(tracked, model.trainable_variables, compile=compiled)
    finite = [value for value in tried if value < 3.0]
    assert len(tried) > len(finite) > 1  # it went there step by step
    assert mean.c.numpy() == finite[-1]


def test_evaluation_without_a_closure_raises_as_well() -> None:
    model = make()
    not_a_number(model)
    state = values(model)
    with pytest.raises(NonFiniteLossError, match=r"the loss \(LogLoss\) is nan") as raised:
        model.training_loss((X, Y))
    # Nothing was remembered, so nothing is restored, and the message must not say so.
    assert "restored" not in str(raised.value)
    assert_at(model, state)


# FixedSparsePosterior out of the region where it is a covariance.

AT_Z = np.vstack([Z, X[: N - M]])


def fixed_sparse_posterior() -> gvi.models.PGVI:
    P = prior()
    Q = gvi.GaussianProcess(
        gpflow.functions.Zero(), gvi.covariances.FixedSparsePosterior(P.kernel, Z)
    )
    return gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(), num_data=N)


def test_negative_variances_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    model = fixed_sparse_posterior()
    closure = model.training_loss_closure((AT_Z, Y))

    def ours() -> list[logging.LogRecord]:  # TensorFlow tells of graphs that other tests traced
        return [each for each in caplog.records if each.name.startswith("gpflow_gvi")]

    with caplog.at_level(logging.WARNING, logger="gpflow_gvi"):
        closure()
        inside = len(ours())
        model.variational.kernel.base_kernel.variance.assign(1.5)
        for _ in range(3):
            assert np.isfinite(closure())
    k = model.kernel
    cross = 1.5 * k(Z, AT_Z).numpy()
    solved = np.linalg.solve(k(Z).numpy(), cross)
    negative = np.sum(1.5 - np.sum(cross * solved, axis=0) < -1e-6)
    assert negative >= M
    assert inside == 0
    (record,) = ours()
    assert record.levelno == logging.WARNING
    assert f"{negative} marginal variances of FixedSparsePosterior" in record.getMessage()


def test_negative_variances_are_logged_under_scipy(caplog: pytest.LogCaptureFixture) -> None:
    """There the closure is part of the graph of the optimiser."""
    model = fixed_sparse_posterior()
    model.variational.kernel.base_kernel.variance.assign(1.5)
    closure = model.training_loss_closure((AT_Z, Y))
    with caplog.at_level(logging.WARNING, logger="gpflow_gvi"):
        gpflow.optimizers.Scipy().minimize(
            closure, model.trainable_variables, options={"maxiter": 1}
        )
    assert any("marginal variances" in record.getMessage() for record in caplog.records)
