"""Measure packed activations beside other ways to train in less memory: time, memory and loss.

Two models train under autocast to bfloat16 with AdamW: the byte language model of
`puzzles_lib.examples.train_lm` (base size, 384 x 256 bytes), and a ViT-B/16 that names the characters of
`puzzles_lib.examples.glyphs` (224 x 224 pixels, batch 128). A third, transformers' Llama with a billion
weights in bfloat16, reads 2 x 8192 bytes. All paths start with the same weights and get the same batches.

"Compiled" means that each block is compiled. ``us`` is the wall time of a step, ``bytes`` the peak above what
is there before it, ``loss`` the mean of the last steps. Paths that need another library are left out if it
isn't installed.

With several GPUs each of them measures some paths, on cores of its own, and torch's own step for comparison.
"""

import gc
import importlib.util
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from puzzles_lib.bench.checkpointing import checkpointed, on_the_host, plain_checkpoint
from puzzles_lib.examples.glyphs import Glyphs, glyphs
from puzzles_lib.examples.lm import SIZES, ByteLM, corpus, draw
from puzzles_lib.examples.vit import ViT
from puzzles_lib.kernels.checkpoints import pack_checkpoints, packed_checkpoint
from puzzles_lib.kernels.modules import pack_activations
from puzzles_lib.timing import provenance

STEPS = {"LM": 100, "ViT": 200, "Llama": 30}
LAST, ROUNDS, SECONDS, WARM_UP = 20, 5, 0.3, 50
FP8 = {"quant_type": "torch.float8_e4m3fn", "use_scaling": True, "size_in_mb": 8}
"""Inductor's options for saved activations: 8 MB leaves out weights and attention's sums."""


@dataclass(frozen=True)
class Task:
    """A model, its batches and its loss.

    model: a function that makes a model with fresh weights. batch: a function that makes a batch, given a
    device and a generator on it.
    rate: the highest learning rate.
    paths: functions that change the model, by the path's name. needs: the library that must be installed, if
    any.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[torch.device, torch.Generator], tuple[torch.Tensor, torch.Tensor]]
    rate: float
    paths: Mapping[str, Callable[[nn.Module], nn.Module]]
    needs: str = ""


def _text(
    count: int, length: int, device: torch.device, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    host = torch.Generator().manual_seed(int(torch.randint(2**40, (), generator=generator, device=device)))
    return draw(_corpus(str(device)), host, count, length)


@cache
def _corpus(device: str) -> torch.Tensor:
    return corpus()[0].to(device)


@cache
def _glyphs(device: str) -> Glyphs:
    return glyphs()[0].to(device)


def _pictures(
    count: int, device: torch.device, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = _glyphs(str(device)).draw(generator, count, 224)
    return images.expand(-1, 3, -1, -1), labels


class _Llama(nn.Module):
    """transformers' Llama, called with bytes and asked for logits."""

    def __init__(self, **sizes: int) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(vocab_size=256, use_cache=False, attn_implementation="sdpa", **sizes)
        self.model = LlamaForCausalLM(config).to(torch.bfloat16)

    def forward(self, bytes: torch.Tensor) -> torch.Tensor:
        return self.model(bytes).logits


LLAMA = {
    "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 8192, "max_position_embeddings": 8192,
}  # fmt: skip


# ---- the paths


class _OnHost(nn.Module):
    """A model whose saved tensors wait in the host's memory."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return self.model(x)


def _compiled(model: nn.Module) -> nn.Module:
    for block in model.get_submodule("blocks").children():
        block.compile(fullgraph=True)
    return model


def _liger(model: nn.Module) -> nn.Module:
    from liger_kernel.transformers import LigerLayerNorm

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.LayerNorm:
                norm = LigerLayerNorm(child.normalized_shape[0], eps=child.eps, bias=True)
                norm.weight, norm.bias = child.weight, child.bias
                setattr(parent, name, norm)
    return model


def _float8(model: nn.Module) -> nn.Module:
    from torchao.float8 import convert_to_float8_training

    def wanted(module: nn.Module, name: str) -> bool:
        return name.startswith("blocks")

    convert_to_float8_training(model, module_filter_fn=wanted)
    return _compiled(model)


TORCH = "torch"
PATHS: dict[str, Callable[[nn.Module], nn.Module]] = {
    TORCH: lambda model: model,
    "torch, compiled": _compiled,
    "torch, compiled, half the memory": _compiled,
    "torch, compiled, saved in fp8": _compiled,
    "torchao, fp8 products, compiled": _float8,
    "Liger's norms": _liger,
    "checkpointed": partial(checkpointed, plain_checkpoint),
    "checkpointed, inputs in 8 bits": partial(checkpointed, partial(packed_checkpoint, bits=8)),
    "checkpointed, inputs in 4 bits": partial(checkpointed, partial(packed_checkpoint, bits=4)),
    "checkpointed, inputs on the host": partial(checkpointed, on_the_host),
    "all saved on the host": _OnHost,
    "packed, 4 bits": partial(pack_activations, bits=4),
    "packed, 2 bits": partial(pack_activations, bits=2),
    "packed, 4 bits, compiled": lambda model: _compiled(pack_activations(model, 4)),
}
"""What to do to a model, by name."""


def _enabled(model: nn.Module) -> nn.Module:
    inner = model.model
    name = "activation_checkpointing_enable"  # newer versions of transformers warn of the other name
    getattr(inner, name if hasattr(inner, name) else "gradient_checkpointing_enable")()
    return model


def _enabled_and_packed(bits: int, model: nn.Module) -> nn.Module:
    pack_checkpoints(_enabled(model), bits)
    return model


LLAMA_PATHS: dict[str, Callable[[nn.Module], nn.Module]] = {
    TORCH: PATHS[TORCH],
    "packed, 4 bits": PATHS["packed, 4 bits"],
    "packed, 2 bits": PATHS["packed, 2 bits"],
    "checkpointed": _enabled,
    "checkpointed, inputs in 8 bits": partial(_enabled_and_packed, 8),
    "checkpointed, inputs in 4 bits": partial(_enabled_and_packed, 4),
    "checkpointed, inputs on the host": lambda model: _OnHost(_enabled(model)),
}
TASKS = {
    "LM": Task(lambda: ByteLM(**SIZES["base"]), partial(_text, 384, SIZES["base"]["context"]), 6e-4, PATHS),
    "ViT": Task(lambda: ViT(classes=glyphs()[0].classes), partial(_pictures, 128), 3e-4, PATHS),
    "Llama": Task(lambda: _Llama(**LLAMA), partial(_text, 2, 8192), 1e-4, LLAMA_PATHS, "transformers"),
}
NEEDS = {"torchao, fp8 products, compiled": "torchao", "Liger's norms": "liger_kernel"}
BUDGET = {"torch, compiled, half the memory": 0.5}


def _options(path: str) -> Any:
    """Return a context in which a path has torch's settings that it needs."""
    import torch._functorch.config
    import torch._inductor.config

    if path in BUDGET:
        return torch._functorch.config.patch(activation_memory_budget=BUDGET[path])
    if path == "torch, compiled, saved in fp8":
        passes = {"activation_quantization_aten_pass": FP8}
        return torch._inductor.config.patch(post_grad_fusion_options=passes, force_disable_caches=True)
    return nullcontext()


# ---- measuring


def measure(
    tasks: Mapping[str, Task] = TASKS, steps: Mapping[str, int] = STEPS, limit: float | None = None
) -> dict[str, Any]:
    """Return this bench's record. limit: the time limit in seconds. Raises RuntimeError without a GPU."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise RuntimeError("bench beside needs a CUDA device")
    jobs = [(task, path) for task in tasks for path in tasks[task].paths if path != TORCH]
    lists = [jobs[len(jobs) * n // count : len(jobs) * (n + 1) // count] for n in range(count)]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [
        context.Process(target=_worker, args=(n, count, some, dict(steps), queue))
        for n, some in enumerate(lists)
    ]
    for worker in workers:
        worker.start()
    rows, end = [], time.monotonic() + (limit or 3600)
    while any(worker.is_alive() for worker in workers) or not queue.empty():
        if time.monotonic() > end:
            break
        if not queue.empty():
            rows.append(queue.get())
        else:
            time.sleep(0.2)
    for worker in workers:
        worker.kill()
    order = {(task, path): n for n, (task, path) in enumerate((t, p) for t in tasks for p in tasks[t].paths)}
    rows.sort(key=lambda row: order[row["task"], row["path"]])
    first = {(row["task"], row["path"]): row for row in reversed(rows)}  # each GPU measured torch's step
    rows = [row for row in rows if row is first[row["task"], row["path"]]]
    return {**provenance(), "steps": dict(steps), "rows": rows}


def _worker(number: int, count: int, jobs: list[tuple[str, str]], steps: dict[str, int], queue: Any) -> None:
    """Measure some paths on one GPU, with a share of the cores."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // count)
    os.sched_setaffinity(0, cores[number * each : (number + 1) * each])
    torch.set_num_threads(min(4, each))
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    base: dict[str, dict[str, Any]] = {}
    for task, path in [*((task, TORCH) for task in dict.fromkeys(t for t, _ in jobs)), *jobs]:
        library = NEEDS.get(path) or TASKS[task].needs
        if library and importlib.util.find_spec(library) is None:
            print(f"{task}, {path}: {library} is not installed", flush=True)
            continue
        try:
            found = run(TASKS[task], path, device, steps[task])
        except Exception as error:  # of another library, or memory: the other paths go on
            print(f"{task}, {path}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        base.setdefault(task, found)
        row = {"task": task, "path": path, **found}
        row |= {f"baseline_{name}": base[task][name] for name in ("us", "bytes")}
        queue.put(row)
        ratio, share = found["us"] / base[task]["us"], found["bytes"] / base[task]["bytes"]
        print(f"{task:4} {path:34} {found['us'] / 1000:8.1f} ms {ratio:6.2f}x {found['bytes'] / 1e9:6.2f} GB "
              f"{share:5.2f}  loss {found['loss']:.4f}", flush=True)  # fmt: skip


def run(task: Task, path: str, device: torch.device, steps: int) -> dict[str, Any]:
    """Train on one path, and return ``us`` of a step, ``bytes`` and ``loss``."""
    on_gpu = device.type == "cuda"
    torch._dynamo.reset()
    torch.manual_seed(0)
    with _options(path):
        with device:
            model = task.paths[path](task.model())
        optimizer = torch.optim.AdamW(
            model.parameters(), task.rate, (0.9, 0.95), weight_decay=0.1, fused=on_gpu
        )
        generator = torch.Generator(device).manual_seed(1)

        def step(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(batch[0])
                loss = F.cross_entropy(logits.flatten(0, -2).float(), batch[1].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        losses = []
        for number in range(steps):
            for group in optimizer.param_groups:
                rise = min(1.0, (number + 1) / WARM_UP)
                group["lr"] = task.rate * rise * 0.5 * (1 + math.cos(math.pi * number / steps))
            losses.append(step(task.batch(device, generator)))
        loss = statistics.fmean(torch.stack(losses[-LAST:]).tolist())
        del losses
        batch, times, peak = task.batch(device, generator), [], 1
        if on_gpu:
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            step(batch)
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - before
        calls = 1
        for _ in range(ROUNDS if on_gpu else 1):
            start = time.perf_counter()
            for _ in range(calls):
                step(batch)
            torch.cuda.synchronize() if on_gpu else None
            times.append((time.perf_counter() - start) / calls)
            calls = max(1, round(SECONDS / times[-1]))
    return {"us": round(1e6 * statistics.median(times), 1), "bytes": peak, "loss": round(loss, 4)}


def table(record: Mapping[str, Any]) -> str:
    """Return a record as text."""
    lines = [f"{'':4} {'path':34} {'ms':>8} {'of torch':>8} {'GB':>6} {'of torch':>8}    loss"]
    for row in record["rows"]:
        times = f"{row['us'] / 1000:8.1f} {row['us'] / row['baseline_us']:8.2f}"
        memory = f"{row['bytes'] / 1e9:6.2f} {row['bytes'] / row['baseline_bytes']:8.2f}"
        lines.append(f"{row['task']:4} {row['path']:34} {times} {memory}  {row['loss']:.4f}")
    return "\n".join(lines)
