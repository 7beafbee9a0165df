"""Which combinations of values a test tries, where all of them would say little more."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any


def each_value(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """As many cases as the longest parameter has values: the i-th has the i-th value of each.

    A shorter parameter starts again when it ends. For parts that do not know of each other.
    """
    values = [list(parameter) for parameter in parameters]
    number = max(map(len, values))
    return [tuple(own[i % len(own)] for own in values) for i in range(number)]


def each_pair(*parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Few cases in which every two values of different parameters meet: pairwise testing."""
    values = [list(parameter) for parameter in parameters]
    cases = list(itertools.product(*(range(len(own)) for own in values)))

    def pairs(case: tuple[int, ...]) -> set[Any]:
        return set(itertools.combinations(enumerate(case), 2))

    missing, chosen = set().union(*map(pairs, cases)), []
    while missing:
        best = max(cases, key=lambda case: len(pairs(case) & missing))
        missing -= pairs(best)
        chosen.append(tuple(own[i] for own, i in zip(values, best, strict=True)))
    return chosen
