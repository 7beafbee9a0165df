"""Files and folders that are complete, or not there at all, whatever happens during the writing.

What is written has a name of its own until it is complete, so that any number of processes may
write to one place: it holds what one of them wrote, and nobody's other files are touched. Whoever
writes has a lock on it, which ends with the process: what killed processes left is known by that,
and by its age where a file system has no locks.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ABANDONED_AFTER = 86400.0
"""The age in seconds from which incomplete files that are not locked are removed."""

_NAME = re.compile(r"(.+)\.[0-9a-f]{32}\.(partial|replaced)")
"""The names that `_beside` makes."""


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a new binary file, which takes the place of the one at `path` if nothing is raised."""
    path = Path(path)
    partial = _beside(path, "partial")
    _clear_abandoned(path.parent)
    try:
        with _naming(path), partial.open("x+b") as stream, _locked(partial):
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
    folder = Path(folder).resolve()
    with _locked(folder.parent):
        _require_free(folder, mark, overwrite=overwrite)
        _clear_abandoned(folder.parent)
    partial = _beside(folder, "partial")
    try:
        try:
            partial.mkdir(parents=True)
        except PermissionError as error:
            raise PermissionError(
                f"folder {folder} cannot be written: {folder.parent} may not be changed; choose "
                "another one."
            ) from error
        with _naming(folder), _locked(partial):
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
    names = ((path, _NAME.fullmatch(path.name)) for path in folder.parent.glob("*.replaced"))
    replaced = [path for path, name in names if name is not None and name[1] == folder.name]
    return max(replaced, key=_changed, default=folder)


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Keep others from locking a file or folder, where the system has such locks.

    Yields whether nobody else has locked it, if not to `wait` for them.
    """
    if fcntl is None:
        yield True
        return
    with contextlib.ExitStack() as stack:
        is_free = True
        # It may not be there yet, or not be readable; some network file systems have no locks.
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            stack.callback(os.close, descriptor)  # this unlocks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                is_free = False
        yield is_free


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let errors of the system say what could not be written, as that of a full disk does not."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


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
    shutil.rmtree(old, ignore_errors=True)
    _settle(folder.parent)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.{suffix}")


def _clear_abandoned(parent: Path) -> None:
    """Remove what processes that were killed have left, save the only complete folder."""
    for path in (*parent.glob("*.partial"), *parent.glob("*.replaced")):
        name = _NAME.fullmatch(path.name)
        if name is None or time.time() - _changed(path) < ABANDONED_AFTER:
            continue
        if name[2] == "replaced" and not path.with_name(name[1]).exists():
            continue
        with _locked(path, wait=False) as is_free:
            if is_free and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif is_free:
                path.unlink(missing_ok=True)


def _changed(path: Path) -> float:
    """Return when a folder was last written to or renamed; now if it has gone."""
    try:
        return path.stat().st_ctime
    except FileNotFoundError:
        return time.time()


def _settle(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # only there folders can be waited for
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
