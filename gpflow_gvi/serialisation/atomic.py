"""The lock: a folder is complete, or not there at all, whatever happens while it is written."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written(
    folder: str | os.PathLike[str], mark: str, *, overwrite: bool = False
) -> Iterator[Path]:
    """Yield a new folder to write to, which takes the place of `folder` if nothing is raised.

    A folder that is replaced is there until the new one is.

    :param folder: where to: a new or an empty folder.
    :param mark: a file that tells those that were written before from any others.
    :param overwrite: replace what was written there before.
    """
    folder = Path(folder).resolve()
    is_ours = (present(folder) / mark).exists()
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not (overwrite if is_ours else is_free):
        remedy = "pass overwrite=True to replace it, or choose" if is_ours else "choose"
        raise FileExistsError(f"folder {folder} is in use; {remedy} another one.")
    partial = _beside(folder, "partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        for path in (*partial.rglob("*"), partial):
            _settle(path)
        _replace(folder, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def present(folder: Path) -> Path:
    """Return where the content of a folder is: beside it, if killed between the two renamings."""
    old = _beside(folder, "replaced")
    return old if old.exists() and not folder.exists() else folder


def _replace(folder: Path, partial: Path) -> None:
    """Put the new folder in the place of an old one, which is kept until then."""
    old = _beside(folder, "replaced")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    partial.rename(folder)
    _settle(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f"{folder.name}.{suffix}")


def _settle(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # only there folders can be waited for
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
