"""Data of a network as it takes them: arrays, several inputs, and batches as Keras reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..._core import checks, network_layers
from ..._core.data import as_floats
from ..._core.network_function import as_function
from ..._core.network_graph import Part, parts_of
from ...errors import short_repr


def inputs_of(data: Any) -> Any:
    """Return the inputs of (X, Y), or of the first batch; data themselves if they are neither."""
    if isinstance(data, tf.data.Dataset):
        spec = data.element_spec
        return spec[0] if isinstance(spec, tuple) else spec
    if _is_of_batches(data):
        return data[0][0]
    return data[0] if isinstance(data, tuple | list) and len(data) == 2 else data


def in_memory(name: str, data: Any, network: Any) -> Any:
    """Return (X, Y) of all batches of a Dataset or PyDataset; anything else as it is.

    :param data: batches or single rows (x, y), as `fit` of Keras takes them.
    :param network: what takes x, or a list of such, which tells one row from a batch.
    """
    if isinstance(data, tf.data.Dataset):
        if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise ValueError(f"{name} is a Dataset without an end; pass {name}.take(...).")
        blocks = list(data.as_numpy_iterator())
    elif _is_of_batches(data):
        blocks = [data[i] for i in range(len(data))]
    else:
        return data
    if not blocks:
        raise ValueError(f"{name} has no rows.")
    for block in blocks:
        if not isinstance(block, tuple | list) or len(block) != 2:
            count = len(block) if isinstance(block, tuple | list) else 1
            raise ValueError(
                f"{name} yields {count} parts; it must yield (x, y). Weights of rows are not taken."
            )
    x, y = blocks[0]
    first, *_ = network_layers.members(network)
    parts = parts_of(first)
    x = _in_order(x, parts)[0] if parts else x
    shape = parts[0].shape if parts else as_function(first).input_shape
    is_one = np.ndim(y) == 0 if shape is None else np.shape(x) == shape
    joined = np.stack if is_one else np.concatenate
    return tf.nest.map_structure(lambda *each: joined(each), *map(tuple, blocks))


def side_by_side(name: str, X: Any, parts: Sequence[Part]) -> AnyNDArray:
    """Return several inputs, which a network takes, as rows of numbers: [N, D].

    :param X: a dictionary or a list of arrays, [N, ...] each; or the rows that this returns.
    """
    names = [part.name for part in parts]
    if isinstance(X, Mapping) and set(names) != set(X):
        raise ValueError(f"{name} is a dictionary of {sorted(X)}, but the network takes {names}.")
    if not (isinstance(X, Mapping) or (isinstance(X, list | tuple) and len(X) == len(parts))):
        rows = checks.array(name, X) if hasattr(X, "shape") else np.zeros(0)
        if rows.ndim == 2 and rows.shape[1] == sum(part.size for part in parts):
            return rows
        raise ValueError(
            f"{name} is {short_repr(X)}, but the network has {len(parts)} inputs. Pass a "
            f"dictionary of arrays with the keys {names}, or a list of {len(parts)} arrays."
        )
    columns: list[AnyNDArray] = []
    for part, each in zip(parts, _in_order(X, parts), strict=True):
        array = checks.array(f"{name}[{part.name!r}]", each)
        wanted = (len(columns[0] if columns else array), *part.shape)
        if array.shape != wanted:
            raise ValueError(
                f"{name}[{part.name!r}] has shape {array.shape}, but the network takes {wanted} "
                "there, a row for each of the first input."
            )
        columns.append(as_floats(name, array).reshape(len(array), -1))
    return np.hstack(columns)


def _in_order(X: Any, parts: Sequence[Part]) -> list[Any]:
    """Return several inputs in the order of the parts."""
    return [X[part.name] for part in parts] if isinstance(X, Mapping) else list(X)


def _is_of_batches(data: Any) -> bool:
    """Return True if data are batches accessed by index, as in a PyDataset of Keras."""
    is_sequence = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    is_of_values = isinstance(data, tuple | list | Mapping) or hasattr(data, "shape")
    return is_sequence and not is_of_values
