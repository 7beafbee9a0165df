"""What a block of code computes once, and what it is given."""

from __future__ import annotations

import contextlib

import pytest
import tensorflow as tf

from gpflow_gvi._core.memo import memoised, once, prepare


class Counted:
    """A marked function that records the arguments with which it was computed."""

    def __init__(self) -> None:
        self.calls: list[tuple[tf.Tensor, ...]] = []

        @once
        def double_sum(*terms: tf.Tensor) -> tf.Tensor:
            self.calls.append(terms)
            return 2.0 * tf.add_n(list(terms))

        self.double_sum = double_sum


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_once_within_a_block_and_each_time_outside(counted):
    x, equal = tf.constant(3.0), tf.constant(3.0)
    for _ in range(2):
        assert counted.double_sum(x) == 6.0
    assert len(counted.calls) == 2

    for calls in (5, 8):  # each block starts anew
        with memoised():
            first = counted.double_sum(x)
            assert counted.double_sum(x) is first
            assert counted.double_sum(equal) == first  # equal is not the same: computed
            assert counted.double_sum(x, equal) == 12.0
            assert counted.double_sum(x) is first
        assert len(counted.calls) == calls

    counted.double_sum(x)
    assert len(counted.calls) == 9


def test_arguments_that_only_live_within_the_call_are_not_confused():
    """The address of an object that died is often that of the next one."""
    total = once(lambda numbers: sum(numbers))
    with memoised():
        values = [total([i, i]) for i in range(50)]
    assert values == [2 * i for i in range(50)]


def test_an_error_ends_the_block_and_an_inner_block_ends_before_the_outer(counted):
    x = tf.constant(1.0)
    with memoised():
        first = counted.double_sum(x)
        with contextlib.suppress(ZeroDivisionError), memoised():
            assert counted.double_sum(x) is not first
            raise ZeroDivisionError
        assert counted.double_sum(x) is first
    counted.double_sum(x)
    assert len(counted.calls) == 3


@pytest.mark.parametrize("outer_first", [True, False], ids=["outer first", "body first"])
def test_inner_graphs_have_values_of_their_own(counted, outer_first):
    """A tensor of the body of a loop cannot be used outside of it: tracing would fail."""

    @tf.function
    def run(x: tf.Tensor) -> tf.Tensor:
        with memoised():
            start = counted.double_sum(x) if outer_first else tf.zeros([])
            # Twice in the body, where the second is recalled.
            _, total = tf.while_loop(
                lambda i, total: i < 3,
                lambda i, total: (i + 1, total + counted.double_sum(x) + counted.double_sum(x)),
                (0, start),
            )
            return total + counted.double_sum(x)

    # x = 1.5 doubled is 3: three times two of them, one at the end, and perhaps one at the start.
    assert run(tf.constant(1.5)) == (24.0 if outer_first else 21.0)
    assert len(counted.calls) == 2


def test_given_values_are_used_in_any_graph(counted):
    x, known = tf.constant(3.0), tf.constant(-1.0)
    with memoised() as earlier:
        counted.double_sum(x)
    (key,) = earlier.by_key()

    @tf.function
    def run() -> tuple[tf.Tensor, tf.Tensor]:
        return counted.double_sum(x), counted.double_sum(2.0 * x)

    with memoised(given={key: known}):
        assert counted.double_sum(x) is known
        from_graph = run()
    assert [float(value) for value in from_graph] == [-1.0, 12.0]
    assert len(counted.calls) == 2  # the first, and that of 2x, which was not given


def test_prepare_reaches_a_module_and_its_parts():
    class Part(tf.Module):
        def __init__(self, *parts: tf.Module) -> None:
            super().__init__()
            self.parts, self.prepared = parts, 0

        def prepare(self) -> None:
            self.prepared += 1

    leaf = Part()
    root = Part(tf.Module(), leaf)
    prepare(root)
    assert (root.prepared, leaf.prepared) == (1, 1)
