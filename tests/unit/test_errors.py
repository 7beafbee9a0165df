from __future__ import annotations

import numpy as np

from gpflow_gvi.errors import MAX_SHOWN, short_repr


def test_values_are_shown_as_python_writes_them_but_short_and_on_one_line():
    assert short_repr("abc") == "'abc'"
    assert short_repr([1, 2]) == "[1, 2]"
    assert short_repr(np.array(["a"])[0]) == "'a'"
    assert short_repr({"x": (np.float64(0.1), np.bool_(True))}) == "{'x': (0.1, True)}"
    for value in (np.zeros((50, 50)), "x" * 5000, 10**4000, {i: [i] * 99 for i in range(999)}):
        assert len(short_repr(value)) <= MAX_SHOWN + 3
        assert "\n" not in short_repr(value)
