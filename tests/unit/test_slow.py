"""The shares of the slow tests."""

from __future__ import annotations

import itertools

import pytest

from tests import slow

pytest_plugins = "pytester"

TESTS = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("i", range(60))
def test_slow(i): pass

@pytest.mark.parametrize("i", range(10))
def test_quick(i): pass
"""


def test_five_shares_are_the_slow_tests_each_once_before_the_quick_ones(pytester):
    quick = [f"test_quick[{i}]" for i in range(10)]

    def chosen(share: str) -> list[str]:
        config = pytester.parseconfigure("-p", "tests.slow", "--slow-share", share)
        items = pytester.getitems(TESTS)
        slow.pytest_collection_modifyitems(config, items)
        run = [item.name for item in items if not item.get_closest_marker("skip")]
        assert run[-10:] == quick
        return run[:-10]

    shares = [chosen(f"{k}/5") for k in range(1, 6)]
    assert all(shares)
    assert sorted(itertools.chain(*shares)) == sorted(f"test_slow[{i}]" for i in range(60))


@pytest.mark.parametrize("share", ["0/5", "6/5", "2", "a/b"])
def test_a_share_that_is_none_is_refused(pytester, share):
    with pytest.raises(pytest.UsageError, match=f"--slow-share.*{share}"):
        pytester.parseconfig("-p", "tests.slow", "--slow-share", share)
