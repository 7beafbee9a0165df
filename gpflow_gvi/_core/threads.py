"""The threads of BLAS and of OpenMP.

On few rows they wait for one another longer than they work, and they wait busily: with two of them
a fit takes more time than with one, and several times as much beside another program.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Literal

from threadpoolctl import ThreadpoolController

MAX_ROWS = 5000
"""Beyond this number of rows there are as many threads as there are processors."""


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
