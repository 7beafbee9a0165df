"""The procedure from data in original units to a tempered, calibrated Gaussian process."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .around_network.network_rows import NetworkInputs
    from .full_batch import FullBatchTraining, fit_by_squares
    from .hooks import Hooks
    from .learned import Learned
    from .one_call import learn
    from .predictions import Predictions, moments_of_mixture
    from .procedure import Procedure
    from .q_training import BatchTraining, CompiledModel, Train
    from .rows.scaling import Scaling
    from .rows.split import Split
    from .rows.targets import Units
    from .saved import SAVED_OBJECTS, SAVED_RECORDS
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
    "SAVED_OBJECTS",
    "SAVED_RECORDS",
    "TOLERANCE",
    "BatchTraining",
    "CompiledModel",
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
    "BatchTraining": "q_training",
    "CompiledModel": "q_training",
    "CosineAdam": "schedules",
    "EarlyStopping": "schedules",
    "Effort": "settings",
    "FullBatchTraining": "full_batch",
    "Hooks": "hooks",
    "InducingPlusNetwork": "start",
    "LBFGS": "settings",
    "Learned": "learned",
    "MAX_INDUCING": "settings",
    "ModelSettings": "settings",
    "NUM_INDUCING": "settings",
    "NetworkInputs": "around_network.network_rows",
    "Noise": "settings",
    "Passes": "schedules",
    "Predictions": "predictions",
    "Procedure": "procedure",
    "RECIPE": "settings",
    "RegulariserSettings": "settings",
    "SAVED_OBJECTS": "saved",
    "SAVED_RECORDS": "saved",
    "Scaling": "rows.scaling",
    "Schedule": "schedules",
    "Settings": "settings",
    "Split": "rows.split",
    "Start": "start",
    "TOLERANCE": "settings",
    "Train": "q_training",
    "TrainingData": "start",
    "Units": "rows.targets",
    "VariationalSettings": "settings",
    "fit_by_squares": "full_batch",
    "inducing_mean": "start",
    "learn": "one_call",
    "moments_of_mixture": "predictions",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    # Imported when used: the defaults in `settings` are read without TensorFlow.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
