"""The folder of a run: complete, or one beside it from which the run goes on.

A run works in `<name>.partial`. When all of it is there, `run.json` last, that is renamed to
`<name>`. A lock, which the operating system takes back from a process that dies, keeps two
processes from the same run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from .config import Experiment

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

COMPLETE = "run.json"
"""What is written last."""


class FolderInUseError(RuntimeError):
    """Another process works on the same run."""


def name_of(experiment: Experiment) -> str:
    """Return a readable name for the settings, which other settings do not have."""
    kinds: tuple[str, ...] = (experiment.model.kind,)
    if experiment.model.kind == "gvi":
        kinds = (
            experiment.regulariser.kernel.kind,
            experiment.regulariser.mode,
            experiment.mean.kind,
            experiment.covariance.kind,
            experiment.divergence.kind,
        )
    return "-".join((experiment.data.label, *kinds, f"seed{experiment.seed}", digest(experiment)))


def digest(experiment: Experiment, *, of: Collection[str] | None = None) -> str:
    """Return a short text that other settings, or data, do not have.

    :param experiment: the settings.
    :param of: the parts that matter; all of them if not given.
    """
    include = None if of is None else set(of)
    settings = json.dumps(experiment.model_dump(mode="json", include=include), sort_keys=True)
    return hashlib.sha256(f"{settings}{experiment.data.fingerprint}".encode()).hexdigest()[:10]


class RunFolder:
    """Where a run is, or will be.

    :param path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.partial = self._beside(".partial")
        self._replaced = self._beside(".replaced")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    @property
    def is_complete(self) -> bool:
        """Whether the run is finished."""
        return (self.path / COMPLETE).is_file()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run, having cleared up what a process that was killed had left."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with held(self._beside(".lock")):
            self._recover()
            yield

    def _recover(self) -> None:
        if self._replaced.exists() and not self.path.exists():
            self._replaced.rename(self.path)
        shutil.rmtree(self._replaced, ignore_errors=True)
        if (self.partial / COMPLETE).is_file():
            self.publish()
        if self.path.exists() and not self.is_complete:
            raise FileExistsError(
                f"{self.path} is no finished run: it has no {COMPLETE}. Delete or rename it."
            )

    def begin(self, *, anew: bool) -> Path:
        """Return the folder to work in, with what an unfinished run has left unless `anew`."""
        if anew:
            shutil.rmtree(self.partial, ignore_errors=True)
        self.partial.mkdir(exist_ok=True)
        return self.partial

    def publish(self) -> None:
        """Put the finished run in its place, where an old one stays until then."""
        if self.path.exists():
            self.path.rename(self._replaced)
        self.partial.rename(self.path)
        shutil.rmtree(self._replaced, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write a file of JSON, whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, path)


@contextlib.contextmanager
def held(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock, a file that is there for as long.

    :param path: the file.
    :param wait: whether to wait for another process that holds it.
    """
    while True:
        try:
            descriptor = _acquire(path)
            break
        except FolderInUseError:
            if not wait:
                raise
            time.sleep(0.1)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            path.unlink()
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """Return the descriptor of a file that no other process holds."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if sys.platform == "win32":
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before has removed it by now, and somebody may have made a new one.
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
            os.close(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise FolderInUseError(
                f"{path.with_suffix('')} is being worked on by another process. Wait for it, or "
                "choose another --folder."
            ) from error
