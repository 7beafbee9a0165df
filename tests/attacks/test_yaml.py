"""Mutated files of experiments and sweeps: each is taken, or refused by a `ConfigError`."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from gpflow_gvi.experiments import ConfigError, read
from gpflow_gvi.experiments.sweep import read_sweep

ROOT = Path(__file__).parents[2]

EXPERIMENTS = (
    (ROOT / "examples" / "experiment.yaml").read_text("utf-8"),
    "data: {kind: table, path: data.csv, inputs: [a, b], outputs: [y]}\n"
    "split: {kind: random, test: 0.1, validation: 0.2}\n"
    "mean: {kind: network, layers: [{kind: dense, units: 5}]}\n"
    "optimiser: {kind: adam, learning_rate: 0.01}\ntraining: {epochs: 3, batch_size: 20}\n"
    "seed: 4\n",
)
SWEEPS = (
    "base: {data: {kind: curve, number: 3}, covariance: cholesky}\n"
    "axes:\n  data.number: [1, 3]\n  divergence.weight: [0.1, 1.0]\n"
    "  mean: [network, regulariser]\nexclude:\n- {mean: network, data.number: 1}\n",
    "base: {data: yacht, split: {kind: given, index: 0}}\n"
    "axes: {split.index: [0, 1]}\n"
    "variants: {method: {PGVI: {}, GWI: {divergence: {kind: gaussian_wasserstein}}}}\n"
    "exclude: [{split.index: [0, 1], method: GWI}]\n",
)

ODD_VALUES = (
    *("null", "[]", "{}", "''", "~", "-", "0", "-1", "1e400", "-1e308", "1e308", ".inf", ".nan"),
    *("1000000000", "99999999999999999999", "0x7fffffffffffffff", "1:2:3", "0o17", "0b1", "1_000"),
    *("9" * 5000, "1e-400", "yes", "true", "2001-01-01", "2001-99-99", "!!int abc", "!!float x"),
    *("!!binary a", "!!binary aGk=", "!!timestamp x", "!!timestamp 2001-01-01", "!!bool 7"),
    *("!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!str {a: 1}", "!!seq {a: 1}"),
    *("!!map [a]", "!!null a", "!!python/object/apply:os.system [ls]", "!unknown x", "! x"),
    *("*unknown", "&a [*a]", "&a {b: *a}", "{? [a]: 1}", "{{a: 1}: 2}", "{1: 2}", "{null: 1}"),
    *("{true: 1}", "{1.5: 1}", "{a: 1, a: 2}", "{<<: {a: 1}}", "{<<: [1]}", "{<<: 1}", "[[[[]]]]"),
    *('"\\0"', '"\\uD800"', '"\\x07"', "'" + "x" * 100_000 + "'", "[" * 3000, "{a: " * 500),
    *("[" * 200 + "]" * 200, "|\n  text", "> text", "'open", '"open', "[open", "a: b: c", "%x"),
    *("{kind: curve}", "{kind: nonsense}", "{kind: [a]}", "{kind: {a: 1}}", "{kind: 3}"),
    *("{kind: table, path: /, inputs: [a], outputs: [b]}", "..", "/", "/dev/null", "é", "\u2028"),
    "{" + ", ".join(f"k{i}: {i}" for i in range(2000)) + "}",
    "[" + ", ".join(map(str, range(5000))) + "]",
)
ODD_TEXTS = (
    *("\x00", "\x07", "\x1b", "\x7f", "\x85", "\ufeff", "\ufffe", "\t", "\r", "\r\n", "---\n"),
    *("...\n", "%YAML 9.9\n---\n", "%TAG ! x\n", "#", ": ", "? ", "- ", "<<: ", "&x ", "*x "),
    *("!!", "{", "}", "[", "]", ",", '"', "'", "|", ">", "@", "`", "\\", "🙂", "\u202e"),
)
ODD_BYTES = (b"\xff", b"\xfe\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\x00\x00", b"\x80")

NUMBERS = ("0", "1", "2", "7", "0.5", "0.01", "30", "1e-9", "1e5")
LINES = tuple(f"{key}: 1\n" for key in ("extra", "data", "base", "seed", "a.b", "1", "~"))

PLACES = {
    r"(?<=: )[^\n,{}\[\]]+|(?<=: )[\[{][^\n]*": ODD_VALUES,
    r"[\w.]+": ODD_VALUES,
    r"\b\d+(\.\d+)?\b": NUMBERS,
    r"(?m)^": (*LINES, "  "),
    r"": ODD_TEXTS,
    r"(?s).{1,20}": ("",),
}
"""What may stand in the place of values, words, numbers, beginnings of lines, nothing, anything."""


def _changed(rng: np.random.Generator, text: str) -> str:
    """Return a text with something else in one place, or with a line in the place of another."""
    lines = text.splitlines(keepends=True)
    if rng.integers(8) == 0:
        lines[rng.integers(len(lines))] = lines[rng.integers(len(lines))]
        return "".join(lines)
    pattern = rng.choice(list(PLACES))
    places = [match.span() for match in re.finditer(pattern, text)] or [(0, 0)]
    start, end = places[rng.integers(len(places))]
    return text[:start] + str(rng.choice(PLACES[pattern])) + text[end:]


def mutated(seed: int) -> tuple[bytes, bool]:
    """Return a file, and whether it is of a sweep."""
    rng = np.random.default_rng(seed)
    is_sweep = bool(rng.integers(2))
    files = SWEEPS if is_sweep else EXPERIMENTS
    text = files[rng.integers(len(files))]
    for _ in range(rng.integers(1, 4)):
        if text:
            text = _changed(rng, text)
    content = text.encode("utf-8", "surrogatepass")
    if rng.integers(20) == 0:
        at = rng.integers(len(content) + 1)
        content = content[:at] + ODD_BYTES[rng.integers(len(ODD_BYTES))] + content[at:]
    return content, is_sweep


class Result(NamedTuple):
    """What came of a file."""

    outcome: str
    detail: str

    @property
    def wrong(self) -> bool:
        return self.outcome not in ("accepted", "refused")


def tried(seed: int, folder: Path) -> Result:
    """Read a mutated file."""
    content, is_sweep = mutated(seed)
    path = folder / f"{seed}.yaml"
    path.write_bytes(content)
    outcome, detail = "accepted", ""
    try:
        if is_sweep:
            read_sweep(path)
        else:
            read(path)
    except ConfigError as error:
        outcome, detail = "refused", str(error)
        if str(path) not in detail:
            outcome = "a message without the path"
        elif len(detail) > 5000 + 40 * content.count(b":"):
            outcome, detail = "a long message", detail[:500]
    except BaseException as error:
        outcome = f"an error of another type, {type(error).__name__}"
        detail = f"{error!r:.200} {traceback.extract_tb(error.__traceback__)[-3:]}"
    path.unlink()
    return Result(outcome, detail)


@pytest.mark.parametrize("first", [0, 40])
def test_a_few_mutated_files(first: int, tmp_path: Path) -> None:
    wrong = [(seed, r) for seed in range(first, first + 40) if (r := tried(seed, tmp_path)).wrong]
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 5100, 500))
def test_mutated_files(first: int, tmp_path: Path) -> None:
    wrong = [(seed, r) for seed in range(first, first + 500) if (r := tried(seed, tmp_path)).wrong]
    assert not wrong
