"""Which slow tests run: none by default, all with `--runslow`, a part with `--slow-share`."""

from __future__ import annotations

import zlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runslow", action="store_true", help="run the slow tests as well")
    parser.addoption(
        "--slow-share",
        metavar="K/N",
        type=_share,
        help="run the K-th of N parts of the slow tests as well, and before the fast ones",
    )


def _share(text: str) -> tuple[int, int]:
    k, n = map(int, text.split("/"))  # argparse reports a ValueError with the option and its value
    if not 1 <= k <= n:
        raise ValueError(text)
    return k, n


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--runslow"):
        return
    share = config.getoption("--slow-share")
    chosen = {item for item in items if share and _is_in(share, item)}
    for item in filter(_is_slow, items):
        if item not in chosen:
            item.add_marker(pytest.mark.skip(reason="slow: run with --runslow"))
    # The longest first: a worker that began one last would leave the others without work.
    items.sort(key=lambda item: item not in chosen)


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None  # keywords also have the names of folders


def _is_in(share: tuple[int, int], item: pytest.Item) -> bool:
    """Parts depend on the names of tests alone: a test stays in its part wherever it is moved."""
    k, n = share
    name = item.nodeid.partition("::")[2]
    return _is_slow(item) and zlib.crc32(name.encode()) % n == k - 1
