"""Probabilities and entropies of classifiers against quadrature and large samples."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.special
import scipy.stats
from scipy import integrate

from gpflow_gvi.prediction.class_probabilities import (
    Entropies,
    class_probabilities,
    entropies,
    in_order_of,
)
from tests.models import data, make
from tests.tolerances import ROUNDING, assert_close, assert_estimates

X, _ = data()
X = X[:12]

LIKELIHOODS = {
    "Bernoulli": (1, gpflow.likelihoods.Bernoulli),
    "MultiClass": (3, lambda: gpflow.likelihoods.MultiClass(3)),
    "Softmax": (3, lambda: gpflow.likelihoods.Softmax(3)),
}


def classifier(name):
    J, likelihood = LIKELIHOODS[name]
    return make(J, likelihood())


S = 2**16


def sampled(model):
    """Return p(y|f) for S independent draws of f at each x: [S, N, J]."""
    mean, variance = (np.asarray(part) for part in model.predict_f(X))
    f = np.random.default_rng(3).normal(mean, np.sqrt(variance), size=(S, *mean.shape))
    if isinstance(model.likelihood, gpflow.likelihoods.Bernoulli):
        p = scipy.stats.norm.cdf(f)
        return np.concatenate([1.0 - p, p], axis=-1)
    if isinstance(model.likelihood, gpflow.likelihoods.Softmax):
        return scipy.special.softmax(f, axis=-1)
    hit = np.eye(3)[f.argmax(axis=-1)]
    return np.where(hit, 1.0 - 1e-3, 0.5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_probabilities_and_entropies_are_those_of_many_samples(name):
    model = classifier(name)
    p = sampled(model)
    probabilities = class_probabilities(model, X, num_samples=S)
    assert_close(probabilities.sum(axis=1), 1.0)
    # The total is H = E[-Σ p log E p], so that each of these is the mean of what a draw adds.
    total = -np.sum(p * np.log(p.mean(axis=0)), axis=-1)
    aleatoric = scipy.special.entr(p).sum(axis=-1)
    for found, of_draws in zip(
        (probabilities, *entropies(model, X, num_samples=S)),
        (p, total, aleatoric, total - aleatoric),
        strict=True,
    ):
        error = of_draws.std(axis=0) / np.sqrt(S / 2) + ROUNDING.float64  # both are estimates
        assert_estimates(found, of_draws.mean(axis=0), error)


def test_bernoulli_by_quadrature():
    model = classifier("Bernoulli")
    mean, variance = (np.asarray(part)[0, 0] for part in model.predict_f(X))

    def integrand(f):
        p = scipy.stats.norm.cdf(f)
        density = scipy.stats.norm.pdf(f, mean, np.sqrt(variance))
        return scipy.special.entr([p, 1.0 - p]).sum() * density

    aleatoric, _ = integrate.quad(integrand, -12.0, 12.0)
    found = entropies(model, X[:1]).aleatoric[0]
    # Koksma's inequality: the entropy rises to log 2 and falls again over 512 even points.
    assert abs(found - aleatoric) < 2.0 * np.log(2.0) / 512


def test_a_row_is_predicted_by_itself():
    model = classifier("Softmax")
    together = class_probabilities(model, X)
    assert_close(class_probabilities(model, X[5:6]), together[5:6])


def test_under_robust_max_what_remains_is_the_noise_of_labels():
    epsilon = 1e-3
    expected = scipy.special.entr([1.0 - epsilon, epsilon / 2, epsilon / 2]).sum()
    assert_close(entropies(classifier("MultiClass"), X).aleatoric, expected)


def test_members_who_are_sure_and_disagree_are_all_epistemic():
    agree = np.tile([[[0.5, 0.5]]], (2, 1, 1))
    disagree = np.eye(2)[:, None, :]
    for members, aleatoric in ((agree, np.log(2.0)), (disagree, 0.0)):
        found = Entropies.of_members(members)
        assert_close(found.total, np.log(2.0))
        assert_close(found.aleatoric, aleatoric)
        assert_close(found.epistemic, np.log(2.0) - aleatoric)


@pytest.mark.parametrize("likelihood", [gpflow.likelihoods.Gaussian, gpflow.likelihoods.Bernoulli])
def test_other_likelihoods_have_no_classes(likelihood):
    with pytest.raises(TypeError, match="probabilities of classes need"):
        class_probabilities(make(2, likelihood()), X)


def test_bad_members():
    with pytest.raises(ValueError, match=r"probabilities has shape \(2, 2\)"):
        Entropies.of_members(np.eye(2))


def test_with_one_variance_the_probabilities_have_the_order_of_the_means(rng):
    """E softmax by a product rule of quadrature has it; samples that are nearly tied are sorted."""
    mean = rng.normal(size=(30, 3))
    x, w = np.polynomial.hermite_e.hermegauss(15)
    points = np.stack(np.meshgrid(x, x, x), axis=-1).reshape(-1, 3)
    weights = np.prod(np.stack(np.meshgrid(w, w, w), axis=-1).reshape(-1, 3), axis=-1)
    f = mean + 2.0 * points[:, None]
    exact = np.average(scipy.special.softmax(f, axis=-1), axis=0, weights=weights)
    np.testing.assert_array_equal(np.argsort(exact), np.argsort(mean))
    one, several = np.full((30, 3), 4.0), 4.0 + np.arange(3.0) + np.zeros((30, 3))
    np.testing.assert_array_equal(in_order_of(mean, one, exact), exact)
    mistaken = exact[:, ::-1]
    np.testing.assert_array_equal(in_order_of(mean, one, mistaken), exact)
    np.testing.assert_array_equal(in_order_of(mean, several, mistaken), mistaken)
