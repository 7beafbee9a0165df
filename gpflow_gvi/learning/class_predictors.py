"""Classifiers as means of latent functions: their log probabilities, or log odds of two classes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from .predictors import Fitted
from .rows.scaling import Scaling, exactly_original

MIN_PROBABILITY = 1e-3
"""Smaller probabilities are taken to be this: trees give 0 to what they have not seen."""


@dataclasses.dataclass(frozen=True)
class LogProbabilities:
    """The values of latent functions by a classifier: log p_j - average of log p_j over classes.

    Under `Softmax` the classifier's probabilities are those of these values. With one latent
    function it is log p_1 - log p_0.

    :param model: with `predict_proba` in original units, as classifiers of scikit-learn have; or a
        function of rows that returns probabilities.
    :param classes: the classes, by which the columns of a model with `classes_` are known.
    :param num_latents: J, the number of classes, or 1.
    """

    model: Any
    inputs: Scaling
    classes: AnyNDArray
    num_latents: int

    def predict(self, X: AnyNDArray) -> AnyNDArray:
        """Return the values at X: [N, J]."""
        p = np.maximum(self._probabilities(exactly_original(self.inputs, X)), MIN_PROBABILITY)
        logs = np.log(p / p.sum(axis=1, keepdims=True))
        centred = logs - logs.mean(axis=1, keepdims=True)
        return (centred if self.num_latents > 1 else logs[:, 1:] - logs[:, :1]).astype(X.dtype)

    def _probabilities(self, rows: AnyNDArray) -> AnyNDArray:
        """Return the probabilities of all classes: [N, K]; a class that was not seen has none."""
        model = self.model.model if isinstance(self.model, Fitted) else self.model
        predict = getattr(model, "predict_proba", None)
        if predict is None and hasattr(model, "predict"):
            raise TypeError(
                f"predictor is a {type(model).__name__}, which has no method predict_proba. "
                "For labels give a classifier that has one, or a function that returns "
                "probabilities."
            )
        found = np.asarray(model(rows) if predict is None else predict(rows), dtype=float)
        if found.shape == (len(rows),) and len(self.classes) == 2:
            found = np.column_stack([1.0 - found, found])
        seen = np.asarray(getattr(model, "classes_", np.arange(len(self.classes))))
        if len(seen) == 1:  # of which scikit-learn's boosting returns two columns
            found = np.ones((len(rows), 1))
        # Clones are fitted to class indices, predictors fitted by the user to the user's labels.
        known = self.classes if np.isin(seen, self.classes).all() else np.arange(len(self.classes))
        columns = {label: j for j, label in enumerate(known.tolist())}
        if found.shape != (len(rows), len(seen)) or not set(seen.tolist()) <= set(columns):
            raise ValueError(
                f"predictor {type(model).__name__} returns probabilities of shape "
                f"{found.shape} of the classes {seen.tolist()}; there are {len(rows)} rows and the "
                f"classes {self.classes.tolist()}."
            )
        p = np.zeros((len(rows), len(self.classes)))
        p[:, [columns[label] for label in seen.tolist()]] = found
        return p
