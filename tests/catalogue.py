"""Every divergence, loss, covariance and context of the package, ready to be built.

Tests walk these lists, and `tests/unit/test_catalogue.py` fails where a class of the package is in
none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import gpflow
import numpy as np
import pytest
from _pytest.mark import ParameterSet

import gpflow_gvi as gvi
from tests.designs import each_value

PROJECTED: dict[str, Callable[[], gvi.divergences.ProjectedDivergence]] = {
    "KL": gvi.divergences.ProjectedKL,
    "ReverseKL": gvi.divergences.ProjectedReverseKL,
    "Renyi(0.3)": lambda: gvi.divergences.ProjectedRenyi(0.3),
    "Renyi(1)": lambda: gvi.divergences.ProjectedRenyi(1.0),
    "Renyi(2)": lambda: gvi.divergences.ProjectedRenyi(2.0),
    "Bhattacharyya": gvi.divergences.ProjectedBhattacharyya,
    "Hellinger": gvi.divergences.ProjectedHellinger,
    "Wasserstein": gvi.divergences.ProjectedWasserstein,
    "SquaredDifference": gvi.divergences.ProjectedSquaredDifference,
}

DIVERGENCES: dict[str, Callable[[], gvi.divergences.Divergence]] = {
    **PROJECTED,
    "GaussianWasserstein(exact)": lambda: gvi.divergences.GaussianWasserstein("exact"),
    "GaussianWasserstein(low_rank)": lambda: gvi.divergences.GaussianWasserstein("low_rank"),
    "GaussianWasserstein(marginal)": lambda: gvi.divergences.GaussianWasserstein("marginal"),
    "RegularisedKL": lambda: gvi.divergences.RegularisedKL(0.05),
    "InducingKL": gvi.divergences.InducingKL,
}

LOSSES: dict[str, Callable[[], gvi.losses.Loss]] = {
    "Log": gvi.losses.LogLoss,
    "PredictiveLog": gvi.losses.PredictiveLogLoss,
    "Beta": lambda: gvi.losses.BetaLoss(1.3),
    "Gamma": lambda: gvi.losses.GammaLoss(1.4),
}

COVARIANCES: dict[str, Callable[..., gvi.covariances.Covariance]] = {
    "CholeskySVGP": gvi.covariances.CholeskySVGP,
    "CholeskySVGP(unwhitened)": lambda k, Z, **options: gvi.covariances.CholeskySVGP(
        k, Z, whiten=False, **options
    ),
    "DiagonalSVGP": gvi.covariances.DiagonalSVGP,
    "KernelisedSVGP": gvi.covariances.KernelisedSVGP,
    "SparsePosterior": gvi.covariances.SparsePosterior,
    "FixedSparsePosterior": gvi.covariances.FixedSparsePosterior,
    "Tempered": lambda k, Z, **options: gvi.covariances.Tempered(
        gvi.covariances.CholeskySVGP(k, Z, **options), 0.7
    ),
}

SOME_COVARIANCES = ("CholeskySVGP(unwhitened)", "SparsePosterior", "Tempered")
"""One of each structure: with a Σ, with a kernel of its own, and of another covariance.

The formulas of all are tested by `tests/unit/covariances/test_formulas.py`.
"""


def covariances_in_turn(
    *others: Iterable[Any], quick: Collection[str] = SOME_COVARIANCES
) -> list[ParameterSet]:
    """Cases of every covariance, each with the next of other values; all but `quick` are slow."""
    names = sorted(COVARIANCES, key=lambda name: name not in quick)
    return [
        pytest.param(*case, marks=() if case[0] in quick else pytest.mark.slow)
        for case in each_value(names, *others)
    ]


CONTEXTS: dict[str, Callable[..., gvi.contexts.Context]] = {
    "training inputs": gvi.contexts.TrainingInputs,
    "box": lambda num_points=5, **options: gvi.contexts.UniformBox(
        [-1.0, 0.5], [2.0, 3.0], num_points, **options
    ),
    "noise": lambda num_points=5, **options: gvi.contexts.GaussianNoise(0.3, num_points, **options),
    "inputs": lambda num_points=5, **options: gvi.contexts.Inputs(
        np.linspace(-1.0, 3.0, 14).reshape(7, 2), num_points, **options
    ),
    "sum": lambda: gvi.contexts.TrainingInputs() + gvi.contexts.Inputs([[0.3, 2.0]]),
}
"""Where a divergence is evaluated; inputs have two columns."""

FINITE_KL = ("CholeskySVGP", "CholeskySVGP(unwhitened)", "DiagonalSVGP")
"""The covariances with which `InducingKL` is finite."""


def kernels(J: int) -> dict[str, gpflow.kernels.Kernel]:
    """The kernels of independent outputs, by how the J outputs share them."""

    def single(i: int = 0) -> gpflow.kernels.Kernel:
        return gpflow.kernels.SquaredExponential(variance=1.3 + 0.4 * i, lengthscales=0.8 + 0.2 * i)

    if J == 1:
        return {"single": single()}
    return {
        "single": single(),
        "shared": gpflow.kernels.SharedIndependent(single(), J),
        "separate": gpflow.kernels.SeparateIndependent([single(i) for i in range(J)]),
    }


def inducing_points(Z: Any) -> gpflow.inducing_variables.InducingPoints:
    return gpflow.inducing_variables.InducingPoints(np.asarray(Z))
