"""TensorFlow starts without its messages to stderr; this needs nothing but Python itself.

Whoever sets TF_CPP_MIN_LOG_LEVEL, to 0 for all of them, has them as they are.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any

from . import progress

LEVEL, SILENT = "TF_CPP_MIN_LOG_LEVEL", "3"


class _QuietTensorFlow(importlib.abc.MetaPathFinder):
    """Finds TensorFlow once, by the other finders, so that it is loaded by a `quiet_start`."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "tensorflow" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            quietly = quiet_start()(spec.loader.exec_module)
            spec.loader.exec_module = quietly  # type: ignore[method-assign]
        return spec


def quiet_from_now_on() -> None:
    """Let TensorFlow start quietly when it is imported, unless the user wants its messages.

    Worker processes inherit the log level that a quiet start has set, and are quiet, too.
    """
    if "tensorflow" not in sys.modules and os.environ.get(LEVEL, SILENT) == SILENT:
        sys.meta_path.insert(0, _QuietTensorFlow())


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Keep what TensorFlow writes to stderr while it loads out of a short answer.

    It does so from C++ and before it reads its own log level, hence the file descriptor.
    """
    os.environ.setdefault(LEVEL, SILENT)
    if sys.stderr is not None:  # as it is without a console
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # it is closed, so that nothing is written there
        yield
        return
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Say that TensorFlow is imported, which is slow, and keep its own messages back.

    GPflow takes nine tenths of its import to write shapes into its docstrings, which a command does
    not show.
    """
    with progress.spoken(1, sys.stderr):
        progress.now("loading TensorFlow")
        with quiet_start():
            if "gpflow" not in sys.modules:
                import check_shapes

                check_shapes.set_rewrite_docstrings(None)
            yield
