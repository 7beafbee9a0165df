"""A context says where a divergence is evaluated, and is drawn anew without leaving a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.utilities import deepcopy, parameter_dict
from scipy import stats

import gpflow_gvi as gvi
from gpflow_gvi._core.state import state
from gpflow_gvi.divergences import (
    Divergence,
    GaussianWasserstein,
    InducingKL,
    ProjectedHellinger,
    ProjectedKL,
    ProjectedRenyi,
    RegularisedKL,
    contexts,
)
from gpflow_gvi.divergences.contexts import (
    Context,
    GaussianNoise,
    Inputs,
    TrainingInputs,
    UniformBox,
)
from gpflow_gvi.errors import NonFiniteLossError
from tests.tolerances import (
    ITERATIVE,
    P_VALUE,
    STANDARD_ERRORS,
    assert_close,
    assert_differ,
    assert_estimates,
)

N, D = 24, 2
_RNG = np.random.default_rng(5)
X = _RNG.normal(size=(N, D))
Y = np.sin(X[:, :1])
ELSEWHERE = _RNG.normal(size=(7, D)) + 2.0
LOWER, UPPER = np.array([-1.0, 0.5]), np.array([2.0, 3.0])
IMAGES = _RNG.uniform(size=(4, 3, 2, 1))

DIVERGENCES: dict[str, Callable[..., Divergence]] = {
    "KL": ProjectedKL,
    "Renyi": lambda **options: ProjectedRenyi(0.3, **options),
    "Hellinger": ProjectedHellinger,
    "RegularisedKL": lambda **options: RegularisedKL(0.1, **options),
    "exact": GaussianWasserstein,
    "marginal": lambda **options: GaussianWasserstein("marginal", **options),
}

RANDOM: dict[str, Callable[..., contexts.RandomContext]] = {
    "box": lambda num_points=5, **options: UniformBox(LOWER, UPPER, num_points, **options),
    "noise": lambda num_points=5, **options: GaussianNoise(0.3, num_points, **options),
    "inputs": lambda num_points=5, **options: Inputs(ELSEWHERE, num_points, **options),
}


def processes() -> tuple[gvi.GaussianProcess, gvi.GaussianProcess]:
    """Q and P, with all of mean and kernel different."""
    Q = gvi.GaussianProcess(
        gpflow.functions.Linear(np.array([[0.5], [-0.3]])),
        gpflow.kernels.SquaredExponential(variance=0.6),
    )
    k = gpflow.kernels.SquaredExponential(lengthscales=1.5) + gpflow.kernels.Linear(0.2)
    return Q, gvi.GaussianProcess(gpflow.functions.Constant([0.2]), k)


def model(divergence: Divergence, **options: Any) -> gvi.models.GVI:
    Q, P = processes()
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gvi.models.GVI(P, Q, likelihood, divergence, **{"num_data": N, **options})


# Where the divergence is evaluated.


@pytest.mark.parametrize("name", DIVERGENCES)
def test_divergence_at_other_inputs_is_the_divergence_there(name: str) -> None:
    expected = DIVERGENCES[name]()(*processes(), ELSEWHERE)
    divergence = DIVERGENCES[name](context=Inputs(ELSEWHERE))
    np.testing.assert_array_equal(divergence(*processes(), X), expected)
    fitted = model(divergence, divergence_weight=0.7)
    terms = fitted.loss_terms((X, Y))
    np.testing.assert_array_equal(terms.divergence, expected)
    assert_close(fitted.training_loss((X, Y)), N * (terms.loss + 0.7 * expected))
    assert_differ(DIVERGENCES[name]()(*processes(), X), expected)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_training_inputs_are_what_is_without_a_context(name: str) -> None:
    expected = DIVERGENCES[name]()(*processes(), X)
    divergence = DIVERGENCES[name](context=TrainingInputs())
    np.testing.assert_array_equal(divergence(*processes(), X), expected)


def test_uniform_box_averages_to_quadrature() -> None:
    Q, P = processes()
    nodes, weights = np.polynomial.legendre.leggauss(20)
    grid = [0.5 * (b + a) + 0.5 * (b - a) * nodes for a, b in zip(LOWER, UPPER, strict=True)]
    points = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, D)
    q, p = (
        tfp.distributions.Normal(process.mean(points), process.variance(points) ** 0.5)
        for process in (Q, P)
    )
    values = tfp.distributions.kl_divergence(q, p).numpy().reshape(20, 20)
    expected = 0.25 * weights @ values @ weights

    divergence = ProjectedKL(context=UniformBox(LOWER, UPPER, 1000))
    draws = [float(divergence(Q, P, X)) for _ in range(30)]
    assert_estimates(np.mean(draws), expected, stats.sem(draws))
    assert STANDARD_ERRORS * stats.sem(draws) < 0.05 * expected, "a check that says nothing"


def test_sum_is_a_mixture_in_the_proportion_of_the_points() -> None:
    context = TrainingInputs() + Inputs(ELSEWHERE) + Inputs(3.0 * ELSEWHERE)
    D_0 = [float(ProjectedKL()(*processes(), points)) for points in (X, ELSEWHERE, 3.0 * ELSEWHERE)]
    value = ProjectedKL(context=context)(*processes(), X)
    assert_close(value, np.average(D_0, weights=[N, 7, 7]))


def test_inducing_kl_takes_none() -> None:
    with pytest.raises(TypeError, match="context"):
        InducingKL(context=TrainingInputs())


# The laws of the points.


def test_law_of_the_box() -> None:
    points = UniformBox(LOWER, UPPER, 2000, seed=3)(X).numpy()
    assert points.shape == (2000, D)
    for column, a, b in zip(points.T, LOWER, UPPER, strict=True):
        assert stats.kstest(column, stats.uniform(a, b - a).cdf).pvalue > P_VALUE
    assert stats.spearmanr(points).pvalue > P_VALUE


@pytest.mark.parametrize("num_points", [None, 4000])
def test_law_of_the_noise(num_points: int | None) -> None:
    rows = np.repeat(X, 80, axis=0)
    scale = np.array([1e-4, 2e-4])
    points = GaussianNoise(scale, num_points, seed=1)(rows).numpy()
    assert len(points) == (num_points or len(rows))
    nearest = np.argmin(np.sum((points[:, None] - X) ** 2, axis=-1), axis=1)
    if num_points is None:
        np.testing.assert_array_equal(nearest, np.repeat(np.arange(N), 80))
    else:
        assert stats.chisquare(np.bincount(nearest, minlength=N)).pvalue > P_VALUE
    noise = (points - X[nearest]) / scale
    assert stats.kstest(noise.ravel(), "norm").pvalue > P_VALUE


def test_law_of_drawn_inputs() -> None:
    points = Inputs(ELSEWHERE, 2000, seed=2)(X).numpy()
    matches = np.all(points[:, None] == ELSEWHERE, axis=-1)  # [2000, 7]
    assert np.all(matches.sum(axis=1) == 1)
    assert stats.chisquare(matches.sum(axis=0)).pvalue > P_VALUE


def test_box_has_as_many_points_as_the_batch_by_default() -> None:
    context = TrainingInputs() + UniformBox(LOWER, UPPER)
    signature = [tf.TensorSpec([None, D], tf.float64)]
    trace = tf.function(context, input_signature=signature, autograph=False)
    for rows in (X, X[:5]):
        points = trace(rows)
        assert points.shape == (2 * len(rows), D)
        np.testing.assert_array_equal(points[: len(rows)], rows)


def test_parts_of_a_sum_are_not_alike() -> None:
    context = RANDOM["box"](500) + (RANDOM["box"](500) + RANDOM["box"](500))
    parts = tf.split(context(X), 3)
    for i in range(3):
        correlation = np.corrcoef(parts[i - 1][:, 0], parts[i][:, 0])[0, 1]
        assert_estimates(correlation, 0.0, 1.0 / np.sqrt(500))


@pytest.mark.parametrize("name", RANDOM)
def test_points_are_fresh_and_their_graph_is_not(name: str) -> None:
    context = RANDOM[name](50)
    draw = tf.function(context, autograph=False)
    first, second = draw(X).numpy(), draw(X).numpy()
    assert_differ(first, second)
    assert draw.experimental_get_tracing_count() == 1
    same, other = RANDOM[name](50), RANDOM[name](50, seed=1)
    np.testing.assert_array_equal(same(X), first)
    np.testing.assert_array_equal(same(X), second)
    assert_differ(other(X), first)


# Images and single precision.


@pytest.mark.parametrize("flat", [False, True], ids=["images", "flat"])
@pytest.mark.parametrize(
    "context",
    [
        lambda: UniformBox(0.0, 1.0, 5),
        lambda: UniformBox(np.zeros((3, 2, 1)), np.ones((3, 2, 1)), 5),
        lambda: GaussianNoise(0.1, 5),
        lambda: GaussianNoise(np.full((3, 2, 1), 0.1), 5),
        lambda: Inputs(IMAGES, 5),
        lambda: Inputs(IMAGES.reshape(4, 6)) + Inputs(IMAGES, 1),
    ],
)
def test_images(context: Callable[[], Context], flat: bool) -> None:
    rows = IMAGES.reshape(4, 6) if flat else IMAGES
    points = context()(rows)
    assert points.shape == (5, *rows.shape[1:])
    if isinstance(context(), contexts.Union):
        np.testing.assert_array_equal(points[:4], rows)


def test_single_precision() -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        rows = X.astype(np.float32)
        box = UniformBox(LOWER, UPPER, 4)
        context = TrainingInputs() + box + GaussianNoise(0.1) + Inputs(rows, 3)
        assert context(rows).dtype == tf.float32
        P = gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.SquaredExponential())
        Q = gvi.GaussianProcess(gpflow.functions.Constant(1.0), P.kernel)
        value = ProjectedKL(context=context)(Q, P, rows)
        assert_close(value, 0.5)


# Training.


def noisy() -> gvi.models.GVI:
    """A model whose context has points of all kinds."""
    context = TrainingInputs() + RANDOM["box"]() + RANDOM["noise"]() + RANDOM["inputs"]()
    return model(ProjectedRenyi(context=context))


def counters(fitted: gvi.models.GVI) -> list[list[int]]:
    return [variable.numpy().tolist() for variable in state(fitted)]


def fit(fitted: gvi.models.GVI, epochs: int = 4, **options: Any) -> list[Any]:
    fitted.compile(keras.optimizers.Adam(0.01), steps_per_execution=2)
    history = fitted.fit((X, Y), batch_size=8, epochs=epochs, verbose=0, **options).history
    return [history["loss"], *(value.tolist() for value in fitted.get_weights())]


class Interrupt(keras.callbacks.Callback):
    """In the place of a signal, before an epoch."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.before = before

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.before:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    return fit(noisy())


@pytest.mark.slow
def test_interrupted_training_ends_where_it_would_have(
    tmp_path: Path, undisturbed: list[Any]
) -> None:
    def interrupted(before: int) -> list[Any]:
        backup = keras.callbacks.BackupAndRestore(str(tmp_path))
        return fit(noisy(), callbacks=[backup, Interrupt(before)])

    with pytest.raises(KeyboardInterrupt):
        interrupted(2)
    assert interrupted(-1) == undisturbed


@pytest.mark.slow
def test_validation_and_prediction_draw_nothing_from_training(undisturbed: list[Any]) -> None:
    fitted = noisy()
    assert fit(fitted, validation_data=(X, Y)) == undisturbed
    assert counters(fitted) == [[0, 12]] * 3  # a draw for each step
    before = fitted.predict_y(X)
    gvi.temper(fitted, (X, Y))
    fitted.posterior().predict_f(X)
    assert counters(fitted) == [[0, 12]] * 3
    fitted.training_loss((X, Y))
    np.testing.assert_array_equal(fitted.predict_y(X), before)


def test_failed_step_gives_its_draw_back() -> None:
    fitted = noisy()
    fitted.training_loss_closure((X, Y), compile=False)()
    assert counters(fitted) == [[0, 1]] * 3
    bad = tf.data.Dataset.from_tensors((X, Y))
    fitted.likelihood.variance.unconstrained_variable.assign(np.nan)
    with pytest.raises(NonFiniteLossError):
        fitted.training_loss_closure(iter(bad), compile=False)()
    fitted.compile("adam")
    with pytest.raises(NonFiniteLossError):
        fitted.fit(bad, verbose=0)
    assert counters(fitted) == [[0, 1]] * 3


def test_state_is_a_weight_and_is_neither_trained_nor_a_parameter() -> None:
    plain, fitted = model(ProjectedRenyi()), noisy()
    assert len(fitted.trainable_variables) == len(plain.trainable_variables)
    kept = {id(variable) for variable in state(fitted)}
    assert len(kept) == 3
    assert not any(variable.trainable for variable in state(fitted))
    assert kept <= {id(variable) for variable in fitted.weights}
    assert not kept & {id(part) for part in parameter_dict(fitted).values()}


def test_checkpoint_copy_and_folder_go_on_where_the_model_is(tmp_path: Path) -> None:
    fitted = noisy()
    fit(fitted, epochs=1)
    copied, other = deepcopy(fitted), noisy()
    gvi.save(fitted, tmp_path / "saved")
    path = tf.train.Checkpoint(fitted).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(other).restore(path)
    loaded = gvi.load(tmp_path / "saved")
    expected = [float(fitted.training_loss((X, Y))) for _ in range(2)]
    assert expected[0] != expected[1]
    for again in (copied, loaded, other):
        assert [float(again.training_loss((X, Y))) for _ in range(2)] == expected


@pytest.mark.slow
def test_learn_leaves_the_context_as_it_is_given() -> None:
    """So that the same call learns the same again."""
    box = UniformBox([-2.0] * D, [2.0] * D)
    learned = gvi.learn(
        (X, Y),
        kernel=gpflow.kernels.SquaredExponential(),
        divergence=ProjectedKL(context=TrainingInputs() + box),
        num_inducing=4,
        validation_fraction=0.0,
        epochs=1,
    )
    assert box.counter.numpy().tolist() == [0, 0]
    assert counters(learned.model) == [[0, 50]]


class Bumps(tf.Module):
    """A network that is linear in its weights, each of which matters close by alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(np.full((25, 1), 3.0))

    def features(self, inputs: Any) -> tf.Tensor:
        return tf.exp(-0.5 * tf.square((inputs - np.linspace(-3.0, 3.0, 25)) / 0.08))

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.features(inputs) @ self.weights


def test_fixed_context_suits_lbfgs_and_brings_q_back_to_p() -> None:
    """With a linear mean and KL the optimum is that of weighted least squares."""
    x = np.concatenate([np.linspace(-3.0, -1.5, 20), np.linspace(1.5, 3.0, 20)])[:, None]
    y = 2.0 + 0.5 * np.sin(4.0 * x)
    points = UniformBox([-3.0], [3.0], 80)(x).numpy()
    noise, weight, variance = 0.2, 1.0, 0.5

    network = Bumps()
    k = gpflow.kernels.SquaredExponential(variance)
    P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    Q = gvi.GaussianProcess(gvi.mean_functions.Network(network), deepcopy(k))
    likelihood = gpflow.likelihoods.Gaussian(noise)
    for part in (Q.kernel, likelihood):
        gpflow.set_trainable(part, False)
    divergence = ProjectedKL(context=TrainingInputs() + Inputs(points))
    fitted = gvi.models.PGVI(P, Q, likelihood, divergence, num_data=40, divergence_weight=weight)
    gap = np.linspace(-0.7, 0.7, 9)[:, None]
    deviation = np.sqrt(variance)  # P's
    assert np.abs(Q.mean(gap)).max() > 2.0 * deviation  # where no data ever change it
    closure = fitted.training_loss_closure((x, y))
    options = {"maxiter": 300, "ftol": 0.0, "gtol": 1e-10}
    gpflow.optimizers.Scipy().minimize(
        closure, fitted.trainable_variables, options=options, compile=False
    )

    rows = [network.features(at).numpy() for at in (x, np.concatenate([x, points]))]
    scales = np.sqrt([1.0 / (40 * noise), weight / (120 * variance)])
    A = np.concatenate([scale * row for scale, row in zip(scales, rows, strict=True)])
    b = np.concatenate([scales[0] * y, np.zeros((120, 1))])
    expected = network.features(gap).numpy() @ np.linalg.lstsq(A, b, rcond=None)[0]
    assert_close(Q.mean(gap), expected, ITERATIVE, scale=deviation)
    assert np.abs(Q.mean(gap)).max() < 0.2 * deviation


# Bad input.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UniformBox([0.0, 1.0], [1.0, 1.0]), "upper - lower is .* must be positive"),
        (lambda: UniformBox([0.0], [np.inf]), "upper - lower is .* finite"),
        (lambda: UniformBox([0.0], [1.0, 1.0]), r"lower has shape \(1,\) and upper has shape \(2,"),
        (lambda: GaussianNoise(0.0), "scale is 0.0; it must be positive"),
        (lambda: GaussianNoise([0.1, -1.0]), "scale is .* must be positive"),
        (lambda: GaussianNoise(np.nan), "scale is nan"),
        (lambda: Inputs([1.0, 2.0]), r"X has shape \(2,\).*rank 2"),
        (lambda: Inputs([[1.0], [np.nan]]), "X has NaN"),
        (lambda: GaussianNoise(0.1, seed=0.5), "seed is 0.5; it must be a whole number"),
        *(
            (lambda make=make, count=count: make(count), f"num_points is {count!r}")
            for make in RANDOM.values()
            for count in (0, 2.0)
        ),
    ],
)
def test_bad_measures(make: Callable[[], Context], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (
            UniformBox([0.0] * 3, [1.0] * 3),
            r"lower is of shape \(3,\).*have shape \(2,\)",
        ),
        (GaussianNoise([1.0]), r"scale is of shape \(1,\).*have shape \(2,\)"),
        (Inputs(X[:, :1]), r"context Inputs has points of shape \(1,\).*shape \(2,\)"),
        (TrainingInputs() + Inputs(X[:, :1]), r"context Inputs has points of shape \(1,\)"),
    ],
)
def test_points_of_another_width(context: Context, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProjectedKL(context=context)(*processes(), X)


def test_points_of_another_precision() -> None:
    assert Inputs(X.astype(np.float32)).X.dtype == tf.float64
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        context = Inputs(X.astype(np.float32))
    with pytest.raises(TypeError, match="Inputs has points of dtype float32, but X has dtype fl"):
        context(X)


@pytest.mark.parametrize("make", DIVERGENCES.values(), ids=DIVERGENCES)
def test_what_is_not_a_context(make: Callable[..., Divergence]) -> None:
    with pytest.raises(TypeError, match=r"context is a ndarray; .*pass contexts.Inputs\(array\)"):
        make(context=X)
    with pytest.raises(TypeError):
        TrainingInputs() + X[:1].tolist()
