"""Q by the names of its parts, in one call."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

import gpflow_gvi as gvi
from gpflow_gvi import covariances as r
from tests.tolerances import assert_close

DIVERGENCE = gvi.divergences.ProjectedBhattacharyya


def _rows():
    rng = np.random.default_rng(5)
    X = rng.uniform(-2.0, 2.0, size=(80, 1))
    return X, np.sin(3.0 * X) + 0.2 * rng.normal(size=X.shape)


def _learned(**options):
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
    return gvi.learn(_rows(), kernel=kernel, num_inducing=10, epochs=1, **options)


NAMES = {
    "cholesky": r.CholeskySVGP,
    "diagonal": r.DiagonalSVGP,
    "kernelised": r.KernelisedSVGP,
    "sparse_posterior": r.SparsePosterior,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_covariance_is_built_as_its_class_is(name):
    learned = _learned(covariance=name, mean="inducing")
    of_class = (
        _learned(covariance=NAMES[name].from_data, mean="inducing")
        if name
        in (
            "cholesky",
            "diagonal",
        )
        else _learned(covariance=NAMES[name], mean="inducing")
    )
    kernel = learned.model.variational.kernel
    assert type(getattr(kernel, "kernel", kernel)) is NAMES[name]
    new = np.linspace(-2.0, 2.0, 9)[:, None]
    for ours, theirs in zip(learned.predict_y(new), of_class.predict_y(new), strict=True):
        assert_close(ours, theirs)


def _network():
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    layers = [keras.Input((1,)), dense(20, "tanh"), dense(20, "tanh"), dense(1)]
    return keras.Sequential(layers)


def test_a_network_alone_starts_where_the_sparse_posterior_is():
    learned = _learned(mean=_network(), covariance="diagonal", divergence=DIVERGENCE())
    assert isinstance(learned.model.variational.mean_function, gvi.mean_functions.Network)
    new = np.linspace(-1.8, 1.8, 50)[:, None]
    truth = np.sin(3.0 * new)
    of_network = learned.predict_f(new)[0] - truth
    of_process = learned.regulariser.posterior.mean(learned.inputs.standard(new))
    of_process = learned.outputs.original(of_process) - truth
    rmse = [np.sqrt(np.mean(np.square(each))) for each in (of_network, of_process)]
    assert rmse[0] < rmse[1] + 0.1  # half the noise


@pytest.mark.parametrize("name", ["prior", "posterior"])
def test_q_is_held_to_the_prior_or_to_the_posterior(name):
    learned = _learned(regulariser=name)
    X = learned.inputs.standard(np.linspace(-1.0, 1.0, 5)[:, None])
    expected = getattr(learned.regulariser, name).predict(X)
    for ours, theirs in zip(learned.model.regulariser.predict(X), expected, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mean": "mode"}, ValueError, "mean"),
        ({"covariance": "full"}, ValueError, "covariance"),
        ({"covariance": 3}, TypeError, "covariance is a int"),
        ({"regulariser": "both"}, ValueError, "regulariser"),
        ({"mean": "inducing", "network": np.sin}, ValueError, "mean= is given"),
        (
            {"covariance": "diagonal", "divergence": gvi.divergences.InducingKL()},
            ValueError,
            "is not for divergence=InducingKL",
        ),
    ],
)
def test_what_cannot_be_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        _learned(**options)
