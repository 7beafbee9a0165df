"""Files and folders that are complete, or not there at all, whatever happens during the writing.

What is written has a name of its own until it is complete, so that any number of processes may
write to one place: it holds what one of them wrote, and nobody's other files are touched. A process
that is killed leaves what it was writing, named *.partial.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a new binary file, which takes the place of the one at `path` if nothing is raised."""
    path = Path(path)
    partial = _beside(path, "partial")
    try:
        with partial.open("x+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
        _settle(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(
    folder: str | os.PathLike[str], mark: str, *, overwrite: bool = False
) -> Iterator[Path]:
    """Yield a new folder to write to, which takes the place of `folder` if nothing is raised.

    A folder that is replaced is there until the new one is; `present` tells where.

    :param folder: where to: a new or an empty folder.
    :param mark: a file that tells those that were written before from any others.
    :param overwrite: replace what was written there before.
    """
    folder = Path(folder).expanduser().resolve()
    with _locked(folder.parent):
        _require_free(folder, mark, overwrite=overwrite)
    partial = _beside(folder, "partial")
    try:
        partial.mkdir(parents=True)
        yield partial
        for path in (*partial.rglob("*"), partial):
            _settle(path)
        with _locked(folder.parent):
            _require_free(folder, mark, overwrite=overwrite)
            _replace(folder, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def present(folder: Path) -> Path:
    """Return the place of the content of a folder: beside it, while another takes its place."""
    if folder.exists():
        return folder
    return next(iter(_replaced(folder)), folder)


def _replaced(folder: Path) -> list[Path]:
    """Return the folders that were moved aside for another one to take their place."""
    number = "[0-9a-f]" * 32
    return [*folder.parent.glob(f"{glob.escape(folder.name)}.{number}.replaced")]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others from replacing a folder in this one, where the system has such locks."""
    with contextlib.ExitStack() as stack:
        # It may not be there yet, or not be readable; some network file systems have no locks.
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)  # this unlocks
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _require_free(folder: Path, mark: str, *, overwrite: bool) -> None:
    """Raise unless the folder may be written to."""
    is_ours = (present(folder) / mark).exists()
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not (overwrite if is_ours else is_free):
        remedy = "pass overwrite=True to replace it, or choose" if is_ours else "choose"
        raise FileExistsError(f"folder {folder} is in use; {remedy} another one.")


def _replace(folder: Path, new: Path) -> None:
    """Put a new folder in the place of an old one, which is there until then."""
    old = _beside(folder, "replaced")
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    for path in _replaced(folder):
        shutil.rmtree(path, ignore_errors=True)
    _settle(folder.parent)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.{suffix}")


def _settle(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # only there folders can be waited for
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
