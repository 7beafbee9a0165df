"""What the procedure returns: a model that takes and returns original units."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.likelihoods import Likelihood
from scipy import stats

from .. import saving
from .._core import labels
from ..calibration.conformal_prediction import Conformal, require_real_outputs
from ..calibration.conformal_sets import ConformalSets
from ..models import GVI
from ..prediction.class_probabilities import class_probabilities
from ..regulariser.fit import Regulariser
from .scaling import Scaling
from .split import column

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Learned:
    """A fitted, tempered model that takes and returns original units."""

    model: GVI
    """The model, in standard units."""
    regulariser: Regulariser
    """The regulariser, in standard units, conditioned on the rows that the model was fitted to."""
    inputs: Scaling
    """Standard units of X."""
    outputs: Scaling
    """Standard units of Y."""
    history: dict[str, list[float]]
    """Of each epoch of training Q: the loss, its terms, and the held-out density."""
    calibration: Conformal | ConformalSets | None = None
    """Intervals, or sets of classes, with a guarantee, if data were set aside for them; in standard
    units."""
    classes_: Array | None = None
    """The classes, sorted, if Y are labels; columns of probabilities are in their order."""

    @property
    def likelihood(self) -> Likelihood:
        """p(y | f), in standard units."""
        return self.model.likelihood

    def predict(self, X: TensorType) -> Array:
        """Return the most probable label at X, [N]; of real-valued Y its mean, [N, J]."""
        if self.classes_ is None:
            return np.asarray(self.predict_y(X)[0])
        return np.asarray(self.classes_[np.argmax(self.predict_proba(X), axis=1)])

    def predict_f(self, X: TensorType, full_cov: bool = False) -> MeanAndVariance:
        """Return mean and variance of f at X, [N, J] each (covariance [J, N, N])."""
        mean, variance = self.model.predict_f(self.inputs.standard(X), full_cov=full_cov)
        scale = self.outputs.scale[:, None, None] if full_cov else self.outputs.scale
        return self.outputs.original(mean), variance * scale**2

    def predict_y(self, X: TensorType) -> MeanAndVariance:
        """Return mean and variance of y at X: [N, J] each."""
        mean, variance = self.model.predict_y(self.inputs.standard(X))
        return self.outputs.original(mean), variance * self.outputs.scale**2

    def predict_log_density(self, data: RegressionData) -> tf.Tensor:
        """Return the log density of each observed y: [N]."""
        X, Y = data
        if self.classes_ is not None:
            Y = labels.encoded("Y", Y, self.classes_)
        X, Y = self.inputs.standard(X), self.outputs.standard(column(Y))
        return self.model.predict_log_density((X, Y)) - float(np.sum(np.log(self.outputs.scale)))

    def predict_f_samples(self, X: TensorType, num_samples: int) -> tf.Tensor:
        """Return joint samples of f at X: [num_samples, N, J]."""
        samples = self.model.predict_f_samples(self.inputs.standard(X), num_samples)
        return self.outputs.original(samples)

    def predict_proba(self, X: TensorType) -> Array:
        """Return the probabilities of the classes at X, where Y are labels: [N, J]."""
        return class_probabilities(self.model, self.inputs.standard(X))

    def predict_set(
        self, X: TensorType, coverage: float = 0.95, *, adaptive: bool = False
    ) -> Array:
        """Return which classes are in a set that holds the label with the given probability.

        [N, J], booleans. They need `calibration_fraction`. Adaptive sets are larger, and their
        coverage varies less between easy and hard rows.
        """
        if not isinstance(self.calibration, ConformalSets):
            raise ValueError(
                "predict_set: there are no sets of classes. Learn from labels, with a likelihood "
                "of classes and a calibration_fraction such as 0.2."
            )
        X = self.inputs.standard(X)
        return self.calibration.predict_set(X, coverage, adaptive=adaptive)

    def predict_interval(
        self, X: TensorType, coverage: float = 0.95
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the ends of an interval that holds y with the given probability: [N, J] each.

        With calibration data it has split conformal prediction's guarantee; without, it is the
        central interval of the predictive density.
        """
        require_real_outputs(self.model)
        if isinstance(self.calibration, Conformal):
            ends = self.calibration.predict_interval(self.inputs.standard(X), coverage)
            lower, upper = (self.outputs.original(end) for end in ends)
            return lower, upper
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage is {coverage}; it must lie between 0 and 1, as 0.95 does.")
        mean, variance = self.predict_y(X)
        half = stats.norm.ppf(0.5 + 0.5 * coverage) * tf.sqrt(variance)
        return mean - half, mean + half

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything to a folder, without pickle, for `gpflow_gvi.load`."""
        saving.save(self, folder, overwrite=overwrite)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, custom_objects: Mapping[str, Any] | None = None
    ) -> Learned:
        """Read what `save` wrote."""
        loaded = saving.load(folder, custom_objects=custom_objects)
        if not isinstance(loaded, cls):
            raise TypeError(f"folder {folder} holds a {type(loaded).__name__}, not a Learned.")
        return loaded
