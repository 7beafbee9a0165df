"""What a model predicts, at once and from a cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType
from scipy import stats

import gpflow_gvi as gvi

from ... import catalogue
from ...designs import each_value
from ...tolerances import assert_close, assert_differ, assert_estimates

M, D = 4, 2
_RNG = np.random.default_rng(3)
Z = _RNG.normal(size=(M, D))
U = np.sin(Z @ [[1.0, 0.5], [-0.7, 1.2]])
XNEW = _RNG.normal(size=(5, D))
SHAPES = list(itertools.product([False, True], repeat=2))
"""The values of full_cov and full_output_cov."""


def prior() -> gvi.GaussianProcess:
    k = gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=0.9)
    return gvi.GaussianProcess(gpflow.functions.Constant([0.2]), k)


def make(
    covariance: Callable[..., gpflow.kernels.Kernel],
    J: int = 1,
    *,
    P: gvi.GaussianProcess | None = None,
    likelihood: gpflow.likelihoods.Likelihood | None = None,
    whiten: bool = True,
) -> gvi.models.GVI:
    """Return a model whose Q is not P."""
    P = prior() if P is None else P
    inducing_variable = catalogue.inducing_points(Z)
    mean = gvi.mean_functions.Inducing(
        P.kernel,
        inducing_variable,
        mean_function=P.mean_function,
        q_mu=np.random.default_rng(1).normal(size=(M, J)),
        whiten=whiten,
    )
    Q = gvi.GaussianProcess(mean, covariance(P.kernel, inducing_variable, num_latent_gps=J))
    likelihood = gpflow.likelihoods.Gaussian(0.3) if likelihood is None else likelihood
    return gvi.models.PGVI(P, Q, likelihood, num_data=10)


def svgp(k: gpflow.kernels.Kernel, Z: object, **options: object) -> gvi.covariances.CholeskySVGP:
    J = options["num_latent_gps"]
    q_sqrt = np.tril(0.2 * np.random.default_rng(2).normal(size=(J, M, M))) + 0.6 * np.eye(M)
    return gvi.covariances.CholeskySVGP(k, Z, q_sqrt=q_sqrt)


def conditioned() -> gvi.models.GVI:
    """Return a model whose P is a posterior, and whose Q has the mean of that."""
    P = prior().condition(Z + 0.3, U[:, :1], 0.2)
    return make(svgp, P=P)


MODELS: dict[str, Callable[[], gvi.models.GVI]] = {
    **{
        f"{name}, J={J}": lambda build=build, J=J: make(build, J)
        for name, build in catalogue.COVARIANCES.items()
        for J in ((1, 2) if name in ("CholeskySVGP", "SparsePosterior") else (1,))
    },
    "unwhitened mean": lambda: make(svgp, whiten=False),
    "sum with White": lambda: make(
        lambda *args, **options: svgp(*args, **options) + gpflow.kernels.White(0.1)
    ),
    "conditioned P": conditioned,
}
NOT_SLOW = (*catalogue.SOME_COVARIANCES, "sum", "conditioned")


@pytest.mark.parametrize(("likelihood", "J"), [("Gaussian", 1), ("Bernoulli", 2)])
def test_observations_are_predicted_through_the_likelihood(likelihood: str, J: int) -> None:
    model = make(svgp, J, likelihood=getattr(gpflow.likelihoods, likelihood)())
    f_mean, f_variance = (part.numpy() for part in model.predict_f(XNEW))
    y_mean, y_variance = (part.numpy() for part in model.predict_y(XNEW))
    Y = np.random.default_rng(5).integers(0, 2, size=(5, J)) * 1.0
    density = model.predict_log_density((XNEW, Y)).numpy()
    if likelihood == "Gaussian":
        variance = f_variance + 1.0
        assert_close(y_mean, f_mean)
        assert_close(y_variance, variance)
        logs = stats.norm.logpdf(Y, f_mean, np.sqrt(variance))
    else:
        # E Φ(f) = Φ(m / √(1 + v)); GPflow's link keeps p off 0 and 1 by a thousandth.
        p = 1e-3 + (1.0 - 2e-3) * stats.norm.cdf(f_mean / np.sqrt(1.0 + f_variance))
        assert_close(y_mean, p)
        assert_close(y_variance, p * (1.0 - p))
        logs = stats.bernoulli.logpmf(Y.astype(int), p)
    assert_close(density, logs.sum(axis=-1))


@pytest.mark.parametrize("full_cov", [False, True])
@pytest.mark.draws
def test_samples_have_the_moments_of_q(full_cov: bool) -> None:
    J, S = 2, 20_000
    model = make(svgp, J)
    assert model.predict_f_samples(XNEW, full_cov=full_cov).shape == (5, J)
    batch = np.stack([XNEW, XNEW + 0.5])
    of_batch = model.predict_f_samples(batch, S, full_cov=full_cov).numpy()
    assert of_batch.shape == (2, S, 5, J)  # as in GPflow
    alone = model.predict_f_samples(XNEW, S, full_cov=full_cov).numpy()
    assert alone.shape == (S, 5, J)
    for X, samples in ((XNEW, alone), (batch[0], of_batch[0]), (batch[1], of_batch[1])):
        mean, covariance = (part.numpy() for part in model.predict_f(X, full_cov=True))
        for j in range(J):
            expected = covariance[j] if full_cov else np.diag(np.diag(covariance[j]))
            variance = np.diag(expected)
            assert_estimates(samples[..., j].mean(axis=0), mean[:, j], np.sqrt(variance / S))
            # Var of a product of two centred Gaussians is v₁v₂ + c².
            error = np.sqrt((np.outer(variance, variance) + expected**2) / S)
            assert_estimates(np.cov(samples[..., j].T), expected, error)


def assert_equal(found, expected) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert_close(one, other)


def assert_same_predictions(posterior, model, predict: str = "predict_f") -> None:
    for flags in SHAPES[::3]:  # marginals alone, and everything
        assert_equal(getattr(posterior, predict)(XNEW, *flags), model.predict_f(XNEW, *flags))


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(model, marks=() if model.startswith(NOT_SLOW) else pytest.mark.slow)
        for model in MODELS
    ],
)
def test_posterior_predicts_what_the_model_does(model: str) -> None:
    model = MODELS[model]()
    direct = {flags: model.predict_f(XNEW, *flags) for flags in SHAPES}
    for kind in ("tensor", PrecomputeCacheType.VARIABLE):
        posterior = model.posterior(kind)
        assert len(posterior.cache) >= 1
        assert all(isinstance(c, tf.Variable) == (kind != "tensor") for c in posterior.cache)
        # Both kinds predict by the same code, so that one of them has all the shapes.
        for flags in SHAPES if kind == "tensor" else SHAPES[:1]:
            assert_equal(posterior.predict_f(XNEW, *flags), direct[flags])


@pytest.mark.parametrize(("whiten", "scale"), [(True, 0.1), (False, 1.0), (True, 5.0)])
def test_posterior_is_that_of_gpflow_where_points_are_close(whiten: bool, scale: float) -> None:
    """With more and less certainty than P's in some directions, and K_ZZ nearly singular."""
    rng = np.random.default_rng(0)
    N, J = 30, 2
    points = np.linspace(-1.0, 1.0, N)[:, None]
    k = gpflow.kernels.SquaredExponential(variance=2.0, lengthscales=0.7)
    q_mu, q_sqrt = rng.normal(size=(N, J)), np.tril(rng.normal(size=(J, N, N))) / N**0.5
    q_sqrt *= np.linspace(0.0, scale, N)
    svgp = gpflow.models.SVGP(
        k,
        gpflow.likelihoods.Gaussian(),
        points,
        q_mu=q_mu,
        q_sqrt=q_sqrt,
        whiten=whiten,
        num_latent_gps=J,
    )
    mean = gvi.mean_functions.Inducing(k, points, q_mu=q_mu, whiten=whiten)
    covariance = gvi.covariances.CholeskySVGP(k, points, q_sqrt=q_sqrt, whiten=whiten)
    Q = gvi.GaussianProcess(mean, covariance)
    model = gvi.models.PGVI(prior(), Q, gpflow.likelihoods.Gaussian(), num_data=40)
    X = rng.uniform(-3.0, 3.0, size=(20, 1))
    expected = svgp.predict_f(X)
    for ours, theirs in zip(model.posterior().predict_f(X), expected, strict=True):
        assert_close(ours, theirs)


def test_posterior_without_a_cache() -> None:
    model = conditioned()
    for kind in (PrecomputeCacheType.NOCACHE, None):
        uncached = model.posterior(kind)
        assert_same_predictions(uncached, model, "fused_predict_f")
        with pytest.raises(ValueError, match="update_cache"):
            uncached.predict_f(XNEW)
    with pytest.raises(ValueError, match="precompute_cache"):
        uncached.update_cache()  # it has none to renew
    uncached.update_cache(PrecomputeCacheType.TENSOR)
    assert_same_predictions(uncached, model)


def test_posterior_of_a_process_with_nothing_to_keep() -> None:
    model = gvi.models.PGVI(prior(), prior(), gpflow.likelihoods.Gaussian(), num_data=10)
    for kind in ("tensor", "variable"):
        posterior = model.posterior(kind)
        assert_same_predictions(posterior, model)
        posterior.update_cache()
        assert_same_predictions(posterior, model)


@pytest.mark.parametrize(
    ("model", "kind"),
    each_value(["unwhitened mean", "Tempered, J=1", "conditioned P"], ["tensor", "variable"]),
)
def test_cache_is_renewed_by_update_cache_alone(model: str, kind: str) -> None:
    model = MODELS[model]()
    posterior = model.posterior(kind)
    before = [factor.numpy() for factor in posterior.cache]
    kernels = [part for part in model.submodules if isinstance(part, gpflow.kernels.Stationary)]
    assert kernels
    for kernel in kernels:
        kernel.lengthscales.assign(0.5)
    for old, kept in zip(before, posterior.cache, strict=True):
        np.testing.assert_array_equal(old, kept)
    stale = posterior.predict_f(XNEW)[0]
    assert_differ(stale, model.predict_f(XNEW)[0])
    variables = posterior.cache
    posterior.update_cache()
    assert_same_predictions(posterior, model)
    if kind == "variable":  # the same ones, so that a graph that was exported sees the change
        assert all(old is new for old, new in zip(variables, posterior.cache, strict=True))
    model.q_mu.assign(model.q_mu + 1.0)
    posterior.update_cache()
    assert_same_predictions(posterior, model)


def operations(function: Callable[..., object]) -> set[str]:
    """Return the kinds of all operations of a function of X, also within functions it calls."""
    spec = tf.TensorSpec([None, D], tf.float64)
    graph = tf.function(function, autograph=False).get_concrete_function(spec).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes}


@pytest.mark.parametrize("model", ["sum with White", "conditioned P"])
def test_cached_prediction_factorises_nothing(model: str) -> None:
    model = MODELS[model]()
    assert "Cholesky" in operations(model.predict_f)
    assert "Cholesky" not in operations(model.posterior("tensor").predict_f)
    assert "Cholesky" not in operations(model.posterior("variable").predict_f)


@pytest.mark.parametrize("model", ["SparsePosterior, J=2", "conditioned P"])
def test_posterior_is_saved_and_loaded(model: str, tmp_path: Path) -> None:
    model = MODELS[model]()

    class Exported(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.posterior = model.posterior("variable")

        @tf.function(input_signature=[tf.TensorSpec([None, D], tf.float64)], autograph=False)
        def predict(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return self.posterior.predict_f(X)

    tf.saved_model.save(Exported(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    for rows in (XNEW, XNEW[:2]):
        for there, here in zip(loaded.predict(rows), model.predict_f(rows), strict=True):
            assert_close(there, here)
