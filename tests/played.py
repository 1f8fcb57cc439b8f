"""Reads what `puzzles_lib.player.packing` packed, for tests: by itself, and through the page's script."""

import base64
import json
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import puzzles_lib.player

SCRIPT = Path(puzzles_lib.player.__file__).with_name("player.js")
NODE = shutil.which("node")
_WORDS = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


class Played:
    """A packed run. tree: as JSON has it."""

    def __init__(self, text: str):
        stream = zlib.decompress(base64.b64decode(text))
        size = int.from_bytes(stream[:4], "little")
        self.tree: dict[str, Any] = json.loads(stream[4 : 4 + size])
        self.blob = stream[4 + size :]

    def array(self, number: int) -> np.ndarray:
        kind, shape, *rest = self.tree["arrays"][number]
        size = int(np.prod(shape))
        if kind == "c":
            return np.full(shape, _plain(rest[0]))
        if kind == "a":
            first, steps = rest
            return first + sum(
                (np.arange(n) * s).reshape([-1 if a == axis else 1 for a in range(len(shape))])
                for axis, (n, s) in enumerate(zip(shape, steps, strict=True))
            )
        if kind == "b":
            bits = np.frombuffer(self.blob, np.uint8, -(-size // 8), rest[0])
            return np.unpackbits(bits, count=size, bitorder="little").astype(bool).reshape(shape)
        dtype = np.dtype(kind)
        planes = np.frombuffer(self.blob, np.uint8, size * dtype.itemsize, rest[0])
        return np.ascontiguousarray(planes.reshape(dtype.itemsize, size).T).view(dtype).reshape(shape)

    def value(self, number: int) -> Any:
        """What a name holds: an array, a number, a text, a list of a tuple's parts."""
        value = self.tree["values"][number]
        if "text" in value:
            return value["text"]
        if "parts" in value:
            return [self.value(part) for part in value["parts"]]
        return self.array(value["a"]) if "a" in value else _plain(value["x"])

    def program(self, number: int = 0) -> dict[str, Any]:
        return next(p for p in self.tree["programs"] if p["number"] == number)

    def lines(self, number: int = 0) -> list[str]:
        """The first source line of each step of a program."""
        program, found = self.program(number), []
        for step in program["steps"]:
            function = self.tree["functions"][program["frames"][step["f"]][0]]
            line = function["statements"][step["k"]][0] if "k" in step else 1
            found.append(function["lines"][line - 1].strip())
        return found

    def changes(self, name: str, number: int = 0) -> list[Any]:
        """What a name was changed to, step by step."""
        steps = self.program(number)["steps"]
        return [self.value(v) for step in steps for n, v in step.get("w", ()) if n == name]

    def stored(self, tensor: int) -> dict[int, tuple[Any, int]]:
        """What lies in a tensor at the end: by element its value and what it is."""
        found = {}
        for program in self.tree["programs"]:
            stores = [each for each in program["before"] if each["T"] == tensor]
            for step in program["steps"]:
                stores += [a["s"] for a in step.get("a", ()) if a["T"] == tensor and "s" in a]
            for each in stores:
                columns = (self.array(each[key]).ravel().tolist() for key in "ivr")
                found.update({i: (v, r) for i, v, r in zip(*columns, strict=True)})
        return found


def _plain(value: Any) -> Any:
    return _WORDS.get(value, value) if isinstance(value, str) else value


def in_node(expression: str, data: str) -> Any:
    """What an expression of `player.js`'s functions, of ``run`` and ``program`` gives, under node."""
    code = f"""
        const p = require({json.dumps(str(SCRIPT))});
        (async () => {{
          const run = await p.unpacked(require("fs").readFileSync(0, "utf8"));
          const program = run.programs[run.program];
          const result = {expression};
          console.log(JSON.stringify(result, (key, value) => typeof value === "bigint" ? String(value)
            : typeof value === "number" && !Number.isFinite(value) ? String(value)
            : value instanceof Map ? [...value] : ArrayBuffer.isView(value) ? [...value] : value));
        }})();
    """
    done = subprocess.run([NODE, "-e", code], input=data, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
