"""Export of a fitted model as a SavedModel, which predicts without this package.

It contains the graph of one prediction and the variables that it reads, and needs TensorFlow alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.likelihoods import Bernoulli, Likelihood, Softmax
from gpflow.posteriors import PrecomputeCacheType

from .._core import files, labels
from .._core.errors import shown
from .._core.images import as_rows
from .._core.images import input_shape as declared_shape
from .._core.normal_points import normal_points
from ..learning.learned import Learned
from ..learning.network_rows import NetworkInputs
from ..learning.scaling import Scaling
from ..learning.targets import units_of_f, units_of_predictions
from ..mean_functions.predictor import Predictor
from ..models import GVI
from ..prediction.class_probabilities import in_order_of

NUM_SAMPLES = 512
"""The number of samples of f for the probabilities under `Softmax`, as in `class_probabilities`."""


def export(
    model: GVI | Learned,
    folder: str | os.PathLike[str],
    *,
    input_shape: Sequence[int] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model's predictions as a SavedModel, for TensorFlow alone to read.

    Its signature `predict` (and `serving_default`, the same) takes `X`, any number of rows in the
    units and the precision of the model, and returns, each [N, J],

    - `f_mean` and `f_variance` of the latent functions, and
    - `mean` and `variance` of y, or, where y is a class, the `probabilities` of the classes.

    Quantities that depend on inducing points alone are computed in advance. An interrupted export
    leaves no folder, as with `save`; the SavedModel cannot be trained, nor read by `load`.

    :param model: a `GVI`, `GWI` or `PGVI`, tempered or not, or the result of `learn`.
    :param folder: a new or an empty folder.
    :param input_shape: the shape of one input, as (D,) or (H, W, C), if the model does not declare
        it, or takes images as rows as well.
    :param overwrite: whether to replace an earlier export.
    """
    if isinstance(model, Learned):
        fitted, outputs = model.model, model.outputs
        units: Scaling | NetworkInputs = model.inputs
        shape: Sequence[int] | None = units.input_shape
    elif isinstance(model, GVI):
        fitted = model
        units = outputs = Scaling.none(np.zeros([1, 1], default_float()))
        shape = declared_shape(model.variational, model.regulariser)
    else:
        raise TypeError(
            f"model is {shown(model)}; it must be a GVI, GWI or PGVI, or the result of learn. To "
            "export conformal intervals, export their model."
        )
    _require_graph(fitted)
    shape = shape if input_shape is None else input_shape
    if shape is None:
        raise ValueError(
            "input_shape is None, and the model has neither inducing points nor networks that "
            "declare the shape of one input: pass input_shape=(D,)."
        )
    likelihood, parts = fitted.likelihood, (fitted.variational, fitted.regulariser)
    of_f = of_y = outputs
    if isinstance(model, Learned):
        of_f, of_y = units_of_f(likelihood, outputs), units_of_predictions(likelihood, outputs)
    posterior = fitted.posterior(PrecomputeCacheType.VARIABLE)

    def predict(X: tf.Tensor) -> dict[str, tf.Tensor]:
        X = as_rows(units.standard(X), *parts)
        f_mean, f_variance = posterior.predict_f(X)
        result = {
            "f_mean": of_f.original(f_mean),
            "f_variance": f_variance * of_f.scale**2,
        }
        if _is_of_classes(likelihood, f_mean.shape[-1]):
            return {"probabilities": _probabilities(likelihood, X, f_mean, f_variance), **result}
        mean, variance = likelihood.predict_mean_and_var(X, f_mean, f_variance)
        return {
            "mean": of_y.original(mean),
            "variance": variance * of_y.scale**2,
            **result,
        }

    signature = [tf.TensorSpec([None, *shape], default_float(), name="X")]
    module = tf.Module()
    module.predict = tf.function(predict, input_signature=signature, autograph=False)
    concrete = module.predict.get_concrete_function()
    # Save the variables and not the model, whose objects TensorFlow would otherwise track.
    module.state = concrete.variables
    with files.new_folder(folder, "saved_model.pb", overwrite=overwrite) as partial:
        tf.saved_model.save(
            module,
            os.fspath(partial),
            signatures={"predict": concrete, "serving_default": concrete},
        )


def _require_graph(model: GVI) -> None:
    """Raise for a model with predictors, which run in Python."""
    if any(isinstance(part, Predictor) for part in model.submodules):
        raise TypeError(
            "model has predictors in its mean or its noise, which run in Python; a SavedModel "
            "has graphs of TensorFlow alone. Write it by save, or learn without them: "
            'learn(data, predictor=None, noise="constant").'
        )


def _is_of_classes(likelihood: Likelihood, J: int) -> bool:
    """Return whether y is one of several classes, and not a label of each latent function."""
    is_multi_label = isinstance(likelihood, Bernoulli) and J != 1
    return labels.num_classes(likelihood) is not None and not is_multi_label


def _probabilities(
    likelihood: Likelihood, X: tf.Tensor, f_mean: tf.Tensor, f_variance: tf.Tensor
) -> tf.Tensor:
    """Return the probabilities of the classes, as `class_probabilities` does: [N, J]."""
    if isinstance(likelihood, Softmax):
        deviation = tf.sqrt(f_variance)
        epsilon = normal_points(NUM_SAMPLES, f_mean.shape[-1], f_mean.dtype.as_numpy_dtype)
        total = tf.foldl(  # sequentially, with memory O(NJ)
            tf.autograph.experimental.do_not_convert(
                lambda total, point: (
                    total + likelihood.conditional_mean(X, f_mean + deviation * point)
                )
            ),
            tf.constant(epsilon),
            initializer=tf.zeros_like(f_mean),
        )
        return in_order_of(f_mean, f_variance, total / NUM_SAMPLES)
    p, _ = likelihood.predict_mean_and_var(X, f_mean, f_variance)
    if p.shape[-1] == 1:
        p = tf.concat([1.0 - p, p], axis=-1)
    return p / tf.reduce_sum(p, axis=-1, keepdims=True)  # quadrature is not exact
