"""The backbone: layers in a row, and the covariances that pass through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf
from check_shapes import check_shapes

from . import tiles
from .image_layers import Flatten
from .layers import Activation, Affine, Covariances, Dense, Layer
from .pairs import AllPixelPairs, Offsets, Pairs, PixelPairs, Shape, VectorPairs
from .tiles import Tensors


class Network:
    """Layers on inputs of a known shape, with the pixel pairs that each of them needs.

    :param layers: the layers; they are checked against each other.
    :param shape: the height and width of the images, or None if the inputs are vectors.
    """

    def __init__(self, layers: Sequence[Layer], shape: Shape) -> None:
        # Vectors leave nothing to flatten: the average of x_p·x'_p/C is x·x'/D.
        self.layers = layers[shape is None and isinstance(layers[0], Flatten) :]
        self.pairs = _pixel_pairs(self.layers, output_shapes(self.layers, shape))

    @property
    def cost(self) -> int:
        """The maximal number of covariances that a pair of inputs needs."""
        return max(pairs.number for pairs in self.pairs)

    @check_shapes(
        "X: [N, D...]",
        "return[all]: [N, ...]",
    )
    def variances(self, X: tf.Tensor) -> list[tf.Tensor]:
        """Return the variances in front of each activation, [N, H, W] or [N], and k(x, x), [N]."""
        results = 1 + sum(isinstance(layer, Activation) for layer in self.layers)
        return tiles.by_rows(
            self._variances, [X], self._parameters(), cost=self.cost, results=results
        )

    @check_shapes(
        "X: [N, D...]",
        "X2: [N2, D...]",
        "return: [N, N] if X2 is None",
        "return: [N, N2] if X2 is not None",
    )
    def covariance(self, X: tf.Tensor, X2: tf.Tensor | None) -> tf.Tensor:
        """Return k(X, X2): [N, N2]."""
        *variances, diagonal = self.variances(X)
        second = None if X2 is None else [X2, *self.variances(X2)[:-1]]
        K = tiles.gram(
            self._covariance, [X, *variances], second, self._parameters(), cost=self.cost
        )
        return tf.linalg.set_diag(K, diagonal) if X2 is None else K

    def _parameters(self) -> list[tf.Tensor]:
        used = (layer.parameters_in_use for layer in self.layers)
        return [tf.convert_to_tensor(parameter) for layer in used for parameter in layer]

    def _steps(self, parameters: Tensors) -> Iterator[tuple[Layer, Pairs, Pairs, Tensors]]:
        """Go through the layers, with the pixel pairs before and after, and their parameters."""
        values = iter(parameters)
        for layer, before, after in zip(self.layers, self.pairs, self.pairs[1:], strict=False):
            yield layer, before, after, [next(values) for _ in layer.parameters_in_use]

    def _variances(self, inputs: Tensors, parameters: Tensors) -> list[tf.Tensor]:
        """Walk the pairs of an input with itself, which are laid out as 1 input and N others."""
        results = []
        K = self.pairs[0].within(*inputs)
        for layer, before, after, values in self._steps(parameters):
            given = Covariances(K)
            if isinstance(layer, Activation):
                results.append(before.variances(K))
                given = Covariances(K, before.own(results[-1]), before.second(results[-1]))
            K = layer.propagate(given, after, *values)
        return [*results, K[0]]

    def _covariance(self, inputs: Tensors, inputs2: Tensors, parameters: Tensors) -> tf.Tensor:
        """Walk the pairs of N inputs and N2 others."""
        (X, *variances), (X2, *variances2) = inputs, inputs2
        known = zip(variances, variances2, strict=True)
        K = self.pairs[0].between(X, X2)
        for layer, before, after, values in self._steps(parameters):
            given = Covariances(K)
            if isinstance(layer, Activation):
                variance, variance2 = next(known)
                given = Covariances(K, before.first(variance), before.second(variance2))
            K = layer.propagate(given, after, *values)
        return K


def image_shape(first: Layer, input_shape: Sequence[int | None] | None) -> Shape:
    """Return the height and width of the images that the first layer takes, if it takes images."""
    if isinstance(first, Dense):
        return None
    if input_shape is None or len(input_shape) != 3:
        return None, None
    return input_shape[0], input_shape[1]


def output_shapes(
    layers: Sequence[Layer], shape: Shape, names: Sequence[str] | None = None
) -> list[Shape]:
    """Return the shapes before the first layer and after each one; raise if one does not fit.

    :param names: what to call the layers in a message.
    """
    if names is None:
        names = [f"layers[{i}] ({type(layer).__name__})" for i, layer in enumerate(layers)]
    shapes = [shape]
    gaussian = False
    for layer, name in zip(layers, names, strict=True):
        try:
            shapes.append(layer.output_shape(shapes[-1]))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if isinstance(layer, Activation) and not gaussian:
            raise ValueError(
                f"{name}: its inputs must be Gaussian, with the same covariance for all units. Put "
                "a Dense or a Conv2D before it, with nothing but pooling between."
            )
        keeps = not isinstance(layer, Activation | Flatten)
        gaussian = isinstance(layer, Affine) or (gaussian and keeps)
    if shapes[-1] is not None:
        raise ValueError(
            f"{names[-1]}, the last, gives images, but a kernel is the covariance of numbers. Add "
            "Flatten() or GlobalAveragePooling2D(), and perhaps a Dense()."
        )
    return shapes


def _pixel_pairs(layers: Sequence[Layer], shapes: Sequence[Shape]) -> list[Pairs]:
    """Return the pairs that are needed before the first layer and after each one, backwards."""
    offsets: Offsets | None = ((0,), (0,))
    needed: list[Pairs] = [VectorPairs()]
    for layer, shape in zip(reversed(layers), reversed(shapes[:-1]), strict=True):
        if shape is None:
            needed.append(VectorPairs())
            continue
        if offsets is not None:  # who needs all pairs of its outputs needs all of its inputs
            offsets = layer.input_offsets(offsets)
        needed.append(AllPixelPairs(*shape) if offsets is None else PixelPairs(*shape, offsets))
    return needed[::-1]
