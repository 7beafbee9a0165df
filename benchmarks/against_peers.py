"""One table of all that was measured beside others: ours, the best of them, and the ratio.

Each part of the benchmarks has tables of its own; what they compare is read off them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .timing import Row

OURS = "CholeskySVGP"
"""The model of which a step is compared with one of SVGP, with kernel and Z fixed as ours are."""


def comparisons(tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return a row for each comparison that the tables hold.

    :param tables: those of the parts, by their titles.
    """
    return [
        {
            "of": what,
            "ours": ours,
            "best peer": min(peers.values()),
            "which": min(peers, key=peers.__getitem__),
            "ratio": (ratio := ours / min(peers.values())),
            "not more": "yes" if ratio <= 1.0 else "no",
        }
        for title, rows in tables.items()
        for what, ours, peers in _read(title, rows)
        if peers
    ]


def _read(title: str, rows: Sequence[Row]) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Yield what is compared, our figure, and those of others, of which less is better."""
    if title == "Steps":
        for size in dict.fromkeys((row["B"], row["M"]) for row in rows):
            ms = {row["model"]: row["ms"] for row in rows if (row["B"], row["M"]) == size}
            peers = {name: value for name, value in ms.items() if name.endswith("Z fixed")}
            yield f"step, B={size[0]}, M={size[1]} (ms)", ms[OURS], peers
    if title == "Distance and gradient":
        for B in dict.fromkeys(row["B"] for row in rows):
            ms = {row["estimator"]: row["ms"] for row in rows if row["B"] == B}
            three = {"three eigendecompositions": 3.0 * ms["eigh of NumPy"]}
            yield f"exact W₂² with its gradient, B={B} (ms)", ms["exact"], three
    if title == "Predictions":
        for row in rows:
            of = f"{row['rows']:,} rows (ms)"
            yield f"predict_y of {of}", row["predict_y"], {"exported": row["exported"]}
            theirs = {"GPflow": row["GPflow SVGP posterior"]}
            yield f"posterior of {of}", row["PGVI posterior"], theirs
    if title == "Selection":
        for row in rows:
            of = f"selection, N={row['N']:,}, D={row['D']}, M={row['M']} (s)"
            yield of, row["gpflow-gvi (s)"], {"NumPy": row["NumPy (s)"]}
    if title == "NNGP":
        for row in rows:
            theirs = {"neural-tangents": row["neural-tangents (s)"]}
            yield f"NNGP, {row['Gram matrix']} (s)", row["gpflow-gvi (s)"], theirs
    if title == "End to end":
        for data in dict.fromkeys(row["data"] for row in rows):
            of = {row["model"]: row for row in rows if row["data"] == data}
            theirs = {"GPflow SGPR": of.pop("GPflow SGPR")["processor s"]}
            for model, row in of.items():
                yield f"{model}, {data} (s)", row["processor s"], theirs
