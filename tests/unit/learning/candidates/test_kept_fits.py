"""Graphs serve all kernels and likelihoods of one structure."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow_probability as tfp
from gpflow.likelihoods import Bernoulli, Gaussian, Softmax

from gpflow_gvi.kernels import AdditiveSpectralMixture
from gpflow_gvi.learning.candidates.kept_fits import evidence_fit, fits, site_fit
from gpflow_gvi.regulariser.evidence import DataEvidence
from gpflow_gvi.regulariser.evidence_fit import Rows


def test_a_graph_serves_kernels_of_one_structure_and_data_of_any_size(rng):
    def kernel(scale, *, active=None):
        first = gpflow.kernels.SquaredExponential(1.0, [scale, scale], active_dims=active)
        # NumPy evaluates sums of other kernels.
        other = gpflow.kernels.RationalQuadratic(active_dims=active)
        return first + AdditiveSpectralMixture(*np.full((3, 1, 2), scale)) + other

    def fit(kernel, noise=0.1):
        return evidence_fit(kernel, Gaussian(noise), (0, 2, 1), DataEvidence())

    one = fit(kernel(1.0))
    assert fit(kernel(3.0)) is one
    assert fit(kernel(3.0), 7.0) is one
    others = [kernel(1.0, active=[1, 0]), gpflow.kernels.Matern52(), kernel(1.0) + kernel(1.0)]
    others += [kernel(1.0), kernel(1.0)]
    gpflow.set_trainable(others[-1].kernels[0].variance, False)
    others[-2].kernels[0].variance.prior = tfp.distributions.Gamma(np.float64(2), np.float64(1))
    assert len({id(fit(other)) for other in (kernel(1.0), *others)}) == 6
    for N in (5, 8, 11):
        rows = Rows.of(rng.normal(size=(N, 2)), rng.normal(size=(N, 1)))
        one.start(kernel(1.0), 0.2, None, 0.0)
        one.minimise(lambda loss, variables: loss(), rows.X[:3], rows, means=False, pattern=False)
    assert one.value.experimental_get_tracing_count() == 1


def test_a_kernel_that_is_not_known_has_a_graph_of_its_own():
    class Own(gpflow.kernels.SquaredExponential):
        """It may have more than its parameters."""

    fits = [evidence_fit(Own(), Gaussian(0.1), (0, 2, 1), DataEvidence()) for _ in range(2)]
    assert fits[0] is not fits[1]


def test_a_structure_is_traced_once():
    fits.clear()
    kernel, other = (gpflow.kernels.Matern32(lengthscales=scale) for scale in (1.0, 2.0))
    fit = site_fit(kernel, Bernoulli(), (0, 1, 1))
    assert site_fit(other, Bernoulli(), (0, 1, 1)) is fit
    assert site_fit(other, Softmax(2), (0, 1, 2)) is not fit
    assert site_fit(other, Bernoulli(), (1, 1, 1)) is not fit
    assert site_fit(gpflow.kernels.Matern52(), Bernoulli(), (0, 1, 1)) is not fit
