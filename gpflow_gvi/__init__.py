"""Generalised variational inference for Gaussian processes, on GPflow.

The regulariser P and the variational Q are both Gaussian processes, a mean function and a kernel;
a divergence compares them, a loss measures the misfit of Q to the data, and a model is their sum.

The modules are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._core import lazy, plugins, quiet

if TYPE_CHECKING:
    from . import (
        covariances,
        divergences,
        errors,
        kernels,
        likelihoods,
        losses,
        mean_functions,
        metrics,
        models,
        networks,
        plots,
    )
    from .calibration import conformal, temper
    from .divergences import contexts
    from .gaussian_process import GaussianProcess
    from .integrations import bayesian_optimisation
    from .integrations import gpflux as layers
    from .integrations import sklearn_scorers as scorers  # noqa: F401
    from .integrations.saved_model import export
    from .integrations.sklearn import GVIClassifier as GVIClassifier
    from .integrations.sklearn import GVIRegressor as GVIRegressor
    from .learning import ParquetRows, learn, recipe
    from .prediction import calculus
    from .prediction import class_probabilities as classification
    from .prediction import samples as sampling
    from .regulariser import evidence, fit_regulariser
    from .regulariser import inducing_points as inducing
    from .saving import load, save

__all__ = [
    "GaussianProcess",
    "ParquetRows",
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
    "likelihoods",
    "load",
    "losses",
    "mean_functions",
    "metrics",
    "models",
    "networks",
    "plots",
    "recipe",
    "sampling",
    "save",
    "temper",
]

__version__ = "0.1.0"

_MODULES = (
    "covariances divergences errors kernels likelihoods losses mean_functions metrics models "
    "networks plots"
)
# The module of each name, or module:attribute. Names outside of __all__ need an extra, which
# `import *` must not.
_LOCATIONS = {name: name for name in _MODULES.split()} | {
    "GVIClassifier": "integrations.sklearn:GVIClassifier",
    "GVIRegressor": "integrations.sklearn:GVIRegressor",
    "GaussianProcess": "gaussian_process:GaussianProcess",
    "ParquetRows": "learning:ParquetRows",
    "bayesian_optimisation": "integrations.bayesian_optimisation",
    "calculus": "prediction.calculus",
    "classification": "prediction.class_probabilities",
    "conformal": "calibration:conformal",
    "contexts": "divergences.contexts",
    "evidence": "regulariser.evidence",
    "export": "integrations.saved_model:export",
    "fit_regulariser": "regulariser:fit_regulariser",
    "inducing": "regulariser.inducing_points",
    "layers": "integrations.gpflux",
    "learn": "learning:learn",
    "load": "saving:load",
    "recipe": "learning.recipe",
    "sampling": "prediction.samples",
    "save": "saving:save",
    "scorers": "integrations.sklearn_scorers",
    "temper": "calibration:temper",
}

quiet.quiet_from_now_on()

# What `plot`, `save` and `load` of layers below reach up to.
plugins.register("plots", f"{__name__}.plots")
plugins.register("saving", f"{__name__}.saving")
plugins.register("saved tables", f"{__name__}.tables.model")

__getattr__, __dir__ = lazy.attach(__name__, _LOCATIONS, __all__)
lazy.attach_aliases(__name__, _LOCATIONS)
