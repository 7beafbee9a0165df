"""The classes of which what was learned is made, for `save` and `load`."""

from __future__ import annotations

from .._core.network_graph import Part
from .._core.progress import Record, Stage
from ..regulariser.fit import Judged, Regulariser
from .around_network.network_rows import Inputs, NetworkInputs
from .around_network.reach import Classes
from .class_predictors import LogProbabilities
from .learned import Learned
from .noise import VaryingNoise
from .outliers import Outliers
from .pooled import Pooled
from .predictors import Fitted, InOriginalUnits
from .rows.log_scale import LogScale
from .rows.scaling import Scaling

SAVED: tuple[type, ...] = (
    Classes,
    Fitted,
    InOriginalUnits,
    Inputs,
    Judged,
    Learned,
    LogProbabilities,
    LogScale,
    NetworkInputs,
    Outliers,
    Part,
    Pooled,
    Record,
    Regulariser,
    Scaling,
    Stage,
    VaryingNoise,
)
