"""Says that TensorFlow cannot compute in a process that was forked from one where it has started.

The threads that it waits for exist in the parent alone: the child would wait for ever.
"""

from __future__ import annotations

import os

from ..errors import ForkedProcessError
from .tensorflow_private import has_started

_is_cut_off = False


def require_threads() -> None:
    """Raise in such a process."""
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
