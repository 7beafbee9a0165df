"""Docstrings and comments name the thing itself, as a native engineer would."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

import gpflow_gvi

ROOT = Path(gpflow_gvi.__file__).parent
VAGUE = re.compile(r"(?:^|[.!?:]\s+)Return (?:what|how|whether)\b")
PARTITIVE = re.compile(r"(?:^|[.!?:]\s+)Of\s|:param \w+: of\s")


def _docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Also those below attributes and constants."""
    for node in ast.walk(ast.parse(source)):
        value = getattr(node, "value", None) if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield node.lineno, value.value.strip()


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments on consecutive lines are one text."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = [(t.start[0], t.string.lstrip("#: ")) for t in tokens if t.type == tokenize.COMMENT]
    for _, block in groupby(enumerate(found), key=lambda each: each[1][0] - each[0]):
        lines = [line for _, line in block]
        yield lines[0][0], " ".join(text for _, text in lines)


def _found(pattern: re.Pattern[str], source: str) -> list[int]:
    texts = [*_docstrings(source), *_comments(source)]
    return sorted(
        line + text.count("\n", 0, match.end())
        for line, text in texts
        for match in pattern.finditer(text)
    )


@pytest.mark.parametrize("pattern", [VAGUE, PARTITIVE], ids=["Return whether", "Of"])
def test_no_text_of_the_package_begins_like_this(pattern):
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted(ROOT.rglob("*.py"))
        if (lines := _found(pattern, path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("pattern", "source"),
    [
        (VAGUE, 'def f():\n    """Return whether\n    it rains."""\n'),
        (VAGUE, "# Return how often it rains.\n"),
        (PARTITIVE, 'class A:\n    x: int\n    """Of each\n    row."""\n'),
        (PARTITIVE, '"""It rains. Of two\ndays the first."""\n'),
        (PARTITIVE, 'def f(x):\n    """Rain.\n\n    :param x: of a day.\n    """\n'),
        (PARTITIVE, "# It rains.\n# Of two days, on the first.\n"),
    ],
)
def test_it_is_found_where_it_stands(pattern, source):
    assert len(_found(pattern, source)) == 1
    better = (
        source.replace("Return ", "Returns ").replace("Of", "One of").replace("x: of", "x: one of")
    )
    assert _found(pattern, better) == []
