"""The threads of BLAS, of OpenMP and of TensorFlow.

On few rows those of BLAS and OpenMP wait for one another longer than they work, and they wait
busily: with two of them a fit takes more time than with one, and several times as much beside
another program. Those of TensorFlow exist in the process that started it alone: one that is forked
from it would wait for them for ever.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Literal

from threadpoolctl import ThreadpoolController

from ..errors import ForkedProcessError
from .tensorflow_private import has_started

MAX_ROWS = 5000
"""Beyond this number of rows there are as many threads as there are processors."""

_is_cut_off = False


def one_thread(
    api: Literal["blas", "openmp"], num_rows: int = 0
) -> contextlib.AbstractContextManager[object]:
    """Return a context with one thread of NumPy's and SciPy's BLAS, or of scikit-learn's OpenMP.

    :param num_rows: the number of rows; the threads are as they were for many.
    """
    if num_rows > MAX_ROWS:
        return contextlib.nullcontext()
    return _pools(api).limit(limits=1, user_api=api)


@functools.cache
def _pools(api: str) -> ThreadpoolController:
    """The thread pools, once the libraries are loaded: they take longer to find than a fit."""
    return ThreadpoolController()


def require_threads() -> None:
    """Raise in a process that was forked from one where TensorFlow had started."""
    if _is_cut_off:
        raise ForkedProcessError(
            "TensorFlow had started when this process was forked, so that it would wait here for "
            "threads that only the parent has. Start processes by "
            "multiprocessing.get_context('spawn'), or use threads, or fork before the first model "
            "is made or loaded."
        )


def _note_fork() -> None:
    global _is_cut_off
    _is_cut_off = _is_cut_off or has_started()


if hasattr(os, "register_at_fork"):  # where processes can be forked
    os.register_at_fork(after_in_child=_note_fork)
