"""The page of a report: one file of HTML that needs no server and no network.

Whatever comes from the runs goes through `_escaped`, or as JSON into an element that is no program;
the policy in the head of the page allows no other program than its own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from html import escape as _escaped
from importlib import resources
from string import Template

from .. import __version__
from .ranking import NONE, Effect, Mean, Ranking, Setting, effects
from .report_runs import Collected, Run

STATIC = 50
"""Rows of the table that are there without JavaScript."""

METHODS = 12
"""Up to so many settings are compared as methods, each in a column."""

LEVELS = 40
"""Of axes with more levels, as those that are drawn at random, no effects are shown."""

FAILURES = 50
"""Different tracebacks that are shown."""

_COLUMN = ' scope="col"'


def render(collected: Collected, ranking: Ranking, figures: dict[str, bytes]) -> str:
    """Return the page.

    :param collected: the runs.
    :param ranking: their settings.
    :param figures: PNG pictures of the best settings, by data set.
    """
    files = resources.files(__package__)
    script = files.joinpath("report.js").read_text("utf-8")
    head = ["rank", "data", *ranking.axes, *_scores(ranking), "runs"]
    return Template(files.joinpath("report.html").read_text("utf-8")).substitute(
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        score=_escaped(ranking.score),
        orientation=ranking.orientation,
        summary=_summary(collected, ranking),
        notes=_notes(collected.notes),
        best="".join(_best(ranking, at, figures.get(data)) for data, at in ranking.best.items()),
        methods=_methods(ranking),
        head=_row(head, "th", _COLUMN),
        rows="\n".join(_row(_cells(setting)) for setting in ranking.settings[:STATIC]),
        count=min(STATIC, len(ranking.settings)),
        total=len(ranking.settings),
        table=_json(ranking, head),
        effects="".join(_axis(axis, found) for axis, found in effects(ranking).items())
        or "<p>No axis has several levels.</p>",
        failures=_failures([run for run in collected.runs if run.error is not None]),
    )


def _row(cells: Iterable[object], tag: str = "td", attributes: str = "") -> str:
    inner = "".join(f"<{tag}{attributes}>{_escaped(str(cell))}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def _table(caption: str, head: Iterable[str], rows: Iterable[str]) -> str:
    top = _row(head, "th", _COLUMN)
    return (
        f'<div class="wide"><table><caption>{caption}</caption><thead>{top}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _items(pairs: Iterable[tuple[str, object]]) -> str:
    inner = "".join(f"<dt>{_escaped(a)}</dt><dd>{_escaped(str(b))}</dd>" for a, b in pairs)
    return f"<dl>{inner}</dl>"


def _scores(ranking: Ranking) -> list[str]:
    return [f"validation {ranking.score}", f"test {ranking.score}"]


def _summary(collected: Collected, ranking: Ranking) -> str:
    failed = sum(run.error is not None for run in collected.runs)
    hours = sum(run.seconds for run in collected.runs if math.isfinite(run.seconds)) / 3600.0
    return _items(
        [
            ("runs", f"{len(collected.runs) - failed:,} done, {failed:,} failed"),
            ("time of the runs", f"{hours:.2f} h"),
            ("settings", f"{len(set(setting.levels for setting in ranking.settings)):,}"),
            ("data sets", ", ".join(ranking.levels["data"])),
            *((axis, _listed(ranking.levels[axis])) for axis in ranking.axes),
            ("repetitions over", ", ".join(ranking.repeated) or "nothing"),
            *((f"{axis} (in all runs)", level) for axis, level in ranking.constant.items()),
            ("newest run", f"{collected.newest:%Y-%m-%d %H:%M} UTC"),
            ("made by", f"gpflow_gvi {__version__}"),
        ]
    )


def _listed(levels: Sequence[str]) -> str:
    return ", ".join(levels) if len(levels) <= LEVELS else f"{len(levels):,} levels"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{_escaped(note)}</li>" for note in notes[:FAILURES])
    return f"<details><summary>{len(notes)} skipped</summary><ul>{items}</ul></details>"


def _best(ranking: Ranking, setting: Setting, figure: bytes | None) -> str:
    pairs = [
        *zip(ranking.axes, setting.levels, strict=True),
        *zip(_scores(ranking), (setting.validation, setting.test), strict=True),
        ("runs", _runs(setting)),
        ("folder", setting.runs[0].name + (" and others" if len(setting.runs) > 1 else "")),
    ]
    picture = ""
    if figure is not None:
        coded = base64.b64encode(figure).decode()
        alt = _escaped(f"Prediction of {setting.runs[0].name}")
        picture = f'<img alt="{alt}" src="data:image/png;base64,{coded}">'
    return f"<article><h3>{_escaped(setting.data)}</h3>{picture}{_items(pairs)}</article>"


def _runs(setting: Setting) -> str:
    return f"{len(setting.runs)}" + (f", {setting.failed} failed" if setting.failed else "")


def _cells(setting: Setting) -> list[object]:
    place = NONE if setting.rank is None else setting.rank
    scores = (setting.validation, setting.test)
    return [place, setting.data, *setting.levels, *scores, _runs(setting)]


def _methods(ranking: Ranking) -> str:
    """Return data sets × settings, where these are few."""
    settings = sorted({setting.levels for setting in ranking.settings})
    if not 2 <= len(settings) <= METHODS:
        return ""
    best = ranking.best
    found = {(setting.data, setting.levels): setting for setting in ranking.settings}
    rows = []
    for data in ranking.levels["data"]:
        cells = [f'<th scope="row">{_escaped(data)}</th>']
        for levels in settings:
            at = found.get((data, levels))
            inner = NONE if at is None else _escaped(str(at.test))
            is_best = at is not None and at is best.get(data)
            cells.append(f"<td><strong>{inner}</strong></td>" if is_best else f"<td>{inner}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    caption = (
        f"Test {_escaped(ranking.score)}, mean ± standard error over repetitions. Bold: the best "
        "by validation."
    )
    heads = [", ".join(levels) for levels in settings]
    return f"<h2>Methods</h2>{_table(caption, ['data', *heads], rows)}"


def _axis(axis: str, found: Sequence[Effect]) -> str:
    if len(found) > LEVELS:
        return f"<p>{_escaped(axis)} has {len(found):,} levels, too many to show each.</p>"
    ends = [end for effect in found for end in _ends(effect.shift) if math.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    rows = []
    for effect in found:
        cells: list[object] = [
            effect.shift,
            NONE if math.isnan(effect.median) else f"{effect.median:.4g}",
        ]
        cells += [effect.shift.n, effect.best]
        inner = "".join(f"<td>{_escaped(str(cell))}</td>" for cell in cells)
        rows.append(
            f'<tr><th scope="row">{_escaped(effect.level)}</th>'
            f"<td>{_plot(effect.shift, low, high)}</td>{inner}</tr>"
        )
    head = ["level", "", "mean", "median", "settings", "best of so many data sets"]
    return _table(_escaped(axis), head, rows)


def _ends(shift: Mean) -> tuple[float, float]:
    error = 0.0 if math.isnan(shift.error) else shift.error
    return shift.mean - error, shift.mean + error


def _plot(shift: Mean, low: float, high: float) -> str:
    """Return a dot with its standard error, and where zero is; the numbers stand beside it."""
    if not shift.n or not 0.0 < high - low < math.inf:
        return ""
    left, right, mean, zero = (
        f"{5.0 + 190.0 * (x - low) / (high - low):.1f}" for x in (*_ends(shift), shift.mean, 0.0)
    )
    return (
        '<svg width="200" height="14" aria-hidden="true">'
        f'<line class="zero" x1="{zero}" x2="{zero}" y1="0" y2="14"/>'
        f'<line x1="{left}" x2="{right}" y1="7" y2="7"/><circle cx="{mean}" cy="7" r="4"/></svg>'
    )


def _failures(failed: Sequence[Run]) -> str:
    """Return the tracebacks, each with the runs that ended in it."""
    groups: dict[str, list[str]] = {}
    for run in failed:
        groups.setdefault(str(run.error).strip(), []).append(run.name)
    found = []
    for error, names in sorted(groups.items(), key=lambda item: -len(item[1]))[:FAILURES]:
        title = f"{len(names):,} × {error.splitlines()[-1][:200] if error else NONE}"
        more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
        found.append(
            f"<details><summary>{_escaped(title)}</summary>"
            f"<p>{_escaped(', '.join(names[:20]))}{more}</p>"
            f"<pre>{_escaped(error[-8000:])}</pre></details>"
        )
    if len(groups) > FAILURES:
        found.append(f"<p>{len(groups) - FAILURES:,} other tracebacks are in results.csv.</p>")
    return "".join(found) or "<p>None.</p>"


def _json(ranking: Ranking, head: Sequence[str]) -> str:
    """Return the whole table: of each row rank, sorted scores, texts, and numbers of levels."""
    names = ["data", *ranking.axes]
    index = [{level: n for n, level in enumerate(ranking.levels[name])} for name in names]
    rows = []
    for at in ranking.settings:
        means = (at.validation, at.test)
        rows.append(
            [
                at.rank,
                *(mean.mean if math.isfinite(mean.mean) else None for mean in means),
                *(str(mean) for mean in means),
                len(at.runs),
                _runs(at),
                *(of[level] for of, level in zip(index, (at.data, *at.levels), strict=True)),
            ]
        )
    levels = [ranking.levels[name] for name in names]
    value = {"names": names, "head": head, "levels": levels, "rows": rows}
    # As JSON the same; as HTML no end of the element.
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
