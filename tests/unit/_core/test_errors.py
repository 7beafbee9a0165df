from __future__ import annotations

import numpy as np

from gpflow_gvi._core.errors import MAX_SHOWN, shown


def test_values_are_shown_as_python_writes_them_but_short_and_on_one_line():
    assert shown("abc") == "'abc'"
    assert shown([1, 2]) == "[1, 2]"
    assert shown(np.array(["a"])[0]) == "'a'"
    assert shown({"x": (np.float64(0.1), np.bool_(True))}) == "{'x': (0.1, True)}"
    for value in (np.zeros((50, 50)), "x" * 5000, 10**4000, {i: [i] * 99 for i in range(999)}):
        assert len(shown(value)) <= MAX_SHOWN + 3
        assert "\n" not in shown(value)
