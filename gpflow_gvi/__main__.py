"""The command line: `gpflow-gvi` and `python -m gpflow_gvi`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="gpflow-gvi",
        description="Generalised variational inference for Gaussian processes.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="fit a curve with a gap; print a table, draw a picture")
    demo.add_argument(
        "--output", type=Path, default=Path("demo.png"), help="where the picture goes"
    )
    demo.add_argument("--seed", type=int, default=0, help="seed of data and network")
    demo.add_argument("--iterations", type=int, default=1000, help="at most so many per model")
    options = parser.parse_args(arguments)

    start = time.perf_counter()
    with _quiet_start():
        from . import demo as demonstration

    print(demonstration.run(options.output, seed=options.seed, iterations=options.iterations))
    print(f"\nThe picture is {options.output.resolve()} ({time.perf_counter() - start:.0f} s).")
    return 0


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep what TensorFlow writes to stderr while it loads out of a short answer.

    It does so from C++ and before it reads its own log level, hence the file descriptor.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main())
