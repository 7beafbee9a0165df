"""Means for Q: that of a sparse GP against numpy, SVGP and SGPR; a network against itself."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from gpflow.inducing_variables import (
    InducingPoints,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)

import gpflow_gvi as gvi
from gpflow_gvi._core.network_function import in_precision
from gpflow_gvi._core.state import state
from tests import catalogue, networks, references
from tests.tolerances import ITERATIVE, assert_close, assert_differ

M = 4
PRIOR_MEAN = gpflow.functions.Linear(A=np.array([[0.7], [-0.2]]), b=5.0)


def latent(kernel: gpflow.kernels.Kernel, j: int) -> gpflow.kernels.Kernel:
    parts = getattr(kernel, "latent_kernels", (kernel,))
    return parts[j % len(parts)]


@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
@pytest.mark.parametrize(
    ("J", "kind"), [(1, "single"), (3, "single"), (3, "shared"), (3, "separate")]
)
def test_formula_of_each_output(J, kind, whiten, rng):
    """m_P(x) + K_xZ K_ZZ⁻¹ (μ - m_P(Z)): at u = μ the mean passes through μ, not μ + m_P(Z)."""
    kernel = catalogue.kernels(J)[kind]
    corners = np.array([[-2.0, -2.0], [-2.0, 2.0], [2.0, -2.0], [2.0, 2.0]])
    Z, X = corners + 0.2 * rng.normal(size=(M, 2)), rng.normal(size=(6, 2))
    mu = rng.normal(size=(M, J))
    residual = mu - PRIOR_MEAN(Z).numpy()
    grams = [references.padded(latent(kernel, j)(Z)) for j in range(J)]
    q_mu = residual
    if whiten:
        factors = [np.linalg.cholesky(gram) for gram in grams]
        q_mu = np.stack([np.linalg.solve(factors[j], residual[:, j]) for j in range(J)], axis=1)
    mean = gvi.mean_functions.Inducing(
        kernel, InducingPoints(Z), mean_function=PRIOR_MEAN, q_mu=q_mu, whiten=whiten
    )
    for j in range(J):
        weights = np.linalg.solve(grams[j], residual[:, j])
        expected = PRIOR_MEAN(X).numpy()[:, 0] + latent(kernel, j)(X, Z).numpy() @ weights
        assert_close(mean(X)[:, j], expected)
    # The jitter on K_ZZ alone keeps the mean from μ itself.
    assert_close(mean(Z), mu, ITERATIVE, scale=np.abs(residual).max())


@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
@tf.autograph.experimental.do_not_convert  # of what GPflow maps over outputs
def test_agrees_with_gpflow_svgp_on_separate_inducing_points(whiten, rng):
    kernel = catalogue.kernels(3)["separate"]
    inducing_variable = SeparateIndependentInducingVariables(
        [InducingPoints(rng.normal(size=(M, 2))) for _ in range(3)]
    )
    q_mu, X = rng.normal(size=(M, 3)), rng.normal(size=(6, 2))
    svgp = gpflow.models.SVGP(
        kernel,
        gpflow.likelihoods.Gaussian(),
        inducing_variable,
        mean_function=PRIOR_MEAN,
        num_latent_gps=3,
        q_mu=q_mu,
        whiten=whiten,
    )
    mean = gvi.mean_functions.Inducing(
        kernel, inducing_variable, mean_function=PRIOR_MEAN, q_mu=q_mu, whiten=whiten
    )
    assert_close(mean(X), svgp.predict_f(X)[0])


@pytest.mark.parametrize("whiten", [True, False], ids=["whitened", "unwhitened"])
def test_from_data_is_the_mean_of_gpflow_sgpr(whiten, rng):
    kernel, Z, X = catalogue.kernels(1)["single"], rng.normal(size=(M, 2)), rng.normal(size=(20, 2))
    Y = 5.0 + np.sin(X) @ np.array([[1.0, -1.0], [0.5, 0.3]])
    sgpr = gpflow.models.SGPR((X, Y), kernel, Z, mean_function=PRIOR_MEAN, noise_variance=0.3)
    mean = gvi.mean_functions.Inducing.from_data(
        kernel, Z, (X, Y), 0.3, mean_function=PRIOR_MEAN, whiten=whiten
    )
    X_new = rng.normal(size=(7, 2))
    assert_close(mean(X_new), sgpr.predict_f(X_new)[0])


def test_from_data_with_one_noise_per_output_is_one_sgpr_per_output(rng):
    kernel, noises = catalogue.kernels(3)["separate"], np.array([0.1, 0.5, 2.0])
    Z, X, Y = rng.normal(size=(M, 2)), rng.normal(size=(15, 2)), rng.normal(size=(15, 3))
    mean = gvi.mean_functions.Inducing.from_data(
        kernel, SharedIndependentInducingVariables(InducingPoints(Z)), (X, Y), noises
    )
    X_new = rng.normal(size=(7, 2))
    for j, single in enumerate(kernel.kernels):
        sgpr = gpflow.models.SGPR((X, Y[:, j : j + 1]), single, Z, noise_variance=noises[j])
        assert_close(mean(X_new)[:, j], sgpr.predict_f(X_new)[0][:, 0])


def test_starts_at_the_prior_mean_and_trains_q_mu_and_moving_points_only(rng):
    kernel, Z, X = catalogue.kernels(1)["single"], rng.normal(size=(M, 2)), rng.normal(size=(5, 2))
    fixed = gvi.mean_functions.Inducing(kernel, Z, mean_function=PRIOR_MEAN)
    np.testing.assert_array_equal(fixed(X), PRIOR_MEAN(X))
    assert [v.shape for v in fixed.trainable_variables] == [(M, 1)]
    moving = gvi.mean_functions.Inducing(kernel, InducingPoints(Z), mean_function=PRIOR_MEAN)
    assert sorted(tuple(v.shape) for v in moving.trainable_variables) == [(M, 1), (M, 2)]


def test_lists_are_taken(rng):
    kernel, Z = catalogue.kernels(1)["single"], np.round(rng.normal(size=(M, 2)), 2)
    mean = gvi.mean_functions.Inducing(kernel, Z, q_mu=[[1]] * M)
    assert_close(mean(Z), gvi.mean_functions.Inducing(kernel, Z, q_mu=np.ones((M, 1)))(Z))
    from_data = gvi.mean_functions.Inducing.from_data
    found = from_data(kernel, Z, (Z.tolist(), Z[:, 0].tolist()), 0.1)
    assert_close(found(Z), from_data(kernel, Z, (Z, Z[:, :1]), 0.1)(Z))


def test_bad_arguments_are_named(rng):
    Z, single = rng.normal(size=(M, 2)), catalogue.kernels(1)["single"]
    with pytest.raises(ValueError, match=rf"q_mu has shape \(3, 1\).*\({M}, 1\)"):
        gvi.mean_functions.Inducing(single, Z, q_mu=np.zeros((3, 1)))
    with pytest.raises(ValueError, match=r"different numbers of outputs: \[2, 3\]"):
        gvi.mean_functions.Inducing(catalogue.kernels(3)["separate"], Z, q_mu=np.zeros((M, 2)))
    mixed = gpflow.kernels.LinearCoregionalization([single], W=np.ones((2, 1)))
    with pytest.raises(TypeError, match=r"(?s)LinearCoregionalization.*SeparateIndependent"):
        gvi.mean_functions.Inducing(mixed, Z)
    with pytest.raises(ValueError, match=r"q_mu has shape \(4,\); it must be \[M, J\]"):
        gvi.mean_functions.Inducing(single, Z, q_mu=np.zeros(4))
    with pytest.raises(ValueError, match=r"q_mu has shape \(\); it must be \[M, J\]"):
        gvi.mean_functions.Inducing(single, Z, q_mu=0.0)
    for noise in (np.ones(M), np.ones(3), np.ones((M, 3))):
        with pytest.raises(ValueError, match=rf"noise_variance has shape .* {M} rows, \[N, 1\]"):
            gvi.mean_functions.Inducing.from_data(single, Z, (Z, Z), noise)
    with pytest.raises(ValueError, match="noise_variance is 0"):
        gvi.mean_functions.Inducing.from_data(single, Z, (Z, Z[:, :1]), 0.0)
    three = gpflow.functions.Constant(np.zeros(3))
    for columns in (1, 2):
        with pytest.raises(ValueError, match=rf"Y of data has {columns} columns, .* 3 outputs"):
            gvi.mean_functions.Inducing.from_data(
                single, Z, (Z, Z[:, :columns]), 0.1, mean_function=three
            )


# Networks.

WITH_WEIGHTS = pytest.mark.parametrize(
    "make", networks.WITH_WEIGHTS.values(), ids=networks.WITH_WEIGHTS
)
INPUTS = np.random.default_rng(4).normal(size=(30, 2))
OUTPUTS = 2.0 * np.sin(INPUTS[:, :1])


@pytest.fixture(autouse=True)
def _seeded_networks():
    keras.utils.set_random_seed(0)


def model_with(network, prior_network=None):
    """A model of P = GP(0 or a network, k) and Q = GP(a network, r)."""
    kernel = catalogue.kernels(1)["single"]
    prior = gpflow.functions.Zero()
    if prior_network is not None:
        prior = gvi.mean_functions.Network(prior_network)
    r = gvi.covariances.DiagonalSVGP(kernel, INPUTS[:5])
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    gpflow.set_trainable(likelihood, False)
    return gvi.models.GWI(
        gvi.GaussianProcess(prior, kernel),
        gvi.GaussianProcess(gvi.mean_functions.Network(network), r),
        likelihood,
        num_data=len(INPUTS),
    )


@WITH_WEIGHTS
@pytest.mark.parametrize("J", [1, 3])
def test_a_network_is_a_mean_function_among_others(make, J, rng):
    network, X = make(J), rng.normal(size=(6, 2))
    mean = gvi.mean_functions.Network(network)
    assert_close(mean(X), network(X))
    value, linear = network(X).numpy(), X @ np.ones((2, 1)) + 5.0
    other = gpflow.functions.Linear(A=np.ones((2, 1)), b=5.0)
    assert_close((mean + other)(X), value + linear)
    assert_close((mean * other)(X), value * linear)
    assert len((mean + other).trainable_variables) == len(mean.trainable_variables) + 2
    process = gvi.GaussianProcess(mean, catalogue.kernels(1)["single"])
    assert process.at(X).num_outputs == J


def test_knows_its_outputs_if_the_network_does():
    assert gvi.mean_functions.Network(networks.dense(keras, 3)).num_outputs == 3
    assert not hasattr(gvi.mean_functions.Network(networks.Perceptron()), "num_outputs")


@pytest.mark.slow
@WITH_WEIGHTS
def test_q_s_network_trains_and_p_s_does_not(make):
    model = model_with(make(), prior_network=make())
    p, q = model.regulariser.mean_function, model.variational.mean_function
    trained = {id(variable) for variable in model.trainable_variables}
    assert trained >= {id(variable) for variable in q.trainable_variables}
    assert trained.isdisjoint(id(variable) for variable in p.variables)
    assert len(trained) == len(q.trainable_variables) + 1  # the diagonal of r
    before = p(INPUTS).numpy(), q(INPUTS).numpy()
    closure = model.training_loss_closure((INPUTS, OUTPUTS))
    loss = float(closure())
    gpflow.optimizers.Scipy().minimize(
        closure, model.trainable_variables, options={"maxiter": 15}, compile=False
    )
    assert float(closure()) < loss
    assert_differ(float(closure()), loss)
    np.testing.assert_array_equal(p(INPUTS), before[0])
    assert np.abs(q(INPUTS) - OUTPUTS).mean() < np.abs(before[1] - OUTPUTS).mean()


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", [tf_keras.optimizers.Adam, keras.optimizers.Adam])
def test_a_float32_network_learns_in_a_float64_model_by_either_adam(optimiser):
    model = model_with(networks.dense(keras, dtype="float32"))
    closure, optimiser = model.training_loss_closure((INPUTS, OUTPUTS)), optimiser(0.1)
    losses = []
    for _ in range(10):
        with tf.GradientTape() as tape:
            losses.append(closure())
        gradients = tape.gradient(losses[-1], model.trainable_variables)
        optimiser.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    assert losses[-1] < losses[0]
    assert_differ(losses[-1], losses[0])
    assert {variable.dtype for variable in model.trainable_variables} == {tf.float32, tf.float64}


def test_in_precision_a_network_learns_by_lbfgs_too():
    model = model_with(in_precision(networks.dense(keras, dtype="float32")))
    closure = model.training_loss_closure((INPUTS, OUTPUTS))
    loss = float(closure())
    gpflow.optimizers.Scipy().minimize(
        closure, model.trainable_variables, options={"maxiter": 5}, compile=False
    )
    assert float(closure()) < loss


@pytest.mark.parametrize("compile", [True, False])
def test_training_normalises_batches_and_predicting_uses_what_it_learned(compile):
    """One step of a Keras user's own loop moves the statistics as one loss of the model does."""
    network, prior = (networks.regularised(keras, dropout=0.0) for _ in range(2))
    twin = keras.models.clone_model(network)
    twin.set_weights(network.get_weights())
    model = model_with(network, prior_network=prior)
    closure = model.training_loss_closure((INPUTS, OUTPUTS), compile=compile)
    fixed = [variable.numpy() for variable in state(model.regulariser)]
    for _ in range(3):
        closure()
        twin(INPUTS.astype("float32"), training=True)
    mean = model.variational.mean_function
    statistics = [v.numpy() for v in state(mean) if v.dtype == tf.float32]
    own = [v.numpy() for v in networks.tensors(twin.non_trainable_variables)][:2]
    for mine, theirs in zip(statistics, own, strict=True):
        assert_close(mine, theirs)
    expected = twin(INPUTS.astype("float32"), training=False)
    assert_close(model.predict_f(INPUTS)[0], expected, precision=np.float32)
    for variable, value in zip(state(model.regulariser), fixed, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_a_network_whose_width_is_not_that_of_the_kernel_is_named():
    kernel = catalogue.kernels(2)["separate"]
    mean = gvi.mean_functions.Network(networks.dense(keras, 3))
    with pytest.raises(ValueError, match="mean_function has 3 outputs and kernel has 2"):
        gvi.GaussianProcess(mean, kernel).mean(INPUTS)


def test_a_network_that_returns_nan_stops_training_and_is_named():
    model = model_with(lambda X: X[:, :1] / 0.0 * 0.0)
    with pytest.raises(gvi.errors.NonFiniteLossError, match=r"the loss \(LogLoss\) is nan"):
        model.training_loss_closure((INPUTS, OUTPUTS))()


class Branching(tf.Module):
    """|w x|, by an `if` on a tensor: in a graph that is for AutoGraph to translate."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(2.0, dtype=tf.float64)

    def __call__(self, X):
        total = tf.reduce_sum(self.w * X)
        if total > 0.0:
            return self.w * X
        return -self.w * X


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_network_may_branch_on_a_tensor(sign, rng):
    X = sign * rng.uniform(1.0, 2.0, size=(8, 1))
    mean = gvi.mean_functions.Network(Branching())
    kernel = gpflow.kernels.SquaredExponential()
    P = gvi.GaussianProcess(gpflow.functions.Zero(1), kernel)
    Q = gvi.GaussianProcess(mean, kernel)
    model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(), num_data=8)
    data = (X, np.abs(X))
    eager = model.training_loss_closure(data, compile=False)()
    assert_close(model.training_loss_closure(data)(), eager)
    model.compile("adam")
    loss = model.fit(data, batch_size=None, verbose=0).history["loss"][0]
    assert_close(loss, eager)


def test_outputs_of_a_network_are_the_first_columns_times_a_factor(rng):
    rows = rng.normal(size=(2, 5, 7))
    mean = gvi.mean_functions.NetworkOutputs(3, 0.4)
    assert_close(mean(tf.constant(rows)), 0.4 * rows[..., :3])
    assert not mean.trainable_variables
    b, s = np.array([1.0, 0.0, -2.0]), np.array([1.0, 2.0, 1e6, 1.0, 1.0])[:, None]
    rows[..., -1:] = s
    w = rows[..., -2:-1]
    beyond = gvi.mean_functions.NetworkOutputs(3, 0.4, b)(tf.constant(rows)) - mean(rows)
    assert_close(beyond, np.broadcast_to(b * w * (1.0 - 1.0 / s) ** 2, (2, 5, 3)))
