"""The size of the tiles in which Gram matrices of images are computed, as a parameter of tests."""

from __future__ import annotations

import pytest

from gpflow_gvi.kernels.nngp import tiles


@pytest.fixture
def tile(request, monkeypatch) -> int:
    monkeypatch.setattr(tiles, "TILE", request.param)
    return request.param
