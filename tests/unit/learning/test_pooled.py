"""Predictions of a mixture, against those of its parts."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.learning.pooled import Pooled, mixture
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

SHARES = (0.7, 0.3)


def _rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-3.0, 3.0, size=(40, 1))
    return X, 50.0 + 5.0 * np.sin(X) + rng.normal(size=(40, 1))


@pytest.fixture(scope="module")
def pool():
    parts = [
        gvi.learn(_rows(), kernel=kernel, num_inducing=10, noise="auto")
        for kernel in (gpflow.kernels.SquaredExponential(), gpflow.kernels.Linear())
    ]
    return mixture(tuple(parts), SHARES)


NEW = np.array([[-2.0], [0.5], [7.0]])


def _laws(pool):
    laws = []
    for part in pool.parts:
        mean, variance = (np.asarray(each) for each in part.predict_y(NEW))
        df = part.likelihood.df.numpy()
        laws.append(scipy.stats.t(df, mean, np.sqrt(variance * (df - 2.0) / df)))
    return laws


def test_moments_are_those_of_a_mixture(pool):
    laws = _laws(pool)
    mean = sum(w * law.mean() for w, law in zip(SHARES, laws, strict=True))
    square = sum(w * (law.var() + law.mean() ** 2) for w, law in zip(SHARES, laws, strict=True))
    for _ in range(3):  # the later calls are by graphs
        found = pool.predict_y(NEW)
        assert_close(found[0], mean)
        assert_close(found[1], square - mean**2, scale=np.max(square))
    assert pool.weights.tolist() == list(SHARES)
    assert [model is part.model for model, part in zip(pool.models, pool.parts, strict=True)]


def test_the_covariance_of_f_has_the_variance_of_f(pool):
    mean, covariance = pool.predict_f(NEW, full_cov=True)
    expected = pool.predict_f(NEW)
    assert_close(mean, expected[0])
    assert_close(np.diagonal(covariance[0]), expected[1][:, 0], ITERATIVE)
    assert np.linalg.eigvalsh(covariance[0]).min() > 0.0


def test_densities_and_quantiles_are_those_of_a_mixture(pool):
    laws, y = _laws(pool), np.array([[46.0], [52.0], [60.0]])
    density = sum(w * law.pdf(y) for w, law in zip(SHARES, laws, strict=True))
    assert_close(pool.predict_log_density((NEW, y)), np.log(density[:, 0]))
    for end, level in zip(pool.predict_interval(NEW, 0.8), (0.1, 0.9), strict=True):
        reached = sum(w * law.cdf(end) for w, law in zip(SHARES, laws, strict=True))
        assert_close(reached, np.full((3, 1), level))
        assert_close(pool.pit(NEW, end), reached)


@pytest.mark.draws
def test_samples_have_the_moments_of_the_mixture(pool):
    mean, variance = (np.asarray(each) for each in pool.predict_y(NEW))
    samples = pool.predict_y_samples(NEW, 20_000, seed=1)
    assert samples.shape == (20_000, 3, 1)
    assert_estimates(samples.mean(axis=0), mean, np.sqrt(variance / 20_000))
    np.testing.assert_array_equal(samples, pool.predict_y_samples(NEW, 20_000, seed=1))
    tf.random.set_seed(0)
    of_f, variance = (np.asarray(each) for each in pool.predict_f(NEW))
    functions = np.asarray(pool.predict_f_samples(NEW, 4_000))
    assert_estimates(functions.mean(axis=0), of_f, np.sqrt(variance / 4_000))


def test_samples_of_the_parts_are_independent(pool):
    """Those of two equal parts, too, which were there twice."""
    same = mixture((pool.parts[0],) * 2, (0.5, 0.5))
    samples = same.predict_y_samples(NEW[:1], 2_000, seed=1).ravel()
    assert len(np.unique(samples)) == 2_000


@pytest.mark.parametrize("seed", ["a", 2**31])
def test_seeds_of_samples(pool, seed):
    for model in (pool, pool.parts[0]):
        with pytest.raises(ValueError, match=rf"seed is {seed!r}; it must be a whole number"):
            model.predict_y_samples(NEW, 2, seed=seed)


def test_it_is_saved_loaded_and_exported(pool, tmp_path):
    pool.save(tmp_path / "saved")
    loaded = gvi.load(tmp_path / "saved")
    assert isinstance(loaded, Pooled)
    for ours, theirs in zip(loaded.predict_y(NEW), pool.predict_y(NEW), strict=True):
        assert_close(ours, theirs)
    gvi.export(pool, tmp_path / "exported")
    exported = tf.saved_model.load(tmp_path / "exported")
    found = exported.predict(NEW)
    for name, expected in zip(("mean", "variance"), pool.predict_y(NEW), strict=True):
        assert_close(found[name], expected, ITERATIVE)


def test_new_rows_are_for_all_parts(pool):
    X, Y = np.full((30, 1), 7.0), np.full((30, 1), 60.0)
    updated = pool.update(X, Y)
    assert updated.weights.tolist() == list(SHARES)
    before, after = (float(p.predict_f(NEW[2:])[0][0, 0]) for p in (pool, updated))
    assert abs(after - 60.0) < abs(before - 60.0)


def test_far_from_the_data_less_is_known(pool):
    inside, outside = pool.score_ood(np.array([[0.0], [1e3]]))
    assert outside > inside


@pytest.fixture(scope="module")
def pool_of_classes():
    rng = np.random.default_rng(4)
    X = rng.uniform(-3.0, 3.0, size=(60, 1))
    names = np.array(["a", "b", "c"])[np.clip(np.floor(np.ravel(X) / 2.0 + 1.5), 0, 2).astype(int)]
    parts = [
        gvi.learn((X, names), kernel=kernel, num_inducing=10)
        for kernel in (gpflow.kernels.SquaredExponential(), gpflow.kernels.Linear())
    ]
    return mixture(tuple(parts), SHARES)


@pytest.mark.slow
def test_probabilities_and_entropies_are_those_of_a_mixture(pool_of_classes):
    pool = pool_of_classes
    p = sum(w * part.predict_proba(NEW) for w, part in zip(SHARES, pool.parts, strict=True))
    assert_close(pool.predict_proba(NEW), p)
    np.testing.assert_array_equal(pool.predict(NEW), np.array(["a", "b", "c"])[p.argmax(axis=1)])
    mean, variance = pool.predict_y(NEW)
    assert_close(mean, p)
    assert_close(variance, p * (1.0 - p))
    labels = np.array(["b", "c", "a"])
    parts = [np.exp(np.asarray(part.predict_log_density((NEW, labels)))) for part in pool.parts]
    expected = np.log(np.average(parts, axis=0, weights=SHARES))
    assert_close(pool.predict_log_density((NEW, labels)), expected)
    entropies = pool.entropies(NEW)
    assert_close(entropies.total, scipy.stats.entropy(p, axis=1))
    aleatoric = [np.asarray(part.entropies(NEW).aleatoric) for part in pool.parts]
    assert_close(entropies.aleatoric, np.average(aleatoric, axis=0, weights=SHARES))
    assert_close(pool.score_ood(NEW), entropies.total - entropies.aleatoric, ITERATIVE)
    assert_close(pool.acquire(NEW, "bald"), entropies.epistemic)
    with pytest.raises(ValueError, match="which is for the minimum of y, but y is of classes"):
        pool.acquire(NEW, "expected_improvement")


@pytest.mark.slow
def test_a_mixture_of_probabilities_is_exported(pool_of_classes, tmp_path):
    gvi.export(pool_of_classes, tmp_path / "exported")
    exported = tf.saved_model.load(tmp_path / "exported")
    found = exported.predict(NEW)
    assert_close(found["probabilities"], pool_of_classes.predict_proba(NEW), ITERATIVE)
