"""The classes of which what was learned is made, for `save` and `load`."""

from __future__ import annotations

from .._core.network_graph import Part
from .._core.progress import Record, Stage
from ..regulariser.fit import Judged, Regulariser
from .around_network.network_rows import Inputs, NetworkInputs, NetworkRows
from .class_predictors import LogProbabilities
from .learned import Learned
from .noise import VaryingNoise
from .outliers import Outliers
from .pooled import Pooled
from .predictors import Fitted, InOriginalUnits
from .rows.log_scale import LogScale
from .rows.scaling import Scaling

SAVED_OBJECTS: tuple[type, ...] = (
    Fitted,
    InOriginalUnits,
    Learned,
    LogProbabilities,
    LogScale,
    NetworkInputs,
    NetworkRows,
    Pooled,
    VaryingNoise,
)
"""They are built attribute by attribute."""

SAVED_RECORDS: tuple[type, ...] = (
    Inputs,
    Judged,
    Outliers,
    Part,
    Record,
    Regulariser,
    Scaling,
    Stage,
)
"""Named tuples."""
