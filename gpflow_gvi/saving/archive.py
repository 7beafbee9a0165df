"""What a saved folder is made of, read so that little content cannot claim much memory."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
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
    """Return the arrays of an `.npz` file, none of which claims more than the file has."""
    members(content)
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        found = dict(file)
    for name, array in found.items():
        if array.dtype.kind not in "biufcmMSU":
            raise ValueError(f"{name:.200} has dtype {array.dtype}; it must be numbers.")
    return found


def objects(part: Any) -> Iterator[dict[str, Any]]:
    """Yield all JSON objects in a part, each before those within it."""
    parts = [part]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            yield part
        if isinstance(part, dict | list):
            parts += part.values() if isinstance(part, dict) else part
