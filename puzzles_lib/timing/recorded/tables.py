"""The tables of RESULTS.md, from the recorded figures: ``python -m puzzles_lib.bench report --results``."""

import re
from statistics import fmean

from puzzles_lib.timing.recorded import (
    BESIDE,
    CODES,
    EAGER,
    GLYPHS,
    KEPT,
    LANGUAGE,
    TOKENS,
    Row,
    bits_text,
    load,
    rounding_told,
    rows,
)

VIT_B = "100864x768"
CUBLAS, TINYGEMM = "cuBLAS, bfloat16 weight", "tinygemm, torch._weight_int4pack_mm"
LONG, SHORT = "2 bits, 100864x768x768", "2 bits, 8192x768x768"


def results() -> str:
    """Return the tables in Markdown, separated by blank lines."""
    tables = (
        _eager(), _language(), _tokens(), _codes(), _glyphs(), _checkpointing(), _beside(), _kept(),
        _training(), _ranks(), _dw(), _memory(), _producers(), _packed_weight(), _int8(), _norms(),
        _attention(), _lessons(), _convolution(), _machine_code(), _decoding(), _paged(), _grouped(),
        _cross_entropy(),
    )  # fmt: skip
    return "\n\n".join(["\n".join(lines) for lines in tables])


def _ratio(some: list[Row], case: str, path: str, baseline: str) -> float:
    found = [r["ratio"] for r in some if (r["case"], r["path"], r["baseline"]) == (case, path, baseline)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} recorded rows of {path} against {baseline} for {case}, one is wanted")
    return found[0]


def _eager() -> list[str]:
    found = {(row["case"], row["path"]): row for row in rows("eager")}
    other = {(row["case"], row["path"]): row for row in load(EAGER)["rows"]}
    cases = [case for case in dict.fromkeys(case for case, _ in found) if not case.startswith("host")]
    heads = [f"{case.split(',')[0]}: time | on an H200 | memory | cosine" for case in cases]
    lines = [f"| an eager step | {' | '.join(heads)} |", "|---" * (1 + 4 * len(cases)) + "|"]
    for path in dict.fromkeys(path for case, path in found if case in cases):
        cells = []
        for case in cases:
            row = found[case, path]
            cells += [_apart(row), _apart(other[case, path]), _memory_of(row), f"{row['cosine']:.4f}"]
        lines.append(f"| {rounding_told(path)} | {' | '.join(cells)} |")
    return lines


def _apart(row: Row) -> str:
    """A time, and its share of the baseline's time."""
    return f"{row['us'] / 1000:.1f} ms ({row['us'] / row['baseline_us']:.2f})"


def _memory_of(row: Row) -> str:
    return f"{row['bytes'] / 1e9:.2f} GB ({row['bytes'] / row['baseline_bytes']:.2f})"


def _language() -> list[str]:
    record = load(LANGUAGE)
    exact = fmean(record["rows"][0]["held_out"])
    seeds = max(len(row["held_out"]) for row in record["rows"])
    lines = [
        f"| byte language model, {seeds} seeds | held-out loss | minus torch's "
        "| spread over seeds | peak memory |"
    ]
    lines.append("|---" * 5 + "|")
    for row in record["rows"]:
        mean, spread = fmean(row["held_out"]), max(row["held_out"]) - min(row["held_out"])
        cells = [f"{mean:.4f}", f"{mean - exact:+.4f}", f"{spread:.4f}", f"{row['peak'] / 1e9:.2f} GB"]
        lines.append(f"| {row['path']} | {' | '.join(cells)} |")
    return lines


def _tokens() -> list[str]:
    record, usual = load(TOKENS), load(LANGUAGE)
    found = {(row["batch"], row["path"]): fmean(row["held_out"]) for row in record["rows"]}
    found |= {(usual["batch"], row["path"]): fmean(row["held_out"]) for row in usual["rows"]}
    batches = sorted({batch for batch, _ in found})
    counts = " | ".join(f"{batch * record['length']:,}" for batch in batches)
    lines = [f"| held-out loss, by tokens per step | {counts} |", "|---" * (1 + len(batches)) + "|"]
    for path in dict.fromkeys(row["path"] for row in record["rows"]):
        cells = []
        for batch in batches:
            loss, exact = found[batch, path], found[batch, "torch"]
            cells.append(f"{loss:.4f}" if path == "torch" else f"{loss - exact:+.4f}")
        lines.append(f"| {path} | {' | '.join(cells)} |")
    return lines


def _codes() -> list[str]:
    record = load(CODES)
    steps, last = max(row["steps"] for row in record["rows"]), record["sums"][-1]
    some = [row for row in record["rows"] if row["steps"] == steps]
    kinds = list(dict.fromkeys(row["kind"] for row in some))
    head = " | ".join(f"{kind}: 1 batch | {last}" for kind in kinds)
    lines = [f"| cosine of dW after {steps} steps | {head} |", "|---" * (1 + 2 * len(kinds)) + "|"]
    for path in dict.fromkeys(row["path"] for row in some):
        cells = [f"{row['cosine'][n]:.3f}" for row in some if row["path"] == path for n in (0, -1)]
        lines.append(f"| {path} | {' | '.join(cells)} |")
    return lines


def _glyphs() -> list[str]:
    record = load(GLYPHS)
    seeds = max(len(row["held_out"]) for row in record["rows"])
    named = [f"loss, seed {seed}" for seed in range(seeds)] + ["accuracy, best seed", "accuracy, other fonts"]
    head = " | ".join(named)
    lines = [f"| vision transformer | {head} |", "|---" * (3 + seeds) + "|"]
    for row in record["rows"]:
        cells = [f"{loss:.3f}" for loss in row["held_out"]]
        cells += ["–"] * (seeds - len(cells))
        cells += [f"{100 * max(row[name]):.1f}%" for name in ("right", "unseen_right")]
        lines.append(f"| {row['path']} | {' | '.join(cells)} |")
    return lines


def _beside() -> list[str]:
    found = {(row["task"], row["path"]): row for row in load(BESIDE)["rows"]}
    tasks = list(dict.fromkeys(task for task, _ in found))
    head = " | ".join(f"{task}: time | memory" + " | loss" * (task != "ViT") for task in tasks)
    lines = [f"| a step with AdamW | {head} |", "|---" * (2 + head.count("|")) + "|"]
    for path in dict.fromkeys(path for _, path in found):
        cells = []
        for task in tasks:
            row = found.get((task, path))
            cells += [_apart(row), _memory_of(row)] if row else ["–", "–"]
            if task != "ViT":
                cells.append(f"{row['loss']:.3f}" if row else "–")
        lines.append(f"| {rounding_told(path)} | {' | '.join(cells)} |")
    return lines


def _checkpointing() -> list[str]:
    lines = ["| forward and backward | time | memory | cosine |", "|---" * 4 + "|"]
    for row in rows("checkpointing"):
        cells = [_apart(row), _memory_of(row), f"{row['cosine']:.4f}"]
        lines.append(f"| {rounding_told(row['path'])} | {' | '.join(cells)} |")
    return lines


def _kept() -> list[str]:
    lines = ["| kept for backward | torch | 4 bits | 2 bits |", "|---" * 4 + "|"]
    for row in load(KEPT)["rows"]:
        shares = " | ".join(f"{row[path] / row['torch']:.2f}" for path in ("4 bits", "2 bits"))
        lines.append(f"| {row['model']} | {row['torch'] / 1e6:.1f} MB | {shares} |")
    return lines


def _memory() -> list[str]:
    some = rows("memory")

    def line(name: str, path: str, cases: list[str], digits: int) -> str:
        shares = [100 * _ratio(some, case, path, "copy of as many bytes") for case in cases]
        faster = [_ratio(some, case, path, "torch.compile") for case in cases]
        percent = " / ".join(f"{share:.0f}" for share in shares)
        return f"| {name} | {percent}% | {' / '.join(f'{ratio:.{digits}f}' for ratio in faster)}x |"

    lines = ["| kernel | share of a copy | against torch.compile |", "|---|---|---|"]
    for path, name, digits in (("quantize_pack", "quantize + pack", 1), ("dequantize", "dequantize", 2)):
        for group in (256, 128):
            cases = [f"{bits_text(bits)}, groups of {group}, {VIT_B}" for bits in (1, 2, 4, 8)]
            lines.append(line(f"{name}, groups of {group}, 1 / 2 / 4 / 8 bits", path, cases, digits))
    lines.append(line("ReLU with a 1-bit mask", "relu_pack", [VIT_B], 2))
    lines.append(line("ReLU backward from the mask", "relu_unpack_backward", [VIT_B], 2))
    return lines


def _producers() -> list[str]:
    some = rows("producers")
    lines = ["| in one pass, 2 bits | share of a copy | against two kernels | stochastic |", "|---" * 4 + "|"]
    for name, path, shape in (
        ("ReLU, its mask, quantize + pack", "relu_quantize", "100864x3072"),
        ("GELU, its slopes in 4 bits, quantize + pack", "gelu_quantize", "100864x3072"),
        ("LayerNorm, quantize + pack", "layer_norm_quantize", "100864x768"),
        ("RMSNorm, quantize + pack", "rms_norm_quantize", "100864x768"),
    ):
        case = f"2 bits, groups of 256, {shape}"
        share = 100 * _ratio(some, case, path, "copy of as many bytes")
        faster = _ratio(some, case, path, "two kernels")
        dearer = 1 / _ratio(some, case, f"{path}, stochastic", "nearest")
        lines.append(f"| {name} | {share:.0f}% | {faster:.2f}x | {dearer:.2f}x the time |")
    return lines


def _dw() -> list[str]:
    found = {(row["case"], row["path"]): row for row in rows("ladder") + rows("dw")}
    lines = ["| dW = dyᵀ x̂, 768 x 768 | K = 100864 | K = 8192 |", "|---|---|---|"]
    for name, path in (
        ("first fused attempt, plain Triton", "1 first"),
        ("dequantize, then cuBLAS: the baseline", "dequantize + cuBLAS"),
        ("fused, the best in plain Triton", "9 stored in pieces"),
        ("**fused, `dequant_gemm_dw`**", "dequant_gemm_dw"),
        ("cuBLAS alone, x̂ ready", "cuBLAS alone, x^ ready"),
        ("floor: arithmetic at the data sheet's rate", "floor"),
    ):
        cells = [found[case, path] for case in (LONG, SHORT)]
        lines.append(
            f"| {name} | " + " | ".join(f"{c['us']:.0f} µs, {c['ratio']:.2f}x" for c in cells) + " |"
        )
    path = "quantize_pack + dequant_gemm_dw"
    ratios = " | ".join(f"{found[case, path]['ratio']:.2f}x" for case in (LONG, SHORT))
    return [*lines, f"| quantizing included, against the same unfused | {ratios} |"]


def _training() -> list[str]:
    found = {(row["case"], row["path"]): row for row in rows("training") if row["baseline"] == "torch"}
    cases = list(dict.fromkeys(case for case, _ in found))
    head = " | ".join(f"{name}: time | memory | cosine" for name in ("12 blocks", "ViT-B/16"))
    lines = [f"| training step, bfloat16 | {head} |", "|---" * 7 + "|"]
    for path in (
        "torch", "torch, compiled", "torch, checkpointed", "torch, checkpointed and compiled",
        "packed, 4 bits", "packed, 2 bits", "packed, 2 bits, stochastic", "packed, 2 bits, compiled",
    ):  # fmt: skip
        cells = []
        for case in cases:
            row = found[case, path]
            cells += [f"{row['us'] / 1000:.1f} ms", f"{row['bytes'] / 1e9:.2f} GB", f"{row['cosine']:.4f}"]
        lines.append(f"| {rounding_told(path)} | {' | '.join(cells)} |")
    return lines


def _ranks() -> list[str]:
    found = {(row["case"], row["path"]): row for row in rows("ranks")}
    paths, batches = ("torch", "packed, 2 bits"), (256, 1024)
    head = " | ".join(f"batch {batch}, {rounding_told(path)}" for batch in batches for path in paths)
    lines = [f"| images per second, peak memory of a GPU | {head} |", "|---" * 5 + "|"]
    for where in (
        "one GPU", "one GPU, replayed", "DDP on 2 GPUs", "DDP on 2 GPUs, replayed", "DDP on 2 GPUs, compiled",
        "DDP on 2 GPUs, compiled, replayed", "FSDP2 on 2 GPUs", "FSDP2 on 2 GPUs, compiled",
    ):  # fmt: skip
        cells = []
        for batch in batches:
            some = [found.get((f"ViT-B/16, batch {batch}, {where}", path)) for path in paths]
            cells += [
                f"{1e6 * batch / each['us']:.0f}, {each['bytes'] / 1e9:.1f} GB" if each else "–"
                for each in some
            ]
        lines.append(f"| {where} | {' | '.join(cells)} |")
    return lines


def _packed_weight() -> list[str]:
    some = rows("packed-weight")
    sizes = (1, 16, 32, 64)
    lines = ["| packed weight, groups of 128 | " + " | ".join(f"M = {m}" for m in sizes) + " |"]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for bits, shape, measured in (
        (4, "4096x4096", sizes), (4, "8192x8192", sizes), (8, "4096x4096", (1, 16, 64)),
        (2, "4096x4096", (1, 16, 64)),
    ):  # fmt: skip
        cells = []
        for m in sizes:
            case, path = f"{bits_text(bits)}, groups of 128, {m} x {shape}", "dequant_gemm"
            ratio = f"{_ratio(some, case, path, CUBLAS):.2f}x" if m in measured else "–"
            cells.append(ratio)
        lines.append(f"| {bits_text(bits)}, {shape.replace('x', ' x ')} | " + " | ".join(cells) + " |")
    for name, path in (("torch's `_weight_int4pack_mm`", TINYGEMM), ("gemlite 0.6.0", "gemlite")):
        ratios = [_ratio(some, f"4 bits, groups of 128, {m} x 4096x4096", path, CUBLAS) for m in sizes]
        lines.append(f"| {name}, 4 bits, 4096 x 4096 | " + " | ".join(f"{r:.2f}x" for r in ratios) + " |")
    return lines


def _int8() -> list[str]:
    some = rows("int8")
    sizes = (1, 16, 64, 512, 4096)
    lines = ["| int8 linear, 4096 x 4096 | " + " | ".join(f"M = {m}" for m in sizes) + " |"]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for name, baseline in (
        ("against bfloat16 cuBLAS", "bf16 cuBLAS"),
        ("against `torch._int_mm` in plain torch", "torch._int_mm, eager"),
        ("against `torch._int_mm`, the rest compiled", "torch._int_mm, all compiled"),
    ):
        cells = [_ratio(some, f"M = {m}, K = N = 4096", "q8_linear", baseline) for m in sizes]
        lines.append(f"| {name} | " + " | ".join(f"{ratio:.2f}x" for ratio in cells) + " |")
    return lines


def _norms() -> list[str]:
    some = rows("norms")
    shapes = ("50432x768", "8192x4096", "4096x16384")
    lines = [
        "| share of a copy, speed against torch | " + " | ".join(s.replace("x", " x ") for s in shapes) + " |"
    ]
    lines.append("|---" * (len(shapes) + 1) + "|")
    for name, path, baseline in (
        ("RMSNorm, residual added", "rms_norm", "torch, add and rms_norm"),
        ("LayerNorm", "layer_norm", "torch"),
        ("LayerNorm's dx", "layer_norm_dx", "torch"),
        ("LayerNorm's dw and db, in two stages", "layer_norm_dw, 256 rows per program", "torch"),
    ):
        cells = []
        for shape in shapes:
            case = f"{shape}, bfloat16"
            share = 100 * _ratio(some, case, path, "copy of as many bytes")
            cells.append(f"{share:.0f}%, {_ratio(some, case, path, baseline):.2f}x")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _attention() -> list[str]:
    some = rows("attention")
    lines = ["| 16384 rows, T = 4096 | forward: cuDNN | flash | backward: cuDNN | flash |"]
    lines.append("|---" * 5 + "|")
    for columns in (64, 128):
        for kind in ("causal", "full"):
            case = f"D = {columns}, {kind}, T = 4096"
            cells = [
                _ratio(some, case, path, baseline)
                for path in ("forward", "backward")
                for baseline in ("cuDNN", "flash")
            ]
            name = f"D = {columns}, {'causal' if kind == 'causal' else 'all keys'}"
            lines.append(f"| {name} | " + " | ".join(f"{ratio:.2f}x" for ratio in cells) + " |")
    return lines


def _lessons() -> list[str]:
    lines = ["| what chapters 03 to 05 save | time | time / baseline | memory |", "|---" * 4 + "|"]
    for row in (*rows("fused"), *rows("lessons")):
        own = row["path"] == row["baseline"]
        name = f"{row['case']}: {row['path']}" if own else row["path"]
        share = "1.00" if own else f"{row['us'] / row['baseline_us']:.2f}"
        lines.append(f"| {name} | {row['us'] / 1000:.2f} ms | {share} | {_size(row['bytes'])} |")
    return lines


def _convolution() -> list[str]:
    lines = ["| chapter 06's convolution | time | time / PyTorch's |", "|---" * 3 + "|"]
    for row in rows("convolution"):
        own = row["path"] == row["baseline"]
        name = f"{row['case']}: {row['path']}" if own else row["path"]
        lines.append(f"| {name} | {row['us'] / 1000:.2f} ms | {row['us'] / row['baseline_us']:.2f} |")
    return lines


def _machine_code() -> list[str]:
    lines = ["| what chapters 13 and 14 read | time | time / first row |", "|---" * 3 + "|"]
    for case in dict.fromkeys(row["case"] for row in rows("machine-code")):
        some = [row for row in rows("machine-code") if row["case"] == case]
        for row in some:
            name = f"{case}: {row['path']}" if row is some[0] else row["path"]
            lines.append(f"| {name} | {row['us']:.0f} µs | {row['us'] / some[0]['us']:.2f} |")
    return lines


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _decoding() -> list[str]:
    found: dict[str, dict[str, float]] = {}
    for row in rows("decoding"):
        batch = row["case"].split(",")[0].removeprefix("batch ")
        found.setdefault(batch, {})[row["path"]] = 1e6 * int(batch) / row["us"]
    head = " | ".join(f"{batch} text{'s' * (batch != '1')}" for batch in found)
    lines = [f"| tokens per second, share of the lower bound | {head} |", "|---" * (len(found) + 1) + "|"]
    for name, path in (
        ("lower bound: only reading the bytes", "floor"),
        ("**the course's kernels, replayed**", "kernels, CUDA graph"),
        ("the course's kernels, launched one by one", "kernels, eager"),
        ("lmdeploy's Triton kernels, replayed", "lmdeploy, CUDA graph"),
        ("lmdeploy's Triton kernels, launched one by one", "lmdeploy, eager"),
        ("torch, compiled and replayed", "torch, compiled, CUDA graph"),
        ("torch, replayed", "torch, CUDA graph"),
        ("torch, launched one by one", "torch, eager"),
    ):
        cells = [f"{each[path]:.0f}, {100 * each[path] / each['floor']:.0f}%" for each in found.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _paged() -> list[str]:
    found = {(row["case"], row["path"]): row["us"] for row in rows("paged-decode")}
    lines = [
        "| attention over pages, 128 wide | share of a copy | against lmdeploy's | torch's, no pages |",
        "|---" * 4 + "|",
    ]
    for case in dict.fromkeys(case for case, _ in found):
        us, copy = found[case, "paged_attention"], found[case, "copy of as many bytes"]
        told = case.removesuffix(", 128 wide, pages of 16").replace(
            " x ", " text of " if case[:2] == "1 " else " texts of "
        )
        told = re.sub(r"(\d+) heads, (\d+) of keys", r"\1 query heads, \2 KV heads", told)
        faster = [found[case, path] / us for path in ("lmdeploy, pages of 64", "torch, keys in one piece")]
        lines.append(f"| {told} | {100 * copy / us:.0f}% | {faster[0]:.2f}x | {faster[1]:.2f}x |")
    return lines


def _grouped() -> list[str]:
    found = {(row["case"], row["path"]): row for row in rows("grouped-matmul")}
    lines = ["| product by group: y, dx, dw | cuBLAS's rate | against torch's grouped_mm |", "|---" * 3 + "|"]
    for case in dict.fromkeys(case for case, _ in found):
        some = [part for part in ("", ", dx", ", dw") if (case, f"grouped_matmul{part}") in found]
        ours = [found[case, f"grouped_matmul{part}"] for part in some]
        theirs = [found[case, f"torch, grouped_mm{part}"]["us"] for part in some]
        many = int(case.split()[0]) >= 1024  # otherwise the time is that of reading the experts, not just one
        rates = ", ".join(f"{each['ratio']:.2f}" for each in ours) if many else "–"
        faster = ", ".join(f"{us / each['us']:.2f}x" for us, each in zip(theirs, ours, strict=True))
        lines.append(f"| {case} | {rates} | {faster} |")
    return lines


def _cross_entropy() -> list[str]:
    lines = [
        "| linear layer and its loss, with gradients | speed against torch's | memory |",
        "|---" * 3 + "|",
    ]
    for row in rows("linear-cross-entropy"):
        if row["path"] == "linear_cross_entropy":
            gigabytes = f"{row['bytes'] / 1e9:.2f} GB, {row['bytes'] / row['baseline_bytes']:.2f} of torch's"
            lines.append(f"| {row['case'].removesuffix(', bfloat16')} | {row['ratio']:.2f}x | {gigabytes} |")
    return lines
