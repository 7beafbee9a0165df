"""Inputs of any shape as rows: what a network returns for them, and features of them.

A network that is not trained any further turns images, sequences or embeddings into rows
[h(x), φ(x)] once. The default kernel is on these features; what is learned of the rows predicts at
new inputs by way of the same network.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel, Linear, SquaredExponential, Sum
from gpflow.utilities import set_trainable
from scipy.spatial.distance import pdist

from ..._core import checks, feature_names, network_layers
from ..._core.data import as_floats, warn_of_unscaled_images
from ..._core.network_function import NetworkFunction, as_function, type_of_inputs
from ..._core.network_graph import Part, flat
from ..._core.row_blocks import by_blocks
from ...errors import short_repr
from ..rows.scaling import Scaling
from .network_data import side_by_side
from .reach import BLOCK, Classes, beyond

MIN_PROBABILITY = 1e-30
"""Probabilities that round to zero have a finite logarithm."""

MAX_ROWS_OF_DISTANCES = 1000
"""The median distance is that of not more rows than these."""


class Inputs(NamedTuple):
    """The inputs of a network."""

    shape: tuple[int, ...]
    """The shape of one input."""
    scales_pixels: bool
    """Whether pixels in bytes are divided by 255, as the network does not scale them itself."""
    parts: tuple[Part, ...] = ()
    """Several inputs, which are side by side in one row."""
    names: tuple[str, ...] | None = None
    """The names that the columns had, if any: a table of other ones is refused."""

    @classmethod
    def of(cls, network: Any, X: Any, parts: tuple[Part, ...] = ()) -> Inputs:
        """Return the inputs of a network; a shape that it does not fix is that of X, [N, D...]."""
        shape = as_function(network).input_shape or checks.array("X", X).shape[1:]
        taken = type_of_inputs(network)
        rescales = network_layers.has_layer(network, "Normalization", "Rescaling")
        rescales = rescales or (taken is not None and taken.is_integer)
        return cls(shape, len(shape) > 1 and not rescales, parts)

    def validated(self, name: str, X: Any) -> AnyNDArray:
        """Return inputs as an array of finite numbers, of the shape that the network takes."""
        feature_names.require(name, X, self.names)
        array = side_by_side(name, X, self.parts) if self.parts else checks.array(name, X)
        as_floats(name, array[:1])
        if array.ndim > 1 and not len(array):
            raise ValueError(f"{name} has shape {array.shape}: no rows. Pass one row or more.")
        if array.ndim < 2 or math.prod(array.shape[1:]) != math.prod(self.shape):
            raise ValueError(
                f"{name} has shape {array.shape}, but the network takes inputs of shape "
                f"{('N', *self.shape)}. Pass the same columns; resize images and pad sequences."
            )
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
            raise ValueError(
                f"{name} has NaN or infinite values in {len(bad)} of {len(array)} rows (the first "
                f"is row {bad[0]}). Drop those rows or fill them in."
            )
        if self.scales_pixels and array.dtype != np.uint8:
            warn_of_unscaled_images(name, array)
        return array

    def floats(self, X: AnyNDArray) -> AnyNDArray:
        """Return validated inputs as floats; pixels in bytes become numbers from 0 to 1."""
        in_bytes = self.scales_pixels and X.dtype == np.uint8
        return as_floats("X", X) / 255.0 if in_bytes else as_floats("X", X)


@dataclasses.dataclass(frozen=True)
class NetworkInputs:
    """x ↦ [h(x), φ(x)], the outputs of a network and features of x, and units of such rows."""

    parts: tuple[NetworkFunction, ...]
    """Functions whose columns, side by side, are outputs and features; the first has h."""
    inputs: Inputs
    num_outputs: int
    """J, the number of columns of h."""
    num_features: tuple[int, ...]
    """The number of columns of each group of features."""
    with_inputs: bool
    """Whether the inputs themselves are the last group of features."""
    of_probabilities: bool
    """Whether the network returns probabilities, of which h is the logarithm or the logit."""
    order: tuple[int, ...] = ()
    """The column of the network for each class, sorted; empty if they are in this order."""
    reach: Scaling | None = None
    """Units of inputs as rows, in which the training rows are at most at distance one from their
    mean; with them the last column of the rows is `beyond`."""
    last: int | None = None
    """Which group of features is what the last layer of the network receives, if any."""
    units: Scaling | None = None
    """Standard units of the rows, which the model takes."""
    classes: Classes | None = None
    """The classes by what the last layer receives, where the kernel is to be on its direction."""
    axes: AnyNDArray | None = None
    """Principal axes of inputs in units of `reach`, [D, Q]; with them principal components are
    columns behind the features."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.inputs.shape

    def standard(self, values: TensorType) -> tf.Tensor:
        """Return the rows of inputs [N, D...] in standard units: [N, J + F]."""
        return self.scaled(self(values))

    def scaled(self, rows: tf.Tensor) -> tf.Tensor:
        """Return rows in standard units, with the column w of `reach`: [N, J + F + 2].

        With classes, what the last layer receives becomes a unit vector, since but for a bias the
        most probable class depends on its direction alone (Sun, Ming, Zhu and Li 2022, "Out-of-
        distribution detection with deep nearest neighbors"); beyond the reach of the training rows
        it is longer, and like none of theirs. All are about the mean direction, as rounding would
        count where they hardly differ.
        """
        if self.units is None:
            return rows
        standard, s = self.units.scaled(rows)[:, :-1], rows[:, -1:]
        if self.classes is None:
            return tf.concat([standard, s, s], axis=1)
        at = self.columns_of_last
        direction = s * tf.math.l2_normalize(rows[:, at], axis=1) - self.classes.direction
        w = tf.sqrt(0.5 + 0.5 * tf.square(self.classes.distance(rows[:, at]))) * s
        return tf.concat([standard[:, : at.start], direction, standard[:, at.stop :], w, s], axis=1)

    @property
    def columns_of_last(self) -> slice:
        """The columns of what the last layer of the network receives."""
        start = self.num_outputs + sum(self.num_features[: self.last])
        return slice(start, start + self.num_features[self.last or 0])

    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return the rows of inputs [N, D...], in the units of the network: [N, J + F]."""
        if tf.is_symbolic_tensor(X):
            return self._rows(X)
        X = self.inputs.validated("X", X)
        (rows,) = by_blocks(lambda block: (self._rows(self.inputs.floats(block)),), X, size=BLOCK)
        bad = np.flatnonzero(~np.all(np.isfinite(rows), axis=1))
        if len(bad):
            raise ValueError(
                f"network returns NaN or infinite outputs or features for {len(bad)} of "
                f"{len(rows)} rows (the first is row {bad[0]}). Check its weights; where it was "
                "trained here, train it with a smaller learning_rate."
            )
        return tf.convert_to_tensor(rows)

    validated = __call__  # as a `Scaling` calls what its input becomes first

    def scaling(
        self, rows: AnyNDArray, of_outputs: Scaling, *, standardise: bool = True
    ) -> Scaling:
        """Return standard units of the rows: those of h and of each feature, one for all pixels.

        :param rows: those to train with, [N, J + F] or [N, J + F + 1].
        :param standardise: whether features are in standard units, or in their own.
        """
        J, end = self.num_outputs, self.num_outputs + sum(self.num_features)
        if np.all(np.ptp(rows[:, J:end], axis=0) == 0.0):
            raise ValueError(
                "features are the same for all rows, so that nothing tells inputs apart. Check "
                "the weights of the network, or name another layer, features=...."
            )
        units = Scaling.none(rows)
        units.shift[:J], units.scale[:J] = of_outputs.shift, of_outputs.scale
        if standardise:
            units.shift[J:end], units.scale[J:end] = Scaling.of(rows[:, J:end])[:2]
        if standardise and self.with_inputs:  # some pixels hardly vary: they are not to count most
            pixels = slice(end - self.num_features[-1], end)
            units.scale[pixels] = np.sqrt(np.mean(np.var(rows[:, pixels], axis=0))) or 1.0
        return units

    def _rows(self, X: TensorType) -> tf.Tensor:
        X = tf.cast(X, default_float())
        first, *others = (part(X) for part in self.parts)
        h, features = first[:, : self.num_outputs], first[:, self.num_outputs :]
        h = logits(h) if self.of_probabilities else h
        if self.order:  # a single logit is that of the second class
            h = -h if h.shape[-1] == 1 else tf.gather(h, self.order, axis=-1)
        columns = [h, features, *others]
        flat = tf.reshape(X, [-1, math.prod(self.inputs.shape)])
        if self.with_inputs:
            columns.append(flat)
        if self.reach is not None:
            if self.axes is not None:
                columns.append(tf.matmul(self.reach.scaled(flat), self.axes))
            columns.append(beyond(self.reach, flat))
        return tf.concat(columns, axis=-1)


class Outputs(NamedTuple):
    """What a network returns."""

    columns: int
    """J."""
    kind: str | None
    """"probabilities", "logits", or None where they are numbers of which it cannot be said."""

    @classmethod
    def of(cls, network: Any, inputs: Inputs, X: AnyNDArray) -> Outputs:
        """Return the outputs of a network, by its last activation or by its values at X."""
        function = as_function(network)
        values = np.asarray(function(tf.cast(inputs.floats(X[:BLOCK]), default_float())))
        J = values.shape[-1]
        activation = network_layers.output_activation(function.network)
        if network_layers.are_probabilities(values):
            return cls(J, "probabilities")
        if activation in ("linear", "log_softmax"):
            return cls(J, "logits")
        if activation is not None:
            known = activation == ("sigmoid" if J == 1 else "softmax")
            return cls(J, "probabilities" if known else None)
        are_fractions = np.all((values >= 0.0) & (values <= 1.0))
        return cls(J, None if are_fractions else "logits")

    @classmethod
    def of_all(cls, networks: list[Any], inputs: Inputs, X: AnyNDArray) -> Outputs:
        """Return the outputs that networks have in common; raise if they differ."""
        found = [cls.of(network, inputs, X) for network in networks]
        if len(set(found)) > 1:
            shown = ", ".join(f"{J} columns of {kind or 'numbers'}" for J, kind in found)
            raise ValueError(f"network is a list that returns {shown}; all must return the same.")
        return found[0]


def network_rows(
    networks: list[Any],
    features: Any,
    inputs: Inputs,
    outputs: Outputs,
    order: tuple[int, ...] = (),
    reach: Scaling | None = None,
) -> NetworkInputs:
    """Return the map from inputs to rows, with copies of the networks.

    :param networks: those whose average is h.
    :param features: φ: "penultimate", "layers", the name of a layer, "inputs", a model or function,
        or several of these. Each is a group of columns of its own, "layers" one for each layer.
        Layers are those of the first network.
    """
    several = list(features) if isinstance(features, list | tuple) else [features]
    if not several:
        raise ValueError('features is empty; pass "penultimate", "inputs", or a model of them.')
    names = network_layers.named_layers(several)
    models = [each for each in several if not isinstance(each, str)]
    for model in models:
        if not callable(model):
            raise TypeError(
                f'features is {short_repr(model)}; it must be "penultimate", "layers", the name '
                'of a layer, "inputs", a model or a function.'
            )
    if names:
        networks = [flat(networks[0]), *networks[1:]]
    network = network_layers.ensemble(networks, outputs.kind)
    first, sizes, last = network, list[int](), None
    if names:
        first, sizes, last = network_layers.with_features(network, names, of=networks[0])
    parts = tuple(copy.deepcopy(as_function(part)) for part in (first, *models))
    example = tf.zeros([1, *inputs.shape], default_float())
    sizes += [int(part(example).shape[-1]) for part in parts[1:]]
    with_inputs = network_layers.INPUTS in several
    return NetworkInputs(
        parts,
        inputs,
        outputs.columns,
        (*sizes, math.prod(inputs.shape)) if with_inputs else tuple(sizes),
        with_inputs,
        outputs.kind == "probabilities" or (outputs.kind is not None and len(networks) > 1),
        order,
        reach,
        last,
    )


def logits(p: tf.Tensor) -> tf.Tensor:
    """Return log p for several classes, and log p/(1 - p) for the second of two: [N, J]."""
    p = tf.maximum(p, MIN_PROBABILITY)
    if p.shape[-1] > 1:
        return tf.math.log(p)
    return tf.math.log(p) - tf.math.log(tf.maximum(1.0 - p, MIN_PROBABILITY))


def feature_kernel(rows: AnyNDArray, of: NetworkInputs) -> Kernel:
    """Return the sum of a squared exponential for each group of features.

    The lengthscale is half the median distance between rows, and the variance that of h, about its
    average over classes. They are not fitted: labels would have the kernel ignore whatever does not
    help to tell classes apart, by which new inputs are known.

    :param rows: in standard units, [N, J + F].
    """
    kernels = kernels_of_groups(rows, of)[: len(of.num_features)]
    return kernels[0] if len(kernels) == 1 else Sum(kernels)


def kernels_of_groups(rows: AnyNDArray, of: NetworkInputs) -> list[Kernel]:
    """Return the kernel of each group of features, and of principal components if there are any.

    Those of features have variances that add up to that of h.
    """
    h = rows[:, : of.num_outputs]
    if of.num_outputs > 1:
        h = h - h.mean(axis=1, keepdims=True)
    variance = float(np.mean(np.square(h))) or 1.0
    start, kernels = of.num_outputs, []
    for size in (*of.num_features, 0 if of.axes is None else of.axes.shape[1]):
        columns = slice(start, start + size)
        start += size
        if size:
            distance = float(np.median(pdist(rows[:MAX_ROWS_OF_DISTANCES, columns])))
            kernel = SquaredExponential(
                variance=variance / len(of.num_features),
                lengthscales=0.5 * distance if distance > 0.0 else 1.0,
                active_dims=columns,
            )
            set_trainable(kernel, False)
            kernels.append(kernel)
    return kernels


def widening(kernel: Kernel, num_columns: int) -> Kernel:
    """Return w(x) w(x') k(x, x') for rows [..., w(x), s(x)]: `reach`."""
    wider = kernel * Linear(active_dims=[num_columns - 2])
    set_trainable(wider, False)
    return wider
