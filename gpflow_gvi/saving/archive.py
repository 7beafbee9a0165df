"""What a saved folder is made of, read so that little content cannot claim much memory."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np


def members(content: bytes, *names: str) -> dict[str, bytes]:
    """Return the files of a zip archive, of all names or of some; none of them is compressed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found = archive.namelist()
        if len(set(found)) < len(found):
            raise ValueError("an archive has two files of one name.")
        for name in names or found:
            if name not in found:
                raise ValueError(f"an archive has no {name}.")
            if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{name:.200} is compressed.")
        # What is not compressed is shorter than the archive, unless its files overlap.
        if sum(archive.getinfo(name).file_size for name in names or found) > len(content):
            raise ValueError("an archive claims to have more than its size.")
        return {name: archive.read(name) for name in names or found}


def arrays(content: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an `.npz` file."""
    return {
        name.removesuffix(".npy"): _array(name, part) for name, part in members(content).items()
    }


def _array(name: str, content: bytes) -> np.ndarray[Any, Any]:
    stream = io.BytesIO(content)
    header: Any = np.lib.format  # its functions are not typed
    is_first = header.read_magic(stream) == (1, 0)
    read = header.read_array_header_1_0 if is_first else header.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.kind not in "biufcmMSU":
        raise ValueError(f"{name:.200} has dtype {dtype}; it must be numbers.")
    if any(size < 0 for size in shape):
        raise ValueError(f"{name:.200} has shape {shape}.")
    if np.prod(shape, dtype=object) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError(f"{name:.200} has shape {shape}, which is not that of its numbers.")
    stream.seek(0)
    return header.read_array(stream, allow_pickle=False)


def parsed(content: bytes | str) -> Any:
    """Return the value of a JSON text, in which no key may occur twice."""
    return json.loads(content, object_pairs_hook=_once, parse_constant=_no_number)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name is there twice")
    return result


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")
