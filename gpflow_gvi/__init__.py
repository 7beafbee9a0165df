"""Generalised variational inference for Gaussian processes, on GPflow.

The regulariser P and the variational Q are both Gaussian processes, a mean function and a kernel;
a divergence compares them, a loss meets the data, and a model joins the two.

The parts are loaded when they are first used, so that the command line answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        bayesian_optimisation,
        calculus,
        classification,
        contexts,
        covariances,
        divergences,
        errors,
        evidence,
        inducing,
        kernels,
        layers,
        losses,
        mean_functions,
        metrics,
        models,
        networks,
        recipe,
        sampling,
    )
    from .calibration import temper
    from .conformal_prediction import conformal
    from .estimators import GVIClassifier as GVIClassifier
    from .estimators import GVIRegressor as GVIRegressor
    from .gaussian_process import GaussianProcess
    from .learning import learn
    from .regulariser import fit_regulariser
    from .serialisation import load, save
    from .serving import export

__all__ = [
    "GaussianProcess",
    "bayesian_optimisation",
    "calculus",
    "classification",
    "conformal",
    "contexts",
    "covariances",
    "divergences",
    "errors",
    "evidence",
    "export",
    "fit_regulariser",
    "inducing",
    "kernels",
    "layers",
    "learn",
    "load",
    "losses",
    "mean_functions",
    "metrics",
    "models",
    "networks",
    "recipe",
    "sampling",
    "save",
    "temper",
]

__version__ = "0.1.0"

# What is not in __all__ needs an extra, which `import *` must not.
_HOMES = {
    "GVIClassifier": "estimators",
    "GVIRegressor": "estimators",
    "GaussianProcess": "gaussian_process",
    "conformal": "conformal_prediction",
    "export": "serving",
    "fit_regulariser": "regulariser",
    "learn": "learning",
    "load": "serialisation",
    "save": "serialisation",
    "temper": "calibration",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES})
