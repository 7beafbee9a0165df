"""The model: its objective, what it trains, and what it has of GPflow's SVGP."""

from __future__ import annotations

import itertools
import logging
import warnings
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import linalg, stats

import gpflow_gvi as gvi
from gpflow_gvi.errors import NoEvidenceBoundError
from tests import models
from tests.designs import each_value
from tests.tolerances import assert_close, assert_differ

N, M, D = 12, 4, 2
_RNG = np.random.default_rng(7)
X = _RNG.normal(size=(N, D))
Y = np.sin(X @ [[1.0, 0.5], [-0.7, 1.2]]) + 0.1 * _RNG.normal(size=(N, 2))
Z = X[:M] + 0.1
NOISE = 0.3


def parts(J: int = 1) -> tuple[gvi.GaussianProcess, gvi.GaussianProcess]:
    """Return P, and a Q away from it that has Inducing and CholeskySVGP."""
    k = gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=0.9)
    P = gvi.GaussianProcess(gpflow.functions.Constant([0.2]), k)
    rng = np.random.default_rng(1)
    inducing_variable = gpflow.inducing_variables.InducingPoints(Z)
    mean = gvi.mean_functions.Inducing(
        k, inducing_variable, mean_function=P.mean_function, q_mu=rng.normal(size=(M, J))
    )
    q_sqrt = np.tril(0.2 * rng.normal(size=(J, M, M))) + 0.6 * np.eye(M)
    covariance = gvi.covariances.CholeskySVGP(k, inducing_variable, q_sqrt=q_sqrt)
    return P, gvi.GaussianProcess(mean, covariance)


def make(
    divergence: gvi.divergences.Divergence | None = None, J: int = 1, **options: Any
) -> gvi.models.GVI:
    likelihood = options.pop("likelihood", None) or gpflow.likelihoods.Gaussian(NOISE)
    divergence = gvi.divergences.ProjectedKL() if divergence is None else divergence
    return gvi.models.GVI(*parts(J), likelihood, divergence, **{"num_data": N, **options})


def marginals(model: gvi.models.GVI, rows: slice = slice(None)) -> tuple[np.ndarray, ...]:
    """Return means and variances of Q and P."""
    q_mean, q = (part.numpy() for part in model.predict_f(X[rows]))
    p_mean = np.full_like(q_mean, 0.2)
    return q_mean, q, p_mean, np.full_like(q, 1.3)


def mean_log_loss(model: gvi.models.GVI, data: tuple[np.ndarray, np.ndarray]) -> float:
    mean, variance = (part.numpy() for part in model.predict_f(data[0]))
    logs = stats.norm.logpdf(data[1], mean, np.sqrt(NOISE)) - 0.5 * variance / NOISE
    return -float(np.mean(np.sum(logs, axis=-1)))


def kl_by_hand(model: gvi.models.GVI) -> float:
    q_mean, q, p_mean, p = (tf.constant(part) for part in marginals(model))
    q, p = (tfp.distributions.Normal(*pair) for pair in ((q_mean, q**0.5), (p_mean, p**0.5)))
    return np.mean(np.sum(tfp.distributions.kl_divergence(q, p), axis=-1))


def hellinger_by_hand(model: gvi.models.GVI) -> float:
    """Return 1 - ∫ √(q p) over f of both outputs, by sums on a grid."""
    q_mean, q, p_mean, p = marginals(model)
    f = np.linspace(-15.0, 15.0, 4001)[:, None, None]
    root = stats.norm.pdf(f, q_mean, np.sqrt(q)) * stats.norm.pdf(f, p_mean, np.sqrt(p))
    affinity = np.sum(np.sqrt(root), axis=0) * (30.0 / 4000)  # [N, J]
    return np.mean(1.0 - np.prod(affinity, axis=-1))


def wasserstein_by_hand(model: gvi.models.GVI) -> float:
    q_mean, _, p_mean, _ = marginals(model)
    distance = np.sum((q_mean - p_mean) ** 2)
    K = model.kernel(X).numpy()
    for R in model.predict_f(X, full_cov=True)[1].numpy():
        root = linalg.sqrtm(R)
        distance += np.trace(K + R - 2.0 * linalg.sqrtm(root @ K @ root)).real
    return distance / N


BY_HAND = {
    "ProjectedKL": (gvi.divergences.ProjectedKL, kl_by_hand),
    "ProjectedHellinger": (gvi.divergences.ProjectedHellinger, hellinger_by_hand),
    "GaussianWasserstein": (gvi.divergences.GaussianWasserstein, wasserstein_by_hand),
}


@pytest.mark.parametrize(("divergence", "J"), each_value(BY_HAND, [1, 2, 2]))
def test_objective_is_that_of_the_formula(divergence: str, J: int) -> None:
    kind, by_hand = BY_HAND[divergence]
    data = (X, Y[:, :J])
    model = make(kind(), J)
    loss, distance = mean_log_loss(model, data), by_hand(model)
    # num_data is the N of the formula, not the number of rows; 1/N unscales a divergence.
    for num_data, weight in ((N, 1.0), (100, 0.3), (N, 1.0 / N), (N, 0.0)):
        model = make(kind(), J, num_data=num_data, divergence_weight=weight)
        expected = num_data * (loss + weight * distance)
        assert_close(model.training_loss(data), expected)
        terms = model.loss_terms(data)
        assert_close(terms.loss, loss)
        assert_close(terms.divergence, distance)


@pytest.mark.parametrize("variable", [False, True])
def test_gwi_adds_one_squared_distance_to_the_sum_of_the_losses(variable: bool) -> None:
    """Wild et al. (2022): Σ_n E_Q[ℓ] + W₂²."""
    data = (X, Y[:, :1])
    loss, distance = mean_log_loss(make(), data), wasserstein_by_hand(make())
    num_data: Any = tf.Variable(3, trainable=False) if variable else N
    model = gvi.models.GWI(*parts(), gpflow.likelihoods.Gaussian(NOISE), num_data=num_data)
    if variable:
        assert_close(model.training_loss(data), 3 * loss + distance)
        num_data.assign(N)
    assert_close(model.training_loss(data), N * loss + distance)
    assert_close(model.training_loss_closure(data)(), N * loss + distance)
    assert_close(model.divergence_weight, 1.0 / N)
    model.divergence_weight = 0.3
    assert_close(model.training_loss(data), N * (loss + 0.3 * distance))


def test_num_data_and_weight_may_be_variables() -> None:
    num_data = tf.Variable(3, trainable=False)
    weight = tf.Variable(0.5, dtype=tf.float64, trainable=False)
    model = make(num_data=num_data, divergence_weight=weight)
    closure = model.training_loss_closure((X, Y[:, :1]))
    for n, w in ((3, 0.5), (12, 2.0)):
        num_data.assign(n)
        weight.assign(w)
        other = make(num_data=12, divergence_weight=w)
        assert_close(closure(), n / 12 * other.training_loss((X, Y[:, :1])))


def test_variables_of_the_objective_are_not_trained() -> None:
    """An optimiser would turn λ to minus infinity."""
    weight = tf.Variable(0.5, dtype=tf.float64)
    model = make(num_data=tf.Variable(N), divergence_weight=weight)
    expected = names(make())
    assert len(model.trainable_variables) == len(expected)
    assert all(variable is not weight for variable in model.trainable_variables)


def test_minibatch_loss_is_unbiased() -> None:
    model = make(J=2, divergence_weight=0.7)
    rows = [list(batch) for batch in itertools.combinations(range(6), 2)]
    losses = [model.training_loss((X[batch], Y[batch])) for batch in rows]
    assert_close(np.mean(losses), model.training_loss((X[:6], Y[:6])))


def test_priors_of_trained_parameters_enter_as_in_gpflow() -> None:
    model, plain = make(), make()
    gamma = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    model.likelihood.variance.prior = gamma
    # A prior of the frozen P is a constant that no one asked for.
    model.kernel.variance.prior = gamma
    data = (X, Y[:, :1])
    log_prior = stats.gamma.logpdf(NOISE, 2.0, scale=1.0 / 3.0)
    for loss in (model.training_loss(data), model.training_loss_closure(data)()):
        assert_close(loss, plain.training_loss(data) - log_prior)


def names(model: gvi.models.GVI) -> set[str]:
    """Return the names of what is trained, one for each variable."""
    found = gpflow.utilities.parameter_dict(model)
    # Observations are variables and no parameters.
    by_variable = {id(getattr(p, "unconstrained_variable", p)): n for n, p in found.items()}
    variables, parameters = model.trainable_variables, model.trainable_parameters
    assert [id(p.unconstrained_variable) for p in parameters] == [id(v) for v in variables]
    chosen = {by_variable[id(variable)] for variable in variables}
    assert len(chosen) == len(variables)
    return chosen


def test_trainable_are_the_variables_of_q_and_of_the_likelihood() -> None:
    svgp = {".variational.mean_function.q_mu", ".variational.kernel.q_sqrt", ".likelihood.variance"}
    model = make()
    points = {name for name in names(model) if name.endswith("inducing_variable.Z")}
    assert len(points) == 1
    assert names(model) == svgp | points
    gpflow.set_trainable(model.inducing_variable, False)
    assert names(model) == svgp
    gpflow.set_trainable(model.likelihood, False)
    assert names(model) == svgp - {".likelihood.variance"}


def test_p_is_frozen_in_posterior_mode_and_where_q_is_made_of_it() -> None:
    P, _ = parts()
    conditioned = P.condition(Z, Y[:M, :1], 0.2)
    Q = gvi.GaussianProcess(
        conditioned.mean_function, gvi.covariances.Tempered(conditioned.kernel, 0.5)
    )
    model = gvi.models.GVI(
        conditioned,
        Q,
        gpflow.likelihoods.Gaussian(NOISE),
        gvi.divergences.ProjectedKL(),
        num_data=N,
    )
    assert names(model) == {".variational.kernel.factor", ".likelihood.variance"}
    own = gvi.covariances.SparsePosterior(conditioned.kernel, Z)
    Q = gvi.GaussianProcess(conditioned.mean_function, own)
    model = gvi.models.GVI(
        conditioned, Q, model.likelihood, gvi.divergences.ProjectedKL(), num_data=N
    )
    # r_0 is a copy of the conditioned kernel, and with it of P's parameters: those are Q's own.
    assert {n.rsplit(".", 1)[-1] for n in names(model)} == {"c", "lengthscales", "variance"}


def test_training_changes_nothing_of_p_and_p_stays_trainable_elsewhere() -> None:
    model = make()
    before = [variable.numpy() for variable in model.regulariser.variables]
    start = [variable.numpy() for variable in model.trainable_variables]
    closure = model.training_loss_closure((X, Y[:, :1]))
    gpflow.optimizers.Scipy().minimize(
        closure, model.trainable_variables, compile=False, options={"maxiter": 3}
    )
    assert all(
        np.any(old != new.numpy())
        for old, new in zip(start, model.trainable_variables, strict=True)
    )
    for old, new in zip(before, model.regulariser.variables, strict=True):
        np.testing.assert_array_equal(old, new)
    kernel = model.kernel
    assert len(kernel.trainable_variables) == 2
    exact = gpflow.models.GPR((X, Y[:, :1]), kernel)
    with tf.GradientTape() as tape:
        loss = exact.training_loss()
    gradients = tape.gradient(loss, kernel.trainable_variables)
    assert all(gradient is not None and np.all(gradient != 0.0) for gradient in gradients)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"divergence": gvi.divergences.ProjectedKL()}, "divergence ProjectedKL"),
        ({"loss": gvi.losses.BetaLoss()}, "loss BetaLoss"),
        ({"loss": gvi.losses.PredictiveLogLoss()}, "loss PredictiveLogLoss"),
        ({"divergence_weight": 0.5}, "divergence_weight 0.5"),
        ({"divergence_weight": tf.Variable(0.5, dtype=tf.float64)}, "divergence_weight .*0.5"),
    ],
    ids=["divergence", "beta loss", "predictive loss", "weight", "variable weight"],
)
def test_no_evidence_bound_of_an_objective_that_is_none(options: dict, reason: str) -> None:
    model = make(**{"divergence": gvi.divergences.InducingKL(), **options})
    data = (X, Y[:, :1])
    for ask in (
        model.elbo,
        model.maximum_log_likelihood_objective,
        model.log_posterior_density,
    ):
        with pytest.raises(NoEvidenceBoundError, match=f"(?s){reason}.*training_loss"):
            ask(data)


def test_evidence_bound_where_there_is_one() -> None:
    model = make(gvi.divergences.InducingKL())
    data = (X, Y[:, :1])
    plain = -model.training_loss(data)
    model.likelihood.variance.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    log_prior = model.log_prior_density()
    assert_differ(plain + log_prior, plain)
    assert_close(model.elbo(data), plain)
    assert_close(model.maximum_log_likelihood_objective(data), plain)
    assert_close(model.log_posterior_density(data), plain + log_prior)
    # KL between the laws of L⁻¹u, whose prior is standard normal.
    mvn = tfp.distributions.MultivariateNormalTriL(model.q_mu[:, 0], model.q_sqrt[0])
    standard = tfp.distributions.MultivariateNormalDiag(tf.zeros(M, dtype=tf.float64))
    assert_close(model.prior_kl(), mvn.kl_divergence(standard))


def test_prior_kl_where_it_is_infinite() -> None:
    P, Q = parts()
    Q = gvi.GaussianProcess(Q.mean_function, gvi.covariances.SparsePosterior(P.kernel, Z))
    model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(), num_data=N)
    with pytest.raises(NoEvidenceBoundError, match=r"infinite .* and SparsePosterior"):
        model.prior_kl()


def test_svgp_names_are_the_parts_of_q() -> None:
    model = make()
    assert isinstance(model, gpflow.models.SVGP)
    assert model.q_mu is model.variational.mean_function.q_mu
    assert model.q_sqrt is model.variational.kernel.q_sqrt
    assert model.inducing_variable is model.variational.kernel.inducing_variable
    assert model.whiten is True
    assert model.regulariser.kernel is model.kernel
    P, Q = parts()
    unwhitened = gvi.covariances.CholeskySVGP(P.kernel, Z, whiten=False)
    plain = gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.Matern32())
    for process, missing in (
        (gvi.GaussianProcess(Q.mean_function, unwhitened), {"whiten": "it differs"}),
        (
            plain,
            {
                "q_mu": "Zero.* has no",
                "q_sqrt": "Matern32.* has no",
                "whiten": "Zero.* has no",
                "inducing_variable": "Matern32, has no",
            },
        ),
    ):
        other = gvi.models.PGVI(P, process, gpflow.likelihoods.Gaussian(), num_data=N)
        for name, reason in missing.items():
            with pytest.raises(AttributeError, match=f"(?=.*{name}).*{reason}"):
                getattr(other, name)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (gvi.models.GWI, gvi.divergences.GaussianWasserstein("exact")),
        (gvi.models.PGVI, gvi.divergences.ProjectedRenyi(0.5)),
    ],
    ids=["GWI", "PGVI"],
)
def test_special_cases_differ_by_their_default_divergence(kind, default) -> None:
    P, Q = parts()
    likelihood, data = gpflow.likelihoods.Gaussian(NOISE), (X, Y[:, :1])
    options = {"num_data": N, "divergence_weight": 0.4}
    model = kind(P, Q, likelihood, **options)
    assert isinstance(model, gvi.models.GVI)
    general = gvi.models.GVI(P, Q, likelihood, default, **options)
    assert float(model.training_loss(data)) == float(general.training_loss(data))
    other = gvi.divergences.ProjectedWasserstein()
    model = kind(P, Q, likelihood, other, **options)
    assert model.divergence is other


@pytest.mark.draws
def test_gpflows_idioms_in_a_graph_converted_by_autograph() -> None:
    """The methods in a user's own `tf.function`, whose default is to convert all that it calls."""
    model = make(gvi.divergences.InducingKL(), divergence_weight=tf.Variable(1.0))
    data = (tf.constant(X), tf.constant(Y[:, :1]))

    @tf.function(input_signature=[tf.TensorSpec([None, D], tf.float64)])
    def step(rows: tf.Tensor) -> tuple[tf.Tensor, ...]:
        samples = model.predict_f_samples(rows, 3)
        return model.elbo(data), model.training_loss_closure(data, compile=False)(), samples

    elbo, loss, samples = step(X[:5])
    assert_close([elbo, -loss], [model.elbo(data)] * 2)
    assert samples.shape == (3, 5, 1)


def test_autograph_has_nothing_to_say_of_predictions(caplog: pytest.LogCaptureFixture) -> None:
    """It could not convert the dispatch by a likelihood of a class that is new to it."""

    class Own(gpflow.likelihoods.StudentT):
        pass

    model = make(likelihood=Own(scale=0.3))
    data = (tf.constant(X), tf.constant(Y[:, :1]))
    logger = logging.getLogger("tensorflow")
    logger.addHandler(caplog.handler)
    try:
        found = tf.function(model.predict_y)(data[0])
        density = tf.function(model.predict_log_density)(data)
        loss = tf.function(model.loss_terms)(data).loss
    finally:
        logger.removeHandler(caplog.handler)
    assert "AutoGraph" not in caplog.text
    assert_close(np.array(found), np.array(model.predict_y(X)))
    assert_close(density, model.predict_log_density(data))
    assert_close(loss, model.loss_terms(data).loss)


def test_the_density_of_correlated_outputs_is_the_joint_one() -> None:
    """With noise of their own they are N(m, W diag(k) Wᵀ + diag σ²)."""
    W, noise = np.array([[1.0], [-2.0]]), np.array([0.1, 0.4])
    kernel = gpflow.kernels.LinearCoregionalization([gpflow.kernels.SquaredExponential(1.5)], W)
    Q = gvi.GaussianProcess(gpflow.functions.Constant([0.5, 0.0]), kernel)
    model = gvi.models.PGVI(Q, Q, gpflow.likelihoods.Gaussian(noise), num_data=N)
    law = stats.multivariate_normal([0.5, 0.0], 1.5 * W @ W.T + np.diag(noise))
    assert_close(model.predict_log_density((X, Y)), law.logpdf(Y))
    assert_close(tf.function(model.predict_log_density)((X, Y)), law.logpdf(Y))
    with pytest.raises(ValueError, match="Y has 1 columns, but Q has 2 outputs"):
        model.predict_log_density((X, Y[:, :1]))


def test_a_natural_step_that_is_too_long_is_refused_and_changes_nothing(rng) -> None:
    """It leaves the positive definite matrices (docs/how_to/troubleshooting.md)."""
    rows = rng.uniform(-3.0, 3.0, size=(60, 1))
    points = gpflow.inducing_variables.InducingPoints(np.linspace(-3.0, 3.0, 8)[:, None])
    k = gpflow.kernels.SquaredExponential()
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(k, points), gvi.covariances.CholeskySVGP(k, points)
    )
    model = gvi.models.GVI(
        gvi.GaussianProcess(gpflow.functions.Zero(), k),
        Q,
        gpflow.likelihoods.Gaussian(0.01),
        gvi.divergences.ProjectedKL(),
        num_data=60,
    )
    loss = model.training_loss_closure((rows, np.sin(2.0 * rows)), compile=False)
    variables, natgrad = [(model.q_mu, model.q_sqrt)], gpflow.optimizers.NaturalGradient
    values = [float(loss())]
    for _ in range(2):
        natgrad(0.1).minimize(loss, variables)
        values.append(float(loss()))
    assert values == sorted(values, reverse=True)
    natgrad(1.0).minimize(loss, variables)
    before = [parameter.numpy() for parameter in variables[0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="the value to be assigned"):
        natgrad(1.0).minimize(loss, variables)
    for parameter, value in zip(variables[0], before, strict=True):
        np.testing.assert_array_equal(parameter, value)


def test_kernel_of_p_with_the_values_that_gpflow_gives_it_is_warned_of() -> None:
    model, rows = models.make(), models.data()
    with pytest.warns(UserWarning, match=r"P's SquaredExponential are 1.*fit_regulariser"):
        model.training_loss_closure(rows)
    model.compile("adam")
    with pytest.warns(UserWarning, match=r"P's SquaredExponential are 1.*fit_regulariser"):
        model.fit(rows, verbose=0)


def test_kernel_of_p_that_was_set_or_is_trained_is_not_warned_of() -> None:
    rows, one, other = models.data(), models.make(scale=0.5), models.make()
    P, Q = other.regulariser, other.variational
    bound = gvi.models.GVI(P, Q, other.likelihood, gvi.divergences.InducingKL(), num_data=models.N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.training_loss_closure(rows)
        bound.training_loss_closure(rows)


@pytest.mark.slow
def test_numbers_that_change_between_fits_are_those_of_the_next() -> None:
    model = gvi.models.PGVI(*parts(), gpflow.likelihoods.Gaussian(NOISE), num_data=N)
    model.compile(keras.optimizers.SGD(0.0))
    data = X, Y[:, :1]

    def loss() -> float:
        return model.fit(*data, epochs=1, batch_size=N, verbose=0).history["loss"][0]

    before = loss()
    model.divergence_weight = 10.0
    after = loss()
    assert_close(after, model.training_loss(data))
    assert_differ(after, before)
    model.divergence.alpha = 0.9
    assert_close(loss(), model.training_loss(data))
