"""The folder of a run: complete, or one beside it from which the run goes on.

A run works in `<name>.partial`. When all of it is there, `run.json` last, that is renamed to
`<name>`. A lock keeps two processes from the same run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .._core import files
from .config import Experiment

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


def digest(experiment: Experiment, *others: Any, of: set[str] | None = None) -> str:
    """Return a short text that other settings, data, or `others`, do not have; `of` are parts."""
    settings = json.dumps(experiment.model_dump(mode="json", include=of), sort_keys=True)
    text = f"{settings}{experiment.data.fingerprint}{others or ''}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


class RunFolder:
    """Where a run is, or will be."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.partial = self.path.with_name(f"{self.path.name}.partial")

    @property
    def is_complete(self) -> bool:
        """Whether the run is finished."""
        return (self.path / COMPLETE).is_file()

    def is_of(self, data: str) -> bool:
        """Whether the run is finished, and of data with this digest, if that is known.

        :raises ValueError: if it is finished, but of other data.
        """
        if not self.is_complete:
            return False
        known = json.loads((self.path / COMPLETE).read_text("utf-8")).get("data", data)
        if data not in ("", known):
            raise ValueError(
                f"{self.path} is a finished run of the same settings with other data: their file "
                "has changed, or is another one. Choose another --folder, or run it again by "
                "gpflow-gvi run --force."
            )
        return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run, having cleared up what a process that was killed had left."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with held(self.path.with_name(f"{self.path.name}.lock")):
            if (self.partial / COMPLETE).is_file():
                self.publish()
            if self.path.exists() and not self.is_complete:
                raise FileExistsError(
                    f"{self.path} is no finished run: it has no {COMPLETE}. Delete or rename it."
                )
            yield

    def begin(self, *, anew: bool) -> Path:
        """Return the folder to work in, with what an unfinished run has left unless `anew`."""
        if anew:
            shutil.rmtree(self.partial, ignore_errors=True)
        self.partial.mkdir(exist_ok=True)
        return self.partial

    def publish(self) -> None:
        """Put the finished run in the place of an old one, from where it is complete."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.partial.rename(self.path)


def write_json(path: Path, value: Any) -> None:
    """Write a file of JSON, whole or not at all."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with files.new_file(path) as stream:
        stream.write(text.encode("utf-8"))


@contextlib.contextmanager
def held(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock, which the operating system releases if the process dies.

    :param path: the lock's file, which exists while the lock is held.
    :param wait: whether to wait for another process that holds it.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=-1 if wait else 0, poll_interval=0.1)
    except Timeout as error:
        raise FolderInUseError(
            f"{path} is held by another process, which works on the same. Wait for it, or choose "
            "another --folder."
        ) from error
    try:
        yield
    finally:
        # Still held: a process that has opened the file finds it deleted, and tries again.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            path.unlink()
        lock.release()
