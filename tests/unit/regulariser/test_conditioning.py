"""P conditioned on rows in blocks: as on all of them at once."""

from __future__ import annotations

import functools

import gpflow
import numpy as np
import pytest

from gpflow_gvi import GaussianProcess
from gpflow_gvi._core import row_blocks
from gpflow_gvi.covariances import CholeskySVGP
from gpflow_gvi.mean_functions import Inducing
from gpflow_gvi.regulariser.conditioning import conditioned, predictions
from tests import catalogue
from tests.references import jitter_of_posteriors
from tests.tolerances import assert_close

N, M, J = 50, 7, 2


@pytest.mark.parametrize("sharing", ["single", "separate"])
@pytest.mark.parametrize("noise", ["one", "of outputs", "of rows"])
def test_blocks_are_all_rows(monkeypatch, rng, sharing, noise):
    monkeypatch.setattr(row_blocks, "slices", functools.partial(row_blocks.slices, size=20))
    X, Y = rng.normal(size=(N, 2)), rng.normal(size=(N, J))
    of_rows = {"one": 0.2 * np.ones((N, 1)), "of outputs": np.tile([0.2, 0.7], (N, 1))}
    variance = of_rows.get(noise, rng.uniform(0.1, 1.0, size=(N, J)))  # [N, 1] or [N, J]
    kernel = catalogue.kernels(J)[sharing]
    prior = GaussianProcess(gpflow.functions.Constant(np.full(J, 0.3)), kernel)
    parts = [(slice(0, 13)), slice(13, 40), slice(40, N)]
    blocks = [(X[p], Y[p], variance[p] if noise == "of rows" else variance[0]) for p in parts]
    P = conditioned(prior, X[:M], blocks)
    with jitter_of_posteriors():
        mean = Inducing.from_data(
            kernel, X[:M], (X, Y), variance, mean_function=prior.mean_function
        )
        covariance = CholeskySVGP.from_data(kernel, X[:M], X, variance, num_latent_gps=J)
    assert_close(P.mean_function.q_mu, mean.q_mu)
    assert_close(P.kernel.q_sqrt, covariance.q_sqrt)


@pytest.mark.parametrize("sharing", ["single", "shared", "separate"])
def test_numbers_alone_are_those_of_the_process(monkeypatch, rng, sharing):
    slices = row_blocks.slices
    monkeypatch.setattr(row_blocks, "slices", lambda num_rows, size=0: slices(num_rows, 20))
    X, Y, new = rng.normal(size=(N, 2)), rng.normal(size=(N, J)), rng.normal(size=(30, 2))
    noise = rng.uniform(0.1, 1.0, size=(N, J))
    prior = GaussianProcess(gpflow.functions.Zero(J), catalogue.kernels(J)[sharing])
    expected = conditioned(prior, X[:M], [(X, Y, noise)]).predict(new)
    for ours, part in zip(predictions(prior, X[:M], (X, Y, noise), new), expected, strict=True):
        assert_close(ours, part)
