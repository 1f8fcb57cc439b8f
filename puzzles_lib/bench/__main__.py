"""Run one of the measurements: ``python -m puzzles_lib.bench``."""

import argparse
import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

MEASURED = {
    "memory": ("puzzles_lib.bench.memory", "bandwidth of the memory-bound kernels (needs a GPU)"),
    "row-wise": ("puzzles_lib.bench.row_wise", "chapter 10's kernels in several blocks (needs a GPU)"),
    "quantized-matmul": (
        "puzzles_lib.bench.quantized_matmul",
        "chapter 08's 4-bit matmul, step by step (needs a GPU)",
    ),
    "int8": ("puzzles_lib.bench.int8", "int8 dynamic linear on this CPU, and on the GPU if there is one"),
    "dw": ("puzzles_lib.bench.dw", "the fused dW against dequantize + cuBLAS (needs a GPU)"),
    "rounding": ("puzzles_lib.bench.rounding", "what stochastic codes cost beside nearest (needs a GPU)"),
    "producers": (
        "puzzles_lib.bench.producers",
        "norms and activations that pack their output (needs a GPU)",
    ),
    "eager": ("puzzles_lib.bench.eager", "packed layers and steps with no graph (needs a GPU)"),
    "checkpointing": (
        "puzzles_lib.bench.checkpointing",
        "checkpointed blocks whose inputs are packed (needs a GPU)",
    ),
    "training": ("puzzles_lib.bench.training", "training steps on packed activations (needs a GPU)"),
    "ranks": ("puzzles_lib.bench.ranks", "the example of training on two GPUs, packed and not (needs two)"),
    "norms": ("puzzles_lib.bench.norms", "chapter 17's kernels beside torch's (needs a GPU)"),
    "lessons": ("puzzles_lib.bench.lessons", "what chapter 04 saves on a GPU (needs a GPU)"),
    "fused": ("puzzles_lib.bench.fused", "what chapters 03 and 05 save on a GPU (needs a GPU)"),
    "convolution": (
        "puzzles_lib.bench.convolution",
        "chapter 06's convolution in several tiles, beside PyTorch's (needs a GPU)",
    ),
    "machine-code": (
        "puzzles_lib.bench.machine_code",
        "what chapters 13 and 14 read in machine code, timed (needs a GPU)",
    ),
    "attention": ("puzzles_lib.bench.attention", "chapter 18's attention beside torch's (needs a GPU)"),
    "linear-cross-entropy": (
        "puzzles_lib.bench.linear_cross_entropy",
        "a linear layer fused with its loss beside torch's: time, memory (needs a GPU)",
    ),
    "paged-decode": (
        "puzzles_lib.bench.paged_decode",
        "attention over a paged cache beside a copy and torch's (needs a GPU)",
    ),
    "grouped-matmul": (
        "puzzles_lib.bench.grouped_matmul",
        "products by group beside one of cuBLAS and torch's (needs a GPU)",
    ),
    "decoding": (
        "puzzles_lib.bench.decoding",
        "tokens of a language model of real size, by the course's kernels and torch's (needs a GPU)",
    ),
    "packed-weight": ("puzzles_lib.bench.packed_weight", "a packed weight times few rows (needs a GPU)"),
}
"""Benches by name: a module with a ``measure()`` that gives rows, and what it measures."""
RECORDED = {
    "digits": (
        "puzzles_lib.chapters.ch16_from_kernel_to_layer.curves",
        "chapter 16's loss curves, on this CPU: takes minutes",
    ),
    "language": (
        "puzzles_lib.bench.language",
        "a language model's loss on packed activations (needs a GPU, takes minutes)",
    ),
    "glyphs": (
        "puzzles_lib.bench.glyphs",
        "a vision transformer's loss on packed activations (needs a GPU, takes minutes)",
    ),
    "tokens": (
        "puzzles_lib.bench.tokens",
        "a language model's loss by format and tokens per step (needs a GPU, takes minutes)",
    ),
    "codes": (
        "puzzles_lib.bench.codes",
        "a language model's gradients by format, layer and batches summed (needs a GPU)",
    ),
    "beside": (
        "puzzles_lib.bench.beside",
        "packed activations beside checkpointing, offloading, fp8 and others (needs a GPU, takes minutes)",
    ),
    "kept": (
        "puzzles_lib.bench.kept",
        "what autograd keeps of other libraries' models, packed and not, without a GPU",
    ),
    "orders": (
        "puzzles_lib.bench.orders",
        "how often unordered accesses go wrong in chapter 17's kernels (needs a GPU)",
    ),
    "clock": (
        "puzzles_lib.chapters.ch19_what_the_clock_says.clock",
        "chapter 19: how benchmarks lie, waves, the order of tiles, persistent programs (needs a GPU)",
    ),
    "sweep": (
        "puzzles_lib.chapters.ch19_what_the_clock_says.configurations",
        "chapter 19: three kernels in hundreds of configurations (needs a GPU)",
    ),
    "tiles": (
        "puzzles_lib.bench.tiles",
        "the tiles of attention's kernels: the chosen ones among many (needs a GPU)",
    ),
    "points": (
        "puzzles_lib.bench.points",
        "chapter 19: the course's kernels at realistic sizes (needs a GPU)",
    ),
    "profiles": (
        "puzzles_lib.chapters.ch19_what_the_clock_says.profiles",
        "chapter 19: what ncu measures in kernels (needs a GPU)",
    ),
    "ptxas": (
        "puzzles_lib.chapters.ch15_racing_cublas.assemblers",
        "chapter 15's hasty kernel by other assemblers, with no GPU",
    ),
}
"""Those with a record of their own form: a module with ``measure()`` and ``table``."""
RACED = {
    "ladder": "chapter 15's versions of it (needs a GPU)",
    "grid": "about a hundred other launches of them (needs a GPU)",
    "clocks": "what the chip's clock does while each of its versions runs (needs a GPU)",
}
"""Benches of chapter 15, which may run binaries that were compiled on another machine."""
CHAPTER = "puzzles_lib.chapters.ch15_racing_cublas"
CHECKS = "puzzles_lib.authoring.checks"
LANGUAGE_MODEL = "puzzles_lib.bench.language_model"
WATCHED = "puzzles_lib.bench.watched"
CLASSROOM = "puzzles_lib.bench.classroom"
TOGETHER = "puzzles_lib.bench.together"


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    try:
        _run(arguments)
    except (RuntimeError, FileNotFoundError) as error:  # no GPU, or no masters
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: list[str] | None) -> None:
    parser = argparse.ArgumentParser(prog="python -m puzzles_lib.bench")
    commands = parser.add_subparsers(dest="command", required=True)
    checks = commands.add_parser("checks", help="CPU seconds per puzzle for check and for its guarded runs")
    checks.add_argument("--json", action="store_true", help="print one JSON object per puzzle")
    watched = commands.add_parser(
        "watch", help="for each puzzle, the size of watch's page and the cost of recording it"
    )
    watched.add_argument("--json", action="store_true", help="print one JSON object per puzzle")
    commands.add_parser("together", help="CPU seconds of programs that run at once, and one by one")
    classroom = commands.add_parser(
        "classroom", help="the cost of grading a class, which is made up in a folder"
    )
    classroom.add_argument(
        "folder", type=Path, metavar="FOLDER", help="the folder; a stopped run continues there"
    )
    classroom.add_argument("--students", type=int, default=30, metavar="N")
    classroom.add_argument("--workers", type=int, default=2, metavar="N")
    model = commands.add_parser(
        "language-model", help="train chapter 22's model again, on the course's prose: takes minutes"
    )
    model.add_argument("--steps", type=int, default=3600, help="(default: 3600)")
    model.add_argument("--batch", type=int, default=8, help="pieces of 256 bytes per step (default: 8)")
    model.add_argument("--lr", type=float, default=3e-3, help="highest learning rate (default: 0.003)")
    model.add_argument("--seed", type=int, default=0, help="seed of weights and batches (default: 0)")
    model.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: the library)")
    for name, (_, text) in MEASURED.items():
        measured = commands.add_parser(name, help=text)
        measured.add_argument("--json", metavar="FILE", help="write the rows there as well")
    for name, (_, text) in RECORDED.items():
        recorded = commands.add_parser(name, help=text)
        recorded.add_argument("--json", metavar="FILE", help="write the record there as well")
        if name == "ptxas":
            recorded.add_argument(
                "paths",
                metavar="PTXAS",
                nargs="*",
                help="other ptxas programs, such as that in nvidia-cuda-nvcc",
            )
    compile_ = commands.add_parser("compile", help="compile the binaries of ladder and grid, with no GPU")
    compile_.add_argument("file", metavar="FILE", help="where to write them")
    for name, text in RACED.items():
        raced = commands.add_parser(name, help=text)
        raced.add_argument(
            "--binaries", metavar="FILE", help="the file that compile wrote", required=name == "grid"
        )
        raced.add_argument("--json", metavar="FILE", help="write the rows there as well")
    report = commands.add_parser("report", help="print the recorded figures as tables")
    report.add_argument("--results", action="store_true", help="the tables of RESULTS.md, in Markdown")
    chosen = parser.parse_args(arguments)
    if chosen.command == "checks":
        importlib.import_module(CHECKS).print_checks(chosen.json)
    elif chosen.command == "watch":
        importlib.import_module(WATCHED).print_watched(chosen.json)
    elif chosen.command == "together":
        importlib.import_module(TOGETHER).print_together()
    elif chosen.command == "classroom":
        module = importlib.import_module(CLASSROOM)
        print(module.measure(chosen.folder, chosen.students, chosen.workers))
    elif chosen.command == "language-model":
        train = importlib.import_module(LANGUAGE_MODEL).measure
        record = train(chosen.steps, chosen.batch, chosen.lr, chosen.seed, chosen.out)
        print(json.dumps(record, indent=2))
    elif chosen.command in MEASURED:
        from puzzles_lib.timing.recorded import save, table

        module = importlib.import_module(MEASURED[chosen.command][0])
        rows = list(module.measure())
        print(table(rows))
        if chosen.json:
            save(rows, chosen.json)
    elif chosen.command in RECORDED:
        from puzzles_lib.timing.recorded import keep

        module = importlib.import_module(RECORDED[chosen.command][0])
        record = module.measure(chosen.paths) if chosen.command == "ptxas" else module.measure()
        print(module.table(record))
        if chosen.json:
            keep(record, chosen.json)
    elif chosen.command == "compile":
        for line in importlib.import_module(f"{CHAPTER}.programs").compile_all(chosen.file):
            print(line, flush=True)
    elif chosen.command in RACED:
        _race(chosen)
    elif chosen.results:
        from puzzles_lib.timing.recorded.tables import results

        print(results())
    else:
        from puzzles_lib.timing.recorded import report

        print(report())


def _race(chosen: argparse.Namespace) -> None:
    from puzzles_lib.timing.recorded import save, table

    ladder, programs = (importlib.import_module(f"{CHAPTER}.{name}") for name in ("ladder", "programs"))
    told = programs.read(chosen.binaries) if chosen.binaries else {"launches": {}, "triton": ""}
    options = {"programs": programs.Programs(told["binaries"])} if chosen.binaries else {}
    if chosen.command == "clocks":
        found = {name: asdict(each) for name, each in ladder.measure_clocks(**options).items()}
        for name, each in found.items():
            print(f"{name:26} {each['us']:8.1f} us  {each['mhz']:5.0f} MHz  {each['watts']:4.0f} W")
        if chosen.json:
            save([], chosen.json, compiler=told["triton"], clocks=found)
        return
    if chosen.command == "grid":
        some = [rung for rung in programs.grid() if rung.name in told["launches"]]
        rows = list(ladder.measure_grid(some, **options))
    else:
        rows = list(ladder.measure(**options))
    print(table(rows))
    if chosen.json:
        save(rows, chosen.json, compiler=told["triton"], launches=told["launches"])


if __name__ == "__main__":
    sys.exit(main())
