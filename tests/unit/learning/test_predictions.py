"""Predictions as graphs: equal to those of the model, for any rows, and after more training."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from scipy import stats

import gpflow_gvi as gvi
from gpflow_gvi.calibration.conformal_prediction import conformal
from gpflow_gvi.learning import Learned
from gpflow_gvi.learning.noise import VaryingNoise
from gpflow_gvi.learning.predictions import weighted
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.models.posterior import GVIPosterior
from gpflow_gvi.prediction.class_probabilities import class_probabilities
from tests.tolerances import ITERATIVE, assert_close, assert_differ

N, M, D = 30, 6, 2


def numbers(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, D))


def model(
    likelihood: likelihoods.Likelihood | None = None,
    J: int = 1,
    prior: gpflow.functions.MeanFunction | None = None,
) -> gvi.models.GVI:
    """Return a tempered model, whose mean and covariance are not those of P."""
    rng = np.random.default_rng(1)
    P = gvi.GaussianProcess(
        prior or gpflow.functions.Zero(J), gpflow.kernels.SquaredExponential(1.3, [0.8, 1.2])
    )
    Z = gpflow.inducing_variables.InducingPoints(numbers(M))
    mean = gvi.mean_functions.Inducing(
        P.kernel, Z, mean_function=P.mean_function, q_mu=rng.normal(size=(M, J)), whiten=False
    )
    covariance = gvi.covariances.CholeskySVGP(P.kernel, Z, num_latent_gps=J)
    Q = gvi.GaussianProcess(mean, gvi.covariances.Tempered(covariance, np.full(J, 1.7)))
    return gvi.models.PGVI(P, Q, likelihood or likelihoods.Gaussian(0.1), num_data=N)


def learned(fitted: gvi.models.GVI, outputs: int = 1, *, calibrated: bool = False) -> Learned:
    """Return a model with units as `learn` returns it."""
    X, Y = 3.0 + 2.0 * numbers(N, 2), 100.0 * np.random.default_rng(3).normal(size=(N, outputs))
    of_y = Scaling.none(Y)
    if isinstance(fitted.likelihood, likelihoods.Gaussian | likelihoods.StudentT):
        of_y = Scaling.of(Y)
    held_out = Scaling.of(X).standard(X), of_y.standard(Y)
    calibration = conformal(fitted, held_out) if calibrated else None
    return Learned(fitted, None, Scaling.of(X), of_y, {}, calibration)


def trees(X: np.ndarray) -> np.ndarray:
    """Return a predictor that is no function of TensorFlow."""
    return np.where(X[:, :1] > 0.2, np.sign(X[:, 1:]), 0.5)


def with_predictors() -> gvi.models.GVI:
    pattern = gvi.mean_functions.Predictor(lambda X: 1.0 + trees(X) ** 2)
    noise = likelihoods.Gaussian(VaryingNoise(pattern, 0.1))
    return model(noise, prior=gvi.mean_functions.Predictor(trees))


CASES: dict[str, Callable[[], Learned]] = {
    "gaussian": lambda: learned(model()),
    "two outputs": lambda: learned(model(J=2), 2),
    "two parameters": lambda: learned(
        model(likelihoods.HeteroskedasticTFPConditional(), J=2),
    ),
    "predictors": lambda: learned(with_predictors()),
    "conformal": lambda: learned(model(), calibrated=True),
    "bernoulli": lambda: learned(model(likelihoods.Bernoulli())),
}


def require_equal(found: object, expected: object) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs)


def expected_of_y(learned: Learned, X: np.ndarray) -> list[np.ndarray]:
    """Return the predictions of the model itself, in original units by Y = a y + b."""
    standard = (X - learned.inputs.shift) / learned.inputs.scale
    mean, variance = learned.model.predict_y(standard)
    a, b = learned.outputs.scale, learned.outputs.shift
    return [np.asarray(mean) * a + b, np.asarray(variance) * a**2]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_the_model_at_each_call(name):
    made = CASES[name]()
    for rows in (5, 1, 40, 5):
        X = 3.0 + 2.0 * numbers(rows, rows)
        require_equal(made.predict_y(X), expected_of_y(made, X))
        f_mean, f_covariance = made.predict_f(X, full_cov=True)  # without a graph
        variance = np.stack([np.diag(each) for each in np.asarray(f_covariance)], axis=1)
        require_equal(made.predict_f(X), (f_mean, variance))
    assert len(made._predictions.y._graphs) == len(made._predictions.f._graphs) == 1


@pytest.mark.parametrize("name", ["conformal", "gaussian"])
def test_intervals_are_so_many_deviations_wide(name):
    made = CASES[name]()
    X = 3.0 + 2.0 * numbers(9, 5)
    for coverage in (0.9, 0.9, 0.5):
        lower, upper = made.predict_interval(X, coverage)
        mean, variance = expected_of_y(made, X)
        if made.calibration is None:
            quantile = stats.norm.ppf(0.5 + 0.5 * coverage)
        else:
            n = len(made.calibration.scores)
            rank = int(np.ceil((n + 1) * coverage))
            quantile = made.calibration.scores[rank - 1]
        half = quantile * np.sqrt(variance)
        require_equal((lower, upper), (mean - half, mean + half))


@pytest.mark.parametrize(
    ("likelihood", "J"),
    [
        (lambda: likelihoods.Softmax(3), 3),
        pytest.param(lambda: likelihoods.MultiClass(3), 3, marks=pytest.mark.slow),
        (likelihoods.Bernoulli, 1),
    ],
)
def test_probabilities_are_those_of_the_model(likelihood, J):
    made = learned(model(likelihood(), J))
    for rows in (4, 1, 30):
        X = 3.0 + 2.0 * numbers(rows, rows)
        expected = class_probabilities(made.model, made.inputs.standard(X))
        require_equal([made.predict_proba(X)], [expected])


def test_they_follow_a_model_that_is_trained_further():
    made = learned(model())
    X = 3.0 + 2.0 * numbers(8, 6)
    for _ in range(2):
        made.predict_y(X), made.predict_f(X)
    Q, k = made.model.variational, made.model.kernel
    changes: list[Callable[[], object]] = [
        lambda: Q.mean_function.q_mu.assign(2.0 * Q.mean_function.q_mu),
        lambda: k.lengthscales.assign([0.5, 2.0]),
        lambda: k.variance.assign(0.7),
        lambda: Q.kernel.factor.assign([0.6]),
        lambda: Q.kernel.kernel.q_sqrt.assign(0.5 * Q.kernel.kernel.q_sqrt),
        lambda: Q.kernel.kernel.inducing_variable.Z.assign(numbers(M, 9)),
        lambda: made.likelihood.variance.assign(0.3),
    ]
    before = np.stack(made.predict_y(X))
    for change in changes:
        change()
        require_equal(made.predict_y(X), expected_of_y(made, X))
        after = np.stack(made.predict_y(X))
        assert_differ(before, after)
        before = after
    made.model.compile(tf.keras.optimizers.Adam(0.05))
    made.model.fit((numbers(N, 4), numbers(N, 5)[:, :1]), epochs=1, batch_size=10, verbose=0)
    require_equal(made.predict_y(X), expected_of_y(made, X))
    assert_differ(before, np.stack(made.predict_y(X)))


def test_factors_are_computed_once_while_nothing_changes(monkeypatch):
    made = learned(model())
    counts = []
    monkeypatch.setattr(GVIPosterior, "renew", lambda self: counts.append(self))
    for rows in (3, 3, 5, 1, 8):
        made.predict_y(3.0 + 2.0 * numbers(rows))
    assert len(counts) == 1  # when the graph was traced


@pytest.mark.parametrize(
    "copied_by", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))]
)
def test_copies_predict_the_same_and_are_trained_by_themselves(copied_by):
    made = learned(model())
    X = 3.0 + 2.0 * numbers(8, 6)
    expected = [np.asarray(part) for part in (made.predict_y(X), made.predict_y(X))[1]]
    copied = copied_by(made)
    for _ in range(3):
        require_equal(copied.predict_y(X), expected)
    copied.model.kernel.variance.assign(0.2)
    require_equal(copied.predict_y(X), expected_of_y(copied, X))
    require_equal(made.predict_y(X), expected)


def test_what_has_predicted_is_saved_as_it_was(tmp_path):
    made = learned(model())
    X = 3.0 + 2.0 * numbers(8, 6)
    made.save(tmp_path / "before")
    for _ in range(2):
        expected = made.predict_y(X)
    made.save(tmp_path / "after")
    read = [(tmp_path / name / "structure.json").read_text() for name in ("before", "after")]
    assert read[0] == read[1]
    require_equal(gvi.load(tmp_path / "after").predict_y(X), expected)


def test_gradients_are_those_of_the_model():
    made = learned(model())
    X = tf.constant(3.0 + 2.0 * numbers(4, 6))
    length = made.model.kernel.lengthscales.unconstrained_variable
    for _ in range(3):
        made.predict_y(X)
    with tf.GradientTape() as tape:
        tape.watch(X)
        tape.watch(length)
        total = tf.reduce_sum(made.predict_y(X)[1])
    of_X, of_length = tape.gradient(total, [X, length])
    step = 1e-5 * np.eye(D)[0]
    difference = [np.sum(made.predict_y(X + sign * step)[1]) for sign in (1.0, -1.0)]
    assert_close(np.sum(of_X, axis=0)[0], (difference[0] - difference[1]) / 2e-5, ITERATIVE)
    values = []
    start = length.numpy()
    for sign in (1.0, -1.0):
        length.assign(start + sign * step)
        values.append(np.sum(made.predict_y(X)[1]))
    assert_close(of_length[0], (values[0] - values[1]) / 2e-5, ITERATIVE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weighted_sums_have_the_precision_of_their_parts(dtype, rng):
    weights, parts = (np.float64(0.3), 0.7), rng.normal(size=(2, 4, 3)).astype(dtype)
    found = weighted(weights, list(parts))
    assert found.dtype == dtype
    assert_close(found, np.average(parts, axis=0, weights=weights))
