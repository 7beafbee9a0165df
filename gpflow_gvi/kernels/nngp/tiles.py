"""The tiler: Gram matrices of images part by part, so that their memory stays bounded.

The covariances of all pairs of pixels of all pairs of images are many times more than the entries
of the Gram matrix that they add up to. They are held for one tile of the matrix at a time. For a
gradient they are computed again, tile by tile, instead of being kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

TILE = 2**20
"""About how many covariances a tile has. A few such arrays for each layer are held at a time."""

Tensors: TypeAlias = Sequence[tf.Tensor]

Size: TypeAlias = Any
"""A length: an int where it is known when the graph is made, otherwise a tensor."""


def by_rows(
    function: Callable[[Tensors, Tensors], Tensors],
    arrays: Tensors,
    parameters: Tensors,
    *,
    cost: int,
    results: int,
) -> list[tf.Tensor]:
    """Return function(arrays, parameters), evaluated on a block of the arrays' rows at a time.

    :param function: gives `results` arrays, with a row for each row of `arrays`.
    :param cost: how many covariances it holds for each row; zero if there is no need to count.
    """
    N = _length(arrays)
    if _fits(cost, N):
        return list(function(arrays, parameters))
    number, size = _split(N, max(TILE // cost, 1))
    blocks = _blocks(arrays, number, size)

    outputs = _evaluated(
        function, [blocks], parameters, tf.range(number)[:, None], [arrays[0].dtype] * results
    )
    return [
        tf.reshape(output, tf.concat([[-1], tf.shape(output)[2:]], axis=0))[
            : tf.shape(arrays[0])[0]
        ]
        for output in outputs
    ]


def gram(
    function: Callable[[Tensors, Tensors, Tensors], tf.Tensor],
    first: Tensors,
    second: Tensors | None,
    parameters: Tensors,
    *,
    cost: int,
) -> tf.Tensor:
    """Return function(first, second, parameters), [N, N2], evaluated a tile at a time.

    :param first: arrays with N rows each.
    :param second: arrays with N2 rows each. If it is None, they are the first and the matrix is
        symmetric: the tiles below its diagonal are copied from those above.
    :param cost: how many covariances the function holds for each pair of rows; zero if no more
        than the matrix itself has.
    """
    other = first if second is None else second
    N, N2 = _length(first), _length(other)
    if _fits(cost, N, N2):
        return function(first, other, parameters)
    budget = max(TILE // cost, 1)
    side = int(budget**0.5)
    if second is None:
        number, size = number2, size2 = _split(N, side)
    else:
        widest = min(N2, side) if isinstance(N2, int) else tf.minimum(N2, side)
        number, size = _split(N, budget // widest)
        number2, size2 = _split(N2, budget // size)
    blocks, blocks2 = _blocks(first, number, size), _blocks(other, number2, size2)

    dtype = first[0].dtype
    i, j = tf.meshgrid(tf.range(number), tf.range(number2), indexing="ij")
    places = tf.stack([i, j], axis=-1)  # [T, T2, 2]
    if second is None:
        places = tf.boolean_mask(places, i <= j)
        tiles = _evaluated(function, [blocks, blocks], parameters, places, dtype)
        tiles = _mirrored(tiles, i, j, number)
    else:
        places = tf.reshape(places, [-1, 2])
        tiles = _evaluated(function, [blocks, blocks2], parameters, places, dtype)
    tiles = tf.reshape(tiles, [number, number2, size, size2])
    K = tf.reshape(tf.transpose(tiles, [0, 2, 1, 3]), [number * size, number2 * size2])
    return K[: tf.shape(first[0])[0], : tf.shape(other[0])[0]]


def _mirrored(tiles: tf.Tensor, i: tf.Tensor, j: tf.Tensor, number: Size) -> tf.Tensor:
    """Return the tiles (i, j) of a symmetric matrix, given those with i <= j, row after row."""
    low, high = tf.minimum(i, j), tf.maximum(i, j)
    # The rows before this one are shorter by 0, 1, 2, ... than the first.
    place = low * number - low * (low - 1) // 2 + high - low
    whole = tf.gather(tiles, place)
    return tf.where((i > j)[..., None, None], tf.linalg.matrix_transpose(whole), whole)


def _evaluated(
    function: Callable[..., Any],
    groups: Sequence[Tensors],
    parameters: Tensors,
    places: tf.Tensor,
    dtypes: Any,
) -> Any:
    """Return the values of the function at all places, and keep nothing else for the gradient.

    :param groups: the arguments of the function but the last, in blocks: arrays [T, ...].
    :param places: which block of each group to take: [P, G].
    """
    # Whose block each array is, by the number of its group; parameters are of no group.
    owners = [*(g for g, group in enumerate(groups) for _ in group), *[None] * len(parameters)]

    def at(place: tf.Tensor, arrays: Tensors) -> list[tf.Tensor]:
        return [
            array if g is None else array[place[g]] for array, g in zip(arrays, owners, strict=True)
        ]

    def call(chosen: Tensors) -> Any:
        return function(*tf.nest.pack_sequence_as([*groups, parameters], chosen))

    @tf.custom_gradient
    def evaluate(*arrays: tf.Tensor) -> tuple[Any, Callable[..., Any]]:
        # Cut off, so that a tape around this keeps nothing of what happens inside.
        cut = [tf.stop_gradient(array) for array in arrays]
        values = tf.map_fn(
            # AutoGraph would take longer to convert what lies beneath than that takes to run.
            tf.autograph.experimental.do_not_convert(lambda place: call(at(place, cut))),
            places,
            fn_output_signature=dtypes,
            parallel_iterations=1,  # memory is at stake, and each operation has all the cores
        )

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            @tf.autograph.experimental.do_not_convert
            def add(totals: Tensors, element: Tensors) -> list[tf.Tensor]:
                place, *weights = element
                with tf.GradientTape() as tape:
                    chosen = at(place, arrays)
                    tape.watch(chosen)
                    value = tf.nest.flatten(call(chosen))
                parts = tape.gradient(
                    value, chosen, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
                )
                return [
                    total + part
                    if g is None
                    else tf.tensor_scatter_nd_add(total, place[g][None, None], part[None])
                    for total, part, g in zip(totals, parts, owners, strict=True)
                ]

            zeros = [tf.zeros_like(array) for array in arrays]
            return tf.foldl(add, (places, *upstream), zeros, parallel_iterations=1)

        return values, gradient

    return evaluate(*tf.nest.flatten([*groups, parameters]))


def _length(arrays: Tensors) -> Size:
    """Return the number of rows, or one if there turn out to be none."""
    static = arrays[0].shape[0]
    return tf.maximum(tf.shape(arrays[0])[0], 1) if static is None else static


def _fits(cost: int, *lengths: Size) -> bool:
    """Return True if no loop is needed; False where that depends on lengths not known yet."""
    if cost == 0:
        return True
    return all(isinstance(N, int) for N in lengths) and math.prod(lengths) * cost <= TILE


def _split(N: Size, most: Size) -> tuple[Size, Size]:
    """Return the number of blocks of at most that many rows, and how many rows they then have."""
    number = -(-N // most)
    return number, -(-N // number)


def _blocks(arrays: Tensors, number: Size, size: Size) -> list[tf.Tensor]:
    """Return the arrays' rows in blocks, the last one filled up with zeros: [T, size, ...]."""

    def blocked(array: tf.Tensor) -> tf.Tensor:
        missing = number * size - tf.shape(array)[0]
        full = tf.pad(array, [[0, missing]] + [[0, 0]] * (array.shape.rank - 1))
        blocks = tf.reshape(full, tf.concat([[number, size], tf.shape(array)[1:]], axis=0))
        return tf.ensure_shape(blocks, [None, None, *array.shape[1:]])

    return [blocked(array) for array in arrays]
