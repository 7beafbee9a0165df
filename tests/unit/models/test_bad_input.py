"""Bad data and bad arguments are refused, with their name, their value and the remedy."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest

import gpflow_gvi as gvi

N, M = 8, 3
_RNG = np.random.default_rng(11)
X = _RNG.normal(size=(N, 2))
Y = _RNG.normal(size=(N, 1))
Z = _RNG.normal(size=(M, 2))


def prior() -> gvi.GaussianProcess:
    return gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.SquaredExponential())


def tempered(P: gvi.GaussianProcess, J: int = 1) -> gvi.GaussianProcess:
    """Return a Q with an Inducing mean, and with a covariance whose width is one parameter."""
    covariance = gvi.covariances.CholeskySVGP(P.kernel, Z, num_latent_gps=J)
    mean = gvi.mean_functions.Inducing(P.kernel, Z, num_latent_gps=J)
    return gvi.GaussianProcess(mean, gvi.covariances.Tempered(covariance, 1.0))


def make(*, J: int = 1, **options: Any) -> gvi.models.GVI:
    P = prior()
    arguments = {
        "regulariser": P,
        "variational": tempered(P, J),
        "likelihood": gpflow.likelihoods.Gaussian(),
        "divergence": gvi.divergences.ProjectedRenyi(2.0),
        "num_data": N,
        **options,
    }
    return gvi.models.GVI(**arguments)


def spoilt(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array[4, 0] = array[6, 0] = value
    return array


DATA: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "NaN in X": (spoilt(X, np.nan), Y, ValueError, "X has NaN .* 2 of 8 rows .*row 4.*Drop"),
    "infinite Y": (X, spoilt(Y, -np.inf), ValueError, "Y has .*infinite .*2 of 8 rows.*Drop"),
    "lengths": (X, Y[:5], ValueError, "X has 8 rows and Y has 5; they must be the same"),
    "rank of X": (X[:, 0], Y, ValueError, r"X has shape \(8,\).*rank 2.*X\[:, None\]"),
    "rank of Y": (X, Y[0, 0], ValueError, r"Y has shape \(\).*rank 2.*Y\[:, None\]"),
    "text": (X, Y.astype(str), TypeError, r"Y has dtype <U.*astype\('float64'\)"),
}


@pytest.mark.parametrize("fault", DATA)
def test_data_are_validated_when_the_closure_is_made(fault: str) -> None:
    bad_X, bad_Y, kind, message = DATA[fault]
    with pytest.raises(kind, match=message):
        make().training_loss_closure((bad_X, bad_Y))


def test_columns_of_y_must_be_those_of_q() -> None:
    model = make(J=1)
    two = np.hstack([Y, Y])
    with pytest.raises(ValueError, match=r"Y has 2 columns, but Q has 1.*num_latent_gps=2"):
        model.training_loss((X, two))
    # The same when the step is traced: the message is of Python, not of a graph.
    with pytest.raises(ValueError, match=r"Y has 2 columns, but Q has 1.*num_latent_gps=2"):
        model.training_loss_closure((X, two))()


def disagreeing() -> gvi.GaussianProcess:
    P = prior()
    mean = gvi.mean_functions.Inducing(P.kernel, Z, num_latent_gps=2)
    covariance = gvi.covariances.CholeskySVGP(P.kernel, Z, num_latent_gps=3)
    return gvi.GaussianProcess(mean, covariance)


def three_outputs() -> gvi.GaussianProcess:
    shared = gpflow.kernels.SharedIndependent(gpflow.kernels.SquaredExponential(), 3)
    return gvi.GaussianProcess(gpflow.functions.Zero(3), shared)


ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "num_data=None": ({"num_data": None}, ValueError, r"num_data is None.*num_data=len\(X\)"),
    "num_data=0": ({"num_data": 0}, ValueError, "num_data is 0; it must be positive"),
    "num_data=8.5": ({"num_data": 8.5}, ValueError, r"num_data is 8.5; .* whole number"),
    "num_data=list": ({"num_data": [8]}, ValueError, r"num_data is \[8\]; .* one real number"),
    "several weights": (
        {"divergence_weight": np.ones(2)},
        ValueError,
        r"divergence_weight is array.*; it must be one real number",
    ),
    "divergence_weight<0": (
        {"divergence_weight": -0.5},
        ValueError,
        "divergence_weight is -0.5; it must be zero or positive",
    ),
    "outputs of the likelihood": (
        {"likelihood": gpflow.likelihoods.MultiClass(3), "J": 2},
        ValueError,
        "likelihood MultiClass is for 3 .*Q has 2.*num_latent_gps=3",
    ),
    "mean and kernel": (
        {"variational": disagreeing()},
        ValueError,
        "mean_function has 2 outputs and kernel has 3; they must be",
    ),
    "outputs of P": (
        {"regulariser": three_outputs(), "J": 2},
        ValueError,
        "regulariser has 3 outputs and variational has 2; they must be",
    ),
    "type of regulariser": (
        {"regulariser": gpflow.kernels.Matern32()},
        TypeError,
        "regulariser is .*Matern32.*; it must be a GaussianProcess",
    ),
    "type of variational": (
        {"variational": None},
        TypeError,
        "variational is None; it must be a GaussianProcess",
    ),
    "type of likelihood": (
        {"likelihood": 0.1},
        TypeError,
        "likelihood is 0.1; it must be a Likelihood",
    ),
    "Ordinal of GPflow": (
        {"likelihood": gpflow.likelihoods.Ordinal(np.array([0.0, 1.0]))},
        TypeError,
        r"likelihood is GPflow's Ordinal, which is NaN .*gpflow_gvi.likelihoods.Ordinal",
    ),
    "class instead of divergence": (
        {"divergence": gvi.divergences.ProjectedKL},
        TypeError,
        "divergence is .*ProjectedKL.*; it must be a Divergence",
    ),
    "type of loss": ({"loss": "log"}, TypeError, "loss is 'log'; it must be a Loss"),
    "InducingKL of another Q": (
        {"divergence": gvi.divergences.InducingKL()},
        TypeError,
        "infinite unless .*Tempered.*Take GaussianWasserstein",
    ),
}


@pytest.mark.parametrize("fault", ARGUMENTS)
def test_arguments_are_looked_at_when_the_model_is_made(fault: str) -> None:
    options, kind, message = ARGUMENTS[fault]
    with pytest.raises(kind, match=f"(?s){message}"):
        make(**options)
