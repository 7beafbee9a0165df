"""GPflux's layer with any divergence: its loss, what it trains, and the ways of GPflux."""

from __future__ import annotations

from typing import Any

import gpflow
import gpflux
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras

import gpflow_gvi as gvi
from gpflow_gvi.integrations.gpflux import GVILayer
from tests import networks, references
from tests.designs import each_value
from tests.tolerances import ITERATIVE, assert_close, assert_differ

pytestmark = pytest.mark.draws

N, M, D = 20, 5, 2
_RNG = np.random.default_rng(3)
X = _RNG.normal(size=(N, D))
Y = np.sin(2.0 * X[:, :1]) + 0.1 * _RNG.normal(size=(N, 1))
SCALAR = gvi.divergences.ProjectedWasserstein()
DIVERGENCES = {
    "renyi": lambda: gvi.divergences.ProjectedRenyi(0.5),
    "marginal": lambda: gvi.divergences.GaussianWasserstein("marginal"),
    "exact": lambda: gvi.divergences.GaussianWasserstein("exact"),
}
DEEP = each_value(DIVERGENCES, ["CholeskySVGP", "SparsePosterior"])


def processes(
    covariance: str = "CholeskySVGP", J: int = 1, whiten: bool = True, seed: int = 0, **mean: Any
) -> tuple[gvi.GaussianProcess, gvi.GaussianProcess]:
    """Return P, and a Q away from it."""
    rng = np.random.default_rng(seed)
    k = gpflow.kernels.SharedIndependent(gpflow.kernels.SquaredExponential(lengthscales=0.8), J)
    Z = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(rng.normal(size=(M, D)))
    )
    m = gpflow.functions.Identity() if J == D else gpflow.functions.Zero(J)
    q_mu = rng.normal(size=(M, J))
    m_Q = gvi.mean_functions.Inducing(k, Z, mean_function=m, q_mu=q_mu, whiten=whiten)
    if "network" in mean:
        m_Q = m_Q + gvi.mean_functions.Network(mean["network"])
    if covariance == "SparsePosterior":
        r = gvi.covariances.SparsePosterior(k, Z)
    else:
        q_sqrt = np.tril(0.3 * rng.normal(size=(J, M, M))) + np.eye(M)
        r = gvi.covariances.CholeskySVGP(k, Z, q_sqrt=q_sqrt, whiten=whiten)
    return gvi.GaussianProcess(m, k), gvi.GaussianProcess(m_Q, r)


def layer(
    divergence: gvi.divergences.Divergence | None = None, num_data: int = N, **options: Any
) -> GVILayer:
    names = ("covariance", "J", "whiten", "seed", "network")
    own = {name: options.pop(name) for name in names if name in options}
    divergence = SCALAR if divergence is None else divergence
    return GVILayer(*processes(**own), divergence, num_data=num_data, **options)


def deep(*layers: GVILayer) -> gpflux.models.DeepGP:
    return gpflux.models.DeepGP(list(layers), gpflow.likelihoods.Gaussian(0.1))


def gpflux_layer(ours: GVILayer) -> gpflux.layers.GPLayer:
    """Return GPflux's own layer with the parts and the variational parameters of ours."""
    mean, covariance = ours.variational.mean_function, ours.variational.kernel
    theirs = gpflux.layers.GPLayer(
        ours.regulariser.kernel,
        covariance.inducing_variable,
        ours.num_data,
        ours.regulariser.mean_function,
        whiten=covariance.whiten,
        num_samples=ours.num_samples,
        full_cov=ours.full_cov,
        verbose=False,
    )
    theirs.q_mu.assign(mean.q_mu)
    theirs.q_sqrt.assign(covariance.q_sqrt)
    return theirs


# The objective.


@pytest.mark.parametrize(
    ("options", "whiten"),
    each_value([{}, {"num_samples": 3}, {"full_cov": True}], [True, False]),
    ids=str,
)
def test_with_the_inducing_kl_it_is_the_layer_of_gpflux(whiten, options):
    kl = gvi.divergences.InducingKL()
    first = layer(kl, J=D, whiten=whiten, **options)
    last = layer(kl, whiten=whiten, seed=1)
    ours = [first, last]
    theirs = [gpflux_layer(part) for part in ours]
    bounds, slopes = [], []
    for layers, parameters in (
        (ours, [part.variational.mean_function.q_mu for part in ours]),
        (theirs, [part.q_mu for part in theirs]),
    ):
        tf.random.set_seed(4)
        with tf.GradientTape() as tape:
            bound = deep(*layers).elbo((X, Y))
        bounds.append(bound)
        slopes += tape.gradient(bound, [p.unconstrained_variable for p in parameters])
    assert_close(bounds[0], bounds[1])
    for i in range(len(ours)):
        assert_close(slopes[i], slopes[len(ours) + i])
    assert_close(first.prior_kl(), gpflux_layer(first).prior_kl())


def test_adds_the_weighted_divergence_of_a_data_point_in_training():
    part = layer(gvi.divergences.ProjectedRenyi(0.3), divergence_weight=0.7)
    part(X, training=True)
    q_mean, q = (value.numpy()[:, 0] for value in part.predict(X))
    values = [references.renyi((m, v), (0.0, 1.0), 0.3) for m, v in zip(q_mean, q, strict=True)]
    assert_close(part.losses, [0.7 * np.mean(values)])
    part(X)
    np.testing.assert_array_equal(part.losses, [0.0])


def test_hidden_divergences_are_averages_over_samples():
    first, last = layer(J=D, num_samples=4), layer(seed=1)
    samples = tf.convert_to_tensor(first(X, training=True))
    last(samples, training=True)
    rows = np.reshape(samples, [-1, D])
    mean, variance = last.variational.predict(tf.constant(rows))
    expected = np.mean(mean**2 + (np.sqrt(variance) - 1.0) ** 2)  # W₂² from N(0, 1)
    assert_close(last.losses, [expected])


def test_whole_model_averages_over_the_batch():
    parts = layer(J=D), layer(seed=1)
    model = deep(*parts)
    tf.random.set_seed(0)
    bound = model.elbo((X, Y))
    *divergences, misfit = (float(part.losses[0]) for part in (*parts, model.likelihood_layer))
    assert_close(bound, -N * (misfit + sum(divergences)))


def test_priors_on_parameters_enter_the_loss():
    part, plain = layer(), layer()
    part.variational.mean_function.q_mu.prior = tfp.distributions.Normal(
        *np.array([0.0, 1.0]), validate_args=True
    )
    for each in (part, plain):
        each(X, training=True)
    q_mu = part.variational.mean_function.q_mu.numpy()
    log_prior = -0.5 * np.sum(q_mu**2) - 0.5 * M * np.log(2.0 * np.pi)
    assert_close(part.losses[0] - plain.losses[0], -log_prior / N)


# Predictions and samples.


@pytest.mark.parametrize("option", [None, "full_cov", "full_output_cov"])
def test_distribution_is_that_of_the_process(option):
    part = layer(J=D, **({} if option is None else {option: True}))
    outputs = part(X)
    assert part.num_latent_gps == D
    assert tf.convert_to_tensor(outputs).shape == (N, D)
    if option == "full_cov":  # to any covariance GPflux adds jitter
        assert_close(outputs.covariance(), part.variational.covariance(X), ITERATIVE)
    else:
        assert_close(outputs.mean(), part.variational.mean(X))
        assert_close(outputs.variance(), part.variational.variance(X), ITERATIVE)


def test_functions_are_drawn_and_chained():
    model = deep(layer(J=D), layer(seed=1))
    function = gpflux.models.deep_gp.sample_dgp(model)
    values = function(tf.constant(X))
    assert values.shape == (N, 1)
    assert_close(function(tf.constant(X[3:5])), values[3:5])
    part = model.f_layers[0]
    np.testing.assert_array_equal(*(part.sample(seed=1)(tf.constant(X)) for _ in range(2)))


def test_no_function_is_drawn_from_what_may_be_no_process():
    P, Q = processes()
    r = gvi.covariances.FixedSparsePosterior(P.kernel, Q.kernel.inducing_variable)
    part = GVILayer(P, gvi.GaussianProcess(Q.mean_function, r), SCALAR, num_data=N)
    with pytest.raises(TypeError, match="FixedSparsePosterior"):
        part.sample()


# What is trained.


@pytest.mark.slow  # tracing takes most of it
def test_three_layers_fit_in_a_graph_and_predict():
    model = deep(layer(J=D), layer(J=D, seed=1), layer(seed=2, covariance="SparsePosterior"))
    training = model.as_training_model()
    training.compile(tf_keras.optimizers.Adam(0.05))
    losses = training.fit({"inputs": X, "targets": Y}, epochs=20, batch_size=N, verbose=0).history
    assert np.mean(losses["loss"][-3:]) < np.mean(losses["loss"][:3])
    assert {f"{part.name}_divergence" for part in model.f_layers} <= losses.keys()
    outputs = model.as_prediction_model()(X)
    assert outputs.y_mean.shape == (N, 1)
    noise = model.likelihood_layer.likelihood.variance
    assert_close(outputs.y_var - outputs.f_var, tf.fill([N, 1], noise))


def test_weights_are_saved_and_loaded(tmp_path):
    saved, loaded = (deep(layer(seed=seed, network=networks.dense(keras))) for seed in (0, 5))
    saved.as_prediction_model().save_weights(tmp_path / "weights")
    loaded.as_prediction_model().load_weights(tmp_path / "weights").assert_consumed()
    for old, new in zip(saved.f_layers, loaded.f_layers, strict=True):
        for one, two in zip(old.predict(X), new.predict(X), strict=True):
            np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(old.regulariser.variance(X), new.regulariser.variance(X))


def test_prediction_model_of_one_layer_is_exact():
    part = layer()
    output = deep(part).as_prediction_model()(X)
    mean, variance = part.predict(X)
    assert_close(output.y_mean, mean)
    assert_close(output.y_var, variance + 0.1)


@pytest.mark.parametrize(("kind", "covariance"), DEEP)
def test_gradient_reaches_all_that_is_trained_and_no_regulariser(kind, covariance):
    parts = (
        layer(DIVERGENCES[kind](), covariance=covariance, J=D),
        layer(DIVERGENCES[kind](), covariance=covariance, seed=1),
    )
    model = deep(*parts)
    with tf.GradientTape() as tape:
        bound = model.elbo((X, Y))
    gradients = tape.gradient(bound, model.trainable_variables)
    assert all(gradient is not None for gradient in gradients)
    trained = {id(variable) for variable in model.trainable_variables}
    weights = [v for part in parts for v in part.trainable_weights]
    assert trained == {id(v) for v in (*weights, *model.likelihood_layer.trainable_weights)}
    assert not trained & {id(v) for part in parts for v in part.regulariser.variables}
    for part in parts:
        of_all = {id(v) for v in part.weights}
        assert {id(v) for v in part.regulariser.variables} <= of_all
        part.trainable = False
        assert part.trainable_weights == []
        assert {id(v) for v in part.weights} == of_all


def test_networks_are_trained_and_behave_as_in_training():
    part = layer(network=networks.regularised(keras, dropout=0.5))
    network = part.variational.mean_function.add_2.network
    assert len(network.trainable_variables) == 6
    assert {id(v) for v in network.trainable_variables} <= {id(v) for v in part.trainable_weights}
    predicted = tf.convert_to_tensor(part(X).mean())
    np.testing.assert_array_equal(predicted, part(X).mean())
    dropped = part(X, training=True).mean()
    assert_differ(dropped, predicted)


def test_computes_in_float32():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        k = gpflow.kernels.SquaredExponential()
        P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
        Q = gvi.GaussianProcess(
            gvi.mean_functions.Network(networks.dense(keras, dtype="float32")),
            gvi.covariances.CholeskySVGP(k, X[:M].astype(np.float32)),
        )
        model = deep(GVILayer(P, Q, SCALAR, num_data=N))
        with tf.GradientTape() as tape:
            bound = model.elbo((X.astype(np.float32), Y.astype(np.float32)))
        gradients = tape.gradient(bound, model.trainable_variables)
        assert {gradient.dtype for gradient in gradients} == {bound.dtype} == {tf.float32}
        assert all(np.isfinite(gradient).all() for gradient in gradients)


# What is refused.


def test_wrong_arguments_are_named():
    P, Q = processes()
    for arguments, message in (
        ((P.kernel, Q, SCALAR), "regulariser is"),
        ((P, Q.kernel, SCALAR), "variational is"),
        ((P, Q, "KL"), "divergence is 'KL'"),
    ):
        with pytest.raises(TypeError, match=message):
            GVILayer(*arguments, num_data=N)
    for options, message in (
        ({"num_data": None}, "num_data is None"),
        ({"divergence_weight": -1.0}, "divergence_weight is -1.0"),
        ({"num_samples": 0}, "num_samples is 0"),
        ({"full_cov": True, "full_output_cov": True}, "full_cov and full_output_cov"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(**options)


def test_wrong_numbers_of_outputs_are_refused():
    with pytest.raises(ValueError, match="regulariser has 2 outputs and variational has 1"):
        GVILayer(processes(J=2)[0], processes()[1], SCALAR, num_data=N)
    with pytest.raises(ValueError, match=r"gets inputs of 1 columns.*shape \(2,\)"):
        deep(layer(), layer(name="second")).as_prediction_model()
    with pytest.raises(ValueError, match="gets inputs of 3 columns"):
        deep(layer()).as_prediction_model()(np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"num_data.*inconsistent"):
        deep(layer(J=D), layer(num_data=N + 1))


def test_a_kl_that_is_infinite_is_refused():
    with pytest.raises(TypeError, match="KL\\[Q, P\\] is infinite"):
        layer(gvi.divergences.InducingKL(), covariance="SparsePosterior")
    with pytest.raises(TypeError, match="KL\\[Q, P\\] is infinite"):
        layer(covariance="SparsePosterior").prior_kl()


def test_outputs_are_known_where_the_columns_of_inputs_are_not():
    k = gpflow.kernels.SquaredExponential()
    P = gvi.GaussianProcess(gpflow.functions.Identity(), k)
    m_Q = gvi.mean_functions.Inducing(k, X[:M, :1], mean_function=P.mean_function)
    Q = gvi.GaussianProcess(m_Q, gvi.covariances.SparsePosterior(k, X[:M, :1]))
    model = deep(GVILayer(P, Q, SCALAR, num_data=N)).as_prediction_model()
    assert model(X[:, :1]).y_mean.shape == (N, 1)


def test_layers_have_inducing_points_or_networks():
    P = gvi.GaussianProcess(gpflow.functions.Zero(3), gpflow.kernels.Matern12())
    Q = gvi.GaussianProcess(gpflow.functions.Linear(np.ones((D, 3))), gpflow.kernels.Matern32())
    with pytest.raises(ValueError, match="no inducing points, and no network"):
        GVILayer(P, Q, SCALAR, num_data=N)
