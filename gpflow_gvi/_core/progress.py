"""The progress of a long computation and its findings, reported to whoever listens.

A computation reports stages, one after the other: `now` begins one and ends the previous one,
`found` adds findings, `done_of` says how much of it is done. Nothing is passed on without a
listener, so a function deep inside a procedure reports without an argument for it.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import time
from collections.abc import Iterator
from typing import IO, NamedTuple

Facts = dict[str, float | int | str]


class Stage(NamedTuple):
    """A part of a computation: plain data, which can be saved."""

    what: str
    seconds: float
    facts: Facts
    """The findings, by name."""


class Record(NamedTuple):
    """The stages of a computation, in their order."""

    stages: tuple[Stage, ...]

    @property
    def seconds(self) -> float:
        """The time it took in all."""
        return sum(stage.seconds for stage in self.stages)


class Listener:
    """Keeps the stages of a computation, and writes a line for each if it is given a stream.

    A line says what the stage is, what it has found, and how long it took.

    :param stream: where to write; a bar is drawn where it is a terminal.
    """

    WIDTH = 20

    def __init__(self, stream: IO[str] | None = None) -> None:
        self.stages: list[Stage] = []
        self._stream = stream
        self._in_place = stream is not None and stream.isatty()
        self._what: str | None = None
        self._start = 0.0
        self._facts: Facts = {}

    def now(self, what: str | None) -> None:
        """End the current stage, and begin another one if its name is given."""
        if self._what is not None:
            stage = Stage(self._what, time.perf_counter() - self._start, self._facts)
            self.stages.append(stage)
            line = f"\r\033[K{stage.what} ... " if self._in_place else ""
            facts = f"{short_repr(stage.facts)}, " if stage.facts else ""
            self._write(f"{line}{facts}{stage.seconds:.1f} s\n")
        self._what, self._start, self._facts = what, time.perf_counter(), {}
        if what is not None:
            self._write(f"{what} ... ")

    def found(self, facts: Facts) -> None:
        """Add to what the current stage has found."""
        self._facts.update(facts)

    def done_of(self, done: int, total: int, facts: Facts) -> None:
        """Draw a bar of how much of the current stage is done."""
        if self._in_place:
            full = self.WIDTH * done // max(total, 1)
            bar = "#" * full + "." * (self.WIDTH - full)
            self._write(f"\r\033[K{self._what} [{bar}] {done}/{total} {short_repr(facts)}")

    def _write(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()


_listeners: contextvars.ContextVar[tuple[Listener, ...]] = contextvars.ContextVar(
    "gpflow_gvi_listeners", default=()
)


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Let a listener hear the stages of a block."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)
        listener.now(None)


def spoken(verbose: int, stream: IO[str] | None = None) -> contextlib.AbstractContextManager[None]:
    """Print the stages of a block if `verbose` is not 0."""
    if not verbose:
        return contextlib.nullcontext()
    return heard_by(Listener(sys.stdout if stream is None else stream))


def now(what: str) -> None:
    """Begin a stage, which ends the previous one."""
    for listener in _listeners.get():
        listener.now(what)


def found(**facts: float | int | str) -> None:
    """Say what the current stage has found."""
    for listener in _listeners.get():
        listener.found(facts)


def done_of(done: int, total: int, **facts: float | int | str) -> None:
    """Say how much of the current stage is done."""
    for listener in _listeners.get():
        listener.done_of(done, total, facts)


def short_repr(facts: Facts) -> str:
    """Return facts as text: numbers with a few digits."""
    values = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in facts.values())
    return ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in zip(facts, values, strict=True))
