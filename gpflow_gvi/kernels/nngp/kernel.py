"""The infinitely wide network as a GPflow kernel, and how covariances pass through its layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..._core import checks, linalg
from ...errors import short_repr
from ..feature_map import OnWholeInputs
from . import tiles
from .layers import Activation, Affine, Dense, Flatten, Layer
from .pairs import AllPixelPairs, Offsets, Pairs, PixelPairs, Shape, VectorPairs
from .tiles import Tensors


class NNGP(OnWholeInputs):
    """The covariance of a network with infinitely many units or channels in each layer.

    At initialisation such a network is a Gaussian process (Neal 1996; Lee et al. 2018, "Deep neural
    networks as Gaussian processes"). Its hyper-parameters are the variances of the weights and
    biases of each layer:

        NNGP([Dense(2.0, 0.1), ReLU(), Dense()])
        NNGP([Conv2D(3), ReLU(), Flatten(), Dense()], input_shape=(28, 28, 1))

    Gram matrices of images are computed in tiles, and computed again for a gradient, so that memory
    stays bounded. A network without pooling needs H·W numbers for each pair of images; one with
    average pooling needs a few times more; with `GlobalAveragePooling2D` it is (H·W)².

    :param layers: what the inputs pass through; the last one gives the output, whose covariance
        this is. Widths are infinite and not asked for.
    :param input_shape: the shape of one input: (H, W, C) for images, (D,) for vectors. With it,
        images may also be given as rows of H·W·C numbers, as GPflow's models want them.
    :param active_dims: the columns of X to use, as for any kernel of GPflow.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        *,
        input_shape: int | Sequence[int] | None = None,
        active_dims: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(active_dims=active_dims, name=name)
        self.layers = _layers(layers)
        self.input_shape = _input_shape(input_shape, self.layers[0])
        output_shapes(self.layers, image_shape(self.layers[0], self.input_shape))

    @classmethod
    def from_keras(cls, model: Any) -> NNGP:
        """Return the kernel of a Keras model (of Keras 3 or tf_keras) with infinite widths.

        The model is a `Sequential` one or a functional chain of Dense, Conv2D, Flatten,
        AveragePooling2D, GlobalAveragePooling2D, Activation, ReLU, Dropout and input layers, with
        the activations relu, tanh (which becomes `Erf`), erf and linear. Its weights are not used,
        nor are its initialisers, which depend on the width: each weight variance starts at 2 before
        a ReLU (which keeps the variance of the signal) and at 1 elsewhere, each bias variance at
        0.1, or there is none where the layer has `use_bias=False`. Dropout is the identity, as it
        is in predictions.
        """
        from .from_keras import read

        layers, input_shape = read(model)
        return cls(layers, input_shape=input_shape)

    def __call__(
        self,
        X: TensorType,
        X2: TensorType | None = None,
        *,
        full_cov: bool = True,
        presliced: bool = False,
        **options: Any,
    ) -> tf.Tensor:
        """Return k(X, X2), or its diagonal; images [N, H, W, C] are taken as well as rows."""
        if not presliced:
            # One at a time: X may be images where X2 is rows.
            X = self.slice(X, None)[0]
            X2 = None if X2 is None else self.slice(X2, None)[0]
        return super().__call__(X, X2, full_cov=full_cov, **options)

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Return k(X, X2): [N, N2]."""
        X = self._inputs("X", X)
        return self._network(X).covariance(X, None if X2 is None else self._inputs("X2", X2))

    def K_diag(self, X: TensorType) -> tf.Tensor:
        """Return k(x, x) for each row of X, without forming k(X, X): [N]."""
        X = self._inputs("X", X)
        return self._network(X).variances(X)[-1]

    def _network(self, X: tf.Tensor) -> Network:
        return Network(self.layers, None if self._on_vectors else tuple(X.shape[1:3]))

    @property
    def _on_vectors(self) -> bool:
        """Whether inputs are vectors, or images that are made so before anything else."""
        return isinstance(self.layers[0], Dense | Flatten)

    def _inputs(self, name: str, X: TensorType) -> tf.Tensor:
        """Return X as [N, H, W, C] or as [N, D]."""
        X = tf.convert_to_tensor(X)
        for parameter in self.parameters[:1]:
            if X.dtype != parameter.dtype:
                raise TypeError(
                    f"{name} has dtype {X.dtype.name}, but the kernel computes in "
                    f"{parameter.dtype.name}. Pass {name}.astype('{parameter.dtype.name}')."
                )
        one, wanted = X.shape[1:], self.input_shape
        if wanted is None:
            takes_images = not isinstance(self.layers[0], Dense)
            if not (one.rank == 3 and takes_images) and not (one.rank == 1 and self._on_vectors):
                kind, axes = ("images", "[N, H, W, C]") if takes_images else ("vectors", "[N, D]")
                raise ValueError(
                    f"{name} has shape {tuple(X.shape)}, but the first layer takes {kind}. Pass "
                    f"them as {axes}, or say input_shape=(H, W, C) to NNGP for rows of pixels."
                )
        elif not any(map(one.is_compatible_with, (wanted, [math.prod(wanted)]))):
            raise ValueError(
                f"{name} has shape {tuple(X.shape)}, but input_shape is {wanted}. Pass "
                f"{('N', *wanted)} or rows of {math.prod(wanted)} numbers."
            )
        if self._on_vectors:
            return X if one.rank == 1 else tf.reshape(X, [-1, tf.reduce_prod(tf.shape(X)[1:])])
        return X if wanted is None else tf.reshape(X, [-1, *wanted])


def _input_shape(value: int | Sequence[int] | None, first: Layer) -> tuple[int, ...] | None:
    if value is None:
        return None
    shape = (value,) if isinstance(value, int) else tuple(value)
    for size in shape:
        checks.count("input_shape", size)
    rank = 1 if isinstance(first, Dense) else 3
    if len(shape) != rank and not isinstance(first, Flatten):
        wanted = "(D,)" if rank == 1 else "(H, W, C)"
        raise ValueError(
            f"input_shape is {shape}, but the first layer ({type(first).__name__}) takes {wanted}."
        )
    return shape


def _layers(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    layers = tuple(layers)
    if not layers:
        raise ValueError("layers is empty. Give at least one, such as [Dense()].")
    for layer in layers:
        if not isinstance(layer, Layer):
            raise TypeError(
                f"layers contains {short_repr(layer)}; each must be an instance of a layer of "
                "gpflow_gvi.kernels.nngp, such as Dense()."
            )
    return layers


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
        return linalg.with_diagonal(K, diagonal) if X2 is None else K

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
            if isinstance(layer, Activation):
                results.append(before.variances(K))
                values = [before.own(results[-1]), before.second(results[-1])]
            K = layer.propagate(K, after, *values)
        return [*results, K[0]]

    def _covariance(self, inputs: Tensors, inputs2: Tensors, parameters: Tensors) -> tf.Tensor:
        """Walk the pairs of N inputs and N2 others."""
        (X, *variances), (X2, *variances2) = inputs, inputs2
        known = zip(variances, variances2, strict=True)
        K = self.pairs[0].between(X, X2)
        for layer, before, after, values in self._steps(parameters):
            if isinstance(layer, Activation):
                variance, variance2 = next(known)
                values = [before.first(variance), before.second(variance2)]
            K = layer.propagate(K, after, *values)
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
