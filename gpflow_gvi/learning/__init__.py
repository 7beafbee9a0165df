"""The procedure from data in original units to a tempered, calibrated Gaussian process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core import lazy

if TYPE_CHECKING:
    from .around_network.network_rows import NetworkInputs
    from .full_batch import FullBatchTraining, fit_by_squares
    from .hooks import Hooks
    from .learned import Learned
    from .one_call import learn
    from .predictions import Predictions, moments_of_mixture
    from .procedure import Procedure
    from .q_training import BatchTraining, Train
    from .rows.parquet import ParquetRows
    from .rows.scaling import Scaling
    from .rows.split import Split
    from .rows.targets import Units
    from .saved import SAVED
    from .schedules import CosineAdam, EarlyStopping, Passes, Schedule
    from .settings import (
        LBFGS,
        MAX_INDUCING,
        NUM_INDUCING,
        RECIPE,
        TOLERANCE,
        Effort,
        ModelSettings,
        Noise,
        RegulariserSettings,
        Settings,
        VariationalSettings,
    )
    from .start import InducingPlusNetwork, Start, TrainingData, inducing_mean

__all__ = [
    "LBFGS",
    "MAX_INDUCING",
    "NUM_INDUCING",
    "RECIPE",
    "SAVED",
    "TOLERANCE",
    "BatchTraining",
    "CosineAdam",
    "EarlyStopping",
    "Effort",
    "FullBatchTraining",
    "Hooks",
    "InducingPlusNetwork",
    "Learned",
    "ModelSettings",
    "NetworkInputs",
    "Noise",
    "ParquetRows",
    "Passes",
    "Predictions",
    "Procedure",
    "RegulariserSettings",
    "Scaling",
    "Schedule",
    "Settings",
    "Split",
    "Start",
    "Train",
    "TrainingData",
    "Units",
    "VariationalSettings",
    "fit_by_squares",
    "inducing_mean",
    "learn",
    "moments_of_mixture",
]

_MODULES = {
    "around_network.network_rows": "NetworkInputs",
    "full_batch": "FullBatchTraining fit_by_squares",
    "hooks": "Hooks",
    "learned": "Learned",
    "one_call": "learn",
    "predictions": "Predictions moments_of_mixture",
    "procedure": "Procedure",
    "q_training": "BatchTraining Train",
    "rows.parquet": "ParquetRows",
    "rows.scaling": "Scaling",
    "rows.split": "Split",
    "rows.targets": "Units",
    "saved": "SAVED",
    "schedules": "CosineAdam EarlyStopping Passes Schedule",
    "settings": (
        "LBFGS MAX_INDUCING NUM_INDUCING RECIPE TOLERANCE Effort ModelSettings Noise "
        "RegulariserSettings Settings VariationalSettings"
    ),
    "start": "InducingPlusNetwork Start TrainingData inducing_mean",
}
"""Names by the modules that they are in."""

# The defaults in `settings` are read without TensorFlow.
__getattr__, __dir__ = lazy.attach(
    __name__,
    {name: f"{module}:{name}" for module, names in _MODULES.items() for name in names.split()},
    __all__,
)
