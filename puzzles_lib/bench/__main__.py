"""``python -m puzzles_lib.bench``: runs one of the measurements."""

import argparse
import importlib
import json
import sys

MEASURED = {
    "memory": ("puzzles_lib.bench.memory", "bandwidth of the memory-bound kernels (needs a GPU)"),
    "row-wise": ("puzzles_lib.authoring.row_wise", "chapter 10's kernels in several blocks (needs a GPU)"),
    "int8": ("puzzles_lib.bench.int8", "int8 dynamic linear on this CPU, and on the GPU where there is one"),
    "dw": ("puzzles_lib.bench.dw", "the fused dW against dequantise + cuBLAS (needs a GPU)"),
    "ladder": ("puzzles_lib.chapters.ch15_racing_cublas.ladder", "chapter 15's versions of it (needs a GPU)"),
    "training": ("puzzles_lib.bench.training", "training steps on packed activations (needs a GPU)"),
    "packed-weight": ("puzzles_lib.bench.packed_weight", "a packed weight times few rows (needs a GPU)"),
}
"""Benches by name: a module with a ``measure()`` that gives rows, and what it measures."""
CHECKS = "puzzles_lib.authoring.checks"
WATCHED = "puzzles_lib.authoring.watched"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m puzzles_lib.bench")
    commands = parser.add_subparsers(dest="command", required=True)
    checks = commands.add_parser("checks", help="CPU seconds per puzzle for check, and what guarding costs")
    checks.add_argument("--json", action="store_true", help="print one JSON object per puzzle")
    watched = commands.add_parser(
        "watch", help="per puzzle the size of watch's page, and what recording costs"
    )
    watched.add_argument("--json", action="store_true", help="print one JSON object per puzzle")
    for name, (_, text) in MEASURED.items():
        measured = commands.add_parser(name, help=text)
        measured.add_argument("--json", metavar="FILE", help="write the rows there as well")
    report = commands.add_parser("report", help="the recorded figures as tables")
    report.add_argument("--readme", action="store_true", help="the tables of the README, in Markdown")
    commands.add_parser("plain-interpreter", help="used by checks, in a process of its own")
    chosen = parser.parse_args(arguments)
    if chosen.command == "checks":
        importlib.import_module(CHECKS).print_checks(chosen.json)
    elif chosen.command == "watch":
        importlib.import_module(WATCHED).print_watched(chosen.json)
    elif chosen.command == "plain-interpreter":
        print(json.dumps(importlib.import_module(CHECKS).plain_seconds()))
    elif chosen.command in MEASURED:
        from puzzles_lib.bench.recorded import save, table

        module = importlib.import_module(MEASURED[chosen.command][0])
        rows = list(module.measure())
        print(table(rows))
        if chosen.json:
            save(rows, chosen.json)
    elif chosen.readme:
        from puzzles_lib.bench.recorded.tables import readme

        print(readme())
    else:
        from puzzles_lib.bench.recorded import report

        print(report())


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, FileNotFoundError) as error:  # no GPU, or no masters
        sys.exit(f"error: {error}")
