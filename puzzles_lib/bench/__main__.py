"""``python -m puzzles_lib.bench``: runs one of the measurements."""

import argparse
import importlib
import json

MEASURED = {
    "memory": "bandwidth of the memory-bound kernels (needs a GPU)",
    "row-wise": "chapter 10's kernels in several blocks (needs a GPU)",
    "int8": "int8 dynamic linear on this CPU, and on the GPU where there is one",
    "dw": "the fused dW against dequantise + cuBLAS (needs a GPU)",
    "ladder": "chapter 15's versions of the fused dW (needs a GPU)",
    "packed-weight": "a packed weight times few rows against cuBLAS (needs a GPU)",
}
"""Benches whose module, of the same name, has a ``measure()`` that gives rows."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m puzzles_lib.bench")
    commands = parser.add_subparsers(dest="command", required=True)
    checks = commands.add_parser("checks", help="CPU seconds per puzzle for check, and what guarding costs")
    checks.add_argument("--json", action="store_true", help="print one JSON object per puzzle")
    for name, text in MEASURED.items():
        measured = commands.add_parser(name, help=text)
        measured.add_argument("--json", metavar="FILE", help="write the rows there as well")
    report = commands.add_parser("report", help="the recorded figures as tables")
    report.add_argument("--readme", action="store_true", help="the tables of the README, in Markdown")
    commands.add_parser("plain-interpreter", help="used by checks, in a process of its own")
    chosen = parser.parse_args(arguments)
    if chosen.command == "checks":
        from puzzles_lib.authoring.checks import print_checks

        print_checks(chosen.json)
    elif chosen.command == "plain-interpreter":
        from puzzles_lib.authoring.checks import plain_seconds

        print(json.dumps(plain_seconds()))
    elif chosen.command in MEASURED:
        from puzzles_lib.bench.recorded import save, table

        home = "chapters.ch15_racing_cublas" if chosen.command == "ladder" else "bench"
        module = importlib.import_module(f"puzzles_lib.{home}.{chosen.command.replace('-', '_')}")
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
    main()
