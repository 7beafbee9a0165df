"""The procedure from data in original units to a tempered, calibrated Gaussian process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core import lazy

if TYPE_CHECKING:
    from .around_network.network_rows import NetworkInputs as NetworkInputs
    from .learned import Learned as Learned
    from .one_call import learn as learn
    from .one_call import with_names as with_names
    from .predictions import Predictions as Predictions
    from .predictions import moments_of_mixture as moments_of_mixture
    from .procedure import Procedure as Procedure
    from .q_training import BatchTraining as BatchTraining
    from .q_training import CosineAdam as CosineAdam
    from .q_training import EarlyStopping as EarlyStopping
    from .q_training import FullBatchTraining as FullBatchTraining
    from .q_training import Hooks as Hooks
    from .q_training import Passes as Passes
    from .q_training import Schedule as Schedule
    from .q_training import Train as Train
    from .q_training import fit_by_squares as fit_by_squares
    from .row_facts import left_out_together as left_out_together
    from .rows.scaling import Scaling as Scaling
    from .rows.split import Split as Split
    from .rows.streams import ParquetRows as ParquetRows
    from .rows.targets import Units as Units
    from .saved import SAVED as SAVED
    from .settings import LBFGS as LBFGS
    from .settings import MAX_INDUCING as MAX_INDUCING
    from .settings import NUM_INDUCING as NUM_INDUCING
    from .settings import RECIPE as RECIPE
    from .settings import TOLERANCE as TOLERANCE
    from .settings import Effort as Effort
    from .settings import ModelSettings as ModelSettings
    from .settings import Noise as Noise
    from .settings import RegulariserSettings as RegulariserSettings
    from .settings import Settings as Settings
    from .settings import VariationalSettings as VariationalSettings
    from .start import InducingPlusNetwork as InducingPlusNetwork
    from .start import Start as Start
    from .start import TrainingData as TrainingData
    from .start import inducing_mean as inducing_mean

_MODULES = {
    "around_network.network_rows": "NetworkInputs",
    "learned": "Learned",
    "one_call": "learn with_names",
    "predictions": "Predictions moments_of_mixture",
    "procedure": "Procedure",
    "q_training": (
        "BatchTraining CosineAdam EarlyStopping FullBatchTraining Hooks Passes Schedule Train "
        "fit_by_squares"
    ),
    "row_facts": "left_out_together",
    "rows.scaling": "Scaling",
    "rows.split": "Split",
    "rows.streams": "ParquetRows",
    "rows.targets": "Units",
    "saved": "SAVED",
    "settings": (
        "LBFGS MAX_INDUCING NUM_INDUCING RECIPE TOLERANCE Effort ModelSettings Noise "
        "RegulariserSettings Settings VariationalSettings"
    ),
    "start": "InducingPlusNetwork Start TrainingData inducing_mean",
}
"""Names by the modules that they are in."""

_LOCATIONS = {name: f"{module}:{name}" for module, of in _MODULES.items() for name in of.split()}

__all__ = sorted(_LOCATIONS)

# The defaults in `settings` are read without TensorFlow.
__getattr__, __dir__ = lazy.attach(__name__, _LOCATIONS, __all__)
