"""Export of a fitted model as a SavedModel, which predicts without this package.

It contains the graph of one prediction and the variables that it reads, and needs TensorFlow alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance
from gpflow.config import default_float

from .._core import files
from .._core.images import input_shape as declared_shape
from ..errors import short_repr
from ..learning import Learned, NetworkInputs, Predictions, Scaling, moments_of_mixture
from ..mean_functions.predictor import Predictor
from ..models import GVI
from ..prediction.class_probabilities import is_of_classes


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
    predict, shape = _prediction(model)
    shape = shape if input_shape is None else input_shape
    if shape is None:
        raise ValueError(
            "input_shape is None, and the model has neither inducing points nor networks that "
            "declare the shape of one input: pass input_shape=(D,)."
        )
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


def _prediction(
    model: GVI | Learned,
) -> tuple[Callable[[tf.Tensor], dict[str, tf.Tensor]], Sequence[int] | None]:
    """Return the predictions of a model or a mixture, as a graph, and the shape of one input."""
    units: Scaling | NetworkInputs
    if isinstance(model, Learned):
        units, models, weights = model.inputs, model.models, list(map(float, model.weights))
        parts = [Predictions.of(each.model, units, each.outputs) for each in model.parts]
        shape = units.input_shape
    elif isinstance(model, GVI):
        units = none = Scaling.none(np.zeros([1, 1], default_float()))
        models, weights, parts = (model,), [1.0], [Predictions(model, none, none, none)]
        shape = declared_shape(model.variational, model.regulariser)
    else:
        raise TypeError(
            f"model is {short_repr(model)}; it must be a GVI, GWI or PGVI, or the result of "
            "learn. To export conformal intervals, export their model."
        )
    for each in models:
        _require_graph(each)

    def predict(X: tf.Tensor) -> dict[str, tf.Tensor]:
        X = units.validated(X)
        of_f = [part.latent(X) for part in parts]

        def mixed(moments: str) -> MeanAndVariance:
            given = [getattr(part, moments)(*f) for part, f in zip(parts, of_f, strict=True)]
            return moments_of_mixture(weights, given)

        result = dict(zip(("f_mean", "f_variance"), mixed("f_given"), strict=True))
        if is_of_classes(models[0]):
            of_parts = [
                weight * part.probabilities_given(*f)[0]
                for weight, part, f in zip(weights, parts, of_f, strict=True)
            ]
            return {"probabilities": tf.add_n(of_parts), **result}
        return {**dict(zip(("mean", "variance"), mixed("y_given"), strict=True)), **result}

    return predict, shape


def _require_graph(model: GVI) -> None:
    """Raise for a model with predictors, which run in Python."""
    if any(isinstance(part, Predictor) for part in model.submodules):
        raise TypeError(
            "model has predictors in its mean or its noise, which run in Python; a SavedModel "
            "has graphs of TensorFlow alone. Write it by save, or learn without them: "
            'learn(data, predictor=None, noise="constant").'
        )
