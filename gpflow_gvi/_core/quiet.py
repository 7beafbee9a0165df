"""TensorFlow starts without its messages to stderr; this needs nothing but Python itself."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from . import progress


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Keep what TensorFlow writes to stderr while it loads out of a short answer.

    It does so from C++ and before it reads its own log level, hence the file descriptor.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Say that TensorFlow is imported, which is slow, and keep its own messages back."""
    with progress.spoken(1, sys.stderr):
        progress.now("loading TensorFlow")
        with quiet_start():
            yield
