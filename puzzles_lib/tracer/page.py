"""Provide the files of triton-viz's page of one run, and the answers to its requests.

The page is triton-viz's own. Its server is not used, because it keeps a single run in globals, prints into
the notebook and sends NaN, which JSON does not have. `three.bundle.js`, made by ``make explorer``, contains
what the page would fetch from a CDN. Some lines of the page are edited, so that tensors have names and axes
have numbers.
"""

import hashlib
import html
import importlib.util
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from puzzles_lib.binding import Bound
from puzzles_lib.inputs import make_inputs
from puzzles_lib.runner import Access, Product, Program, Run
from puzzles_lib.source import Site, with_helpers

Step = Access | Product

MOST_ELEMENTS = 200_000  # the most elements of a tensor: each is a cube on the page
MOST_STEPS = 20_000  # the most loads, stores and dots of a run: each is a tab of its program
BUNDLE = Path(__file__).with_name("three.bundle.js")

_MOST_SUBSETS = 256  # as on the page, which only counts programs from there on
_TYPES = {"load": "Load", "store": "Store"}
_AROUND = 8  # the number of the kernel's lines before and after the current one

# Edits of triton-viz's page: the file, the text, and its replacement.
EDITS = {
    "components/tensor_view.js": (
        # Tensors by their names, elements by as many indices as the tensor has.
        (
            "function updateSideMenu(",
            "const named = (name) => name === 'Global' ? window.last_op?.overall_key ?? name : name;\n"
            "function updateSideMenu(",
        ),
        ("`<h3>${name} Tensor</h3>", "`<h3>${named(name)}</h3>"),
        ("? `tensor${indexExpr} =", "? `${named(name)}${indexExpr} ="),
        ("coords.slice().reverse() : []", "coords.slice(0, shape?.length).reverse() : []"),
        ("? [coords[1], coords[0], coords[2]]\n", "? coords\n"),  # it is reversed again later
        ("name: name === 'Global' ? type :", "name: name === 'Global' ? op.overall_key :"),
        # The page draws on demand: draw again when the numbers on the axes have been made.
        (
            "        ctx.applyBackgroundTheme = (hex) => {\n",
            "        dimLineGroups.forEach((group) => group.traverse((part) =>\n"
            "            part.addEventListener('synccomplete', ctx.requestRender)));\n"
            "        ctx.applyBackgroundTheme = (hex) => {\n",
        ),
    ),
    "utils/dimension_utils.js": (
        # Without their own callback the numbers are not drawn. They have one size on any tensor.
        (
            "textMesh.onBeforeRender = function (_renderer, _scene, camera) {\n",
            "textMesh.onBeforeRender = function (renderer, scene, camera, ...rest) {\n"
            "            Text.prototype.onBeforeRender.call(this, renderer, scene, camera, ...rest);\n"
            "            const far = camera.position.distanceTo(this.position);\n"
            "            this.scale.setScalar(Math.max(1, 0.08 * far));\n"
            "            this.updateMatrixWorld();\n",
        ),
        ("textMesh.strokeWidth =", "textMesh.outlineWidth ="),  # a stroke covers the digits
        ("textMesh.strokeColor =", "textMesh.outlineColor ="),
    ),
}

# The page is made for its own window: in a notebook's frame its panel would cover the picture.
_STYLE = """
:root { --sidebar-width: clamp(230px, 32vw, 440px) }
#control-panel { padding: 14px 16px; gap: 14px; overflow-y: auto }
.title-block { min-width: 0 }
.panel-header h1 { font-size: 17px; overflow-wrap: anywhere }
.viz-shape-legend { left: 12px !important; bottom: 12px !important }
@media (max-width: 1280px) {
  .viz-app { grid-template-columns: var(--sidebar-width) var(--sidebar-resizer-width) 1fr }
  #control-panel { position: static; width: auto; box-shadow: none }
  #canvas-wrapper { grid-row: auto }
  .sidebar-resizer { display: block }
}
"""

# Before the page's own script: a browser that blocks storage in frames, and a dark desktop.
_BEFORE = """
try { localStorage.length } catch {
  Object.defineProperty(window, "localStorage", { value: { getItem: () => null, setItem() {} } });
}
if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.theme = "dark";
"""


@dataclass(frozen=True)
class Recording:
    """A clean run as triton-viz's page shows it.

    title: what was run. kernel: its name. grid: the number of programs along each axis.
    tensors: the numbers in each tensor after the run, by name.
    steps: every load, store, atomic and dot, program by program.
    sources: lines of the kernel and of each helper, by their numbers.
    """

    title: str
    kernel: str
    grid: tuple[int, ...]
    tensors: Mapping[str, np.ndarray]
    steps: Sequence[Step]
    sources: Sequence[Mapping[int, str]]

    @property
    def too_large(self) -> str:
        """Return why a browser could not show the run; "" if it can."""
        for name, values in self.tensors.items():
            if values.size > MOST_ELEMENTS:
                return (
                    f"{name} has {values.size:,} elements; triton-viz's page draws at most {MOST_ELEMENTS:,}"
                )
        if len(self.steps) > MOST_STEPS:
            return (
                f"{len(self.steps):,} loads, stores and dots; triton-viz's page lists at most {MOST_STEPS:,}"
            )
        return ""

    @property
    def left_out(self) -> str:
        """Return what triton-viz does not record, with its line; "" if nothing is missing."""
        sites = {s.site: s for s in self.steps if isinstance(s, Access) and s.kind == "atomic"}
        lines = ", ".join(str(site.line) for site in sorted(sites, key=lambda site: site.line))
        return f"triton-viz does not record atomics, so line {lines} is missing" if lines else ""


def recorded(title: str, bound: Bound, ran: Run) -> Recording:
    """Return what a clean guarded run did and what it left in its tensors."""
    tensors = make_inputs(bound.puzzle, bound.case) | ran.outputs
    values = {
        name: (t.float() if t.dtype.itemsize < 4 and t.is_floating_point() else t).numpy().copy()
        for name, t in tensors.items()
        if name in bound.takes
    }
    sources = []
    for function in with_helpers(bound.kernel):
        numbered = enumerate(function.raw_src, function.starting_line_number)
        sources.append({number: line.rstrip() for number, line in numbered})
    grid = tuple(int(n) for n in bound.puzzle.grid(bound.case))
    return Recording(title, bound.kernel.fn.__name__, grid, values, tuple(ran.steps()), tuple(sources))


# ---- files


def missing() -> str:
    """Return why there is no page to serve; "" if there is one."""
    try:
        files()
    except ImportError as error:
        return str(error)
    except (KeyError, OSError):
        return "the installed triton-viz does not have the page that the course knows"
    return ""


@cache
def files() -> Mapping[str, bytes]:
    """Return the files under ``static/`` on the page, by path."""
    (_triton_viz() / "templates" / "index.html").stat()  # `Page.index` reads it
    folder = _triton_viz() / "static"
    found = {
        p.relative_to(folder).as_posix(): p.read_text()
        for p in folder.rglob("*.*")
        if p.suffix in (".js", ".css")
    }
    for name, edits in EDITS.items():
        for old, new in edits:
            found[name] = found[name].replace(old, new)
    return {name: text.encode() for name, text in found.items()} | {BUNDLE.name: BUNDLE.read_bytes()}


@cache
def fetched() -> tuple[str, ...]:
    """Return the addresses of the modules that triton-viz's scripts import from outside."""
    scripts = "\n".join(text.decode() for name, text in files().items() if name != BUNDLE.name)
    return tuple(sorted(set(re.findall(r"from ['\"](https?://[^'\"]+)['\"]", scripts))))


def _triton_viz() -> Path:
    """Return the folder of the package without importing it."""
    found = importlib.util.find_spec("triton_viz")
    if found is None or found.origin is None:
        raise ImportError("triton-viz is not installed")
    return Path(found.origin).parent


# ---- answers


@dataclass(frozen=True)
class Page:
    """The page of one recording, and the answers to its requests."""

    recording: Recording
    nonce: str = field(default="")

    @cached_property
    def index(self) -> bytes:
        """Return the page itself. Its addresses are relative, because a proxy may put it anywhere."""
        imports = json.dumps({"imports": dict.fromkeys(fetched(), f"./static/{BUNDLE.name}")})
        head = (
            f'<link rel="icon" href="data:,"><script type="importmap" nonce="{self.nonce}">{imports}</script>'
            f'<script nonce="{self.nonce}">{_BEFORE}</script><style>{_STYLE}</style></head>'
        )
        kernel, title = html.escape(self.recording.kernel), html.escape(self.recording.title)
        text = (_triton_viz() / "templates" / "index.html").read_text()
        text = re.sub(r"<title>.*?</title>", lambda _: f"<title>{kernel}</title>", text)
        text = re.sub(r"<h1>.*?</h1>", lambda _: f"<h1>{kernel}</h1>", text)
        text = text.replace("Filter program IDs and explore the active program workspace.", title)
        return text.replace('="/static/', '="static/').replace("</head>", head).encode()

    @cached_property
    def _programs(self) -> dict[Program, list[Step]]:
        """Return the steps that triton-viz shows, by program; every program of the grid has an entry."""
        grid = (*self.recording.grid, 1, 1)[:3]
        programs: dict[Program, list[Step]] = {(x, y, z): [] for x, y, z in np.ndindex(*grid)}
        for step in self.recording.steps:
            if isinstance(step, Product) or step.kind in _TYPES:
                programs[step.program].append(step)
        return programs

    @cached_property
    def _by_id(self) -> dict[str, Step]:
        return {_id(p, n): step for p, steps in self._programs.items() for n, step in enumerate(steps)}

    @cached_property
    def data(self) -> dict[str, object]:
        """Return every operation of every program, without its values."""
        tabs = {
            str(program): [self._tab(step, number) for number, step in enumerate(steps)]
            for program, steps in self._programs.items()
        }
        return {"ops": {"visualization_data": tabs, "failures": {}, "kernel_src": ""}, "analysis": {}}

    def _tab(self, step: Step, number: int) -> dict[str, object]:
        common = {"uuid": _id(step.program, number), "op_index": number, "time_idx": number}
        if isinstance(step, Product):
            shapes = [list(operand.shape) for operand in (step.left, step.right, _product(step))]
            named = dict(zip(("input_shape", "other_shape", "output_shape"), shapes, strict=True))
            return {"type": "Dot", **named, "c_shape": shapes[2], **common}
        return {
            "type": _TYPES[step.kind],
            "global_shape": list(_shown(self.recording.tensors[step.argument]).shape),
            "slice_shape": list(step.elements.shape),
            "overall_key": step.argument,
            **common,
        }

    def answer(self, request: str, asked: Mapping[str, Any]) -> dict[str, object]:
        """Return the answer to ``api/REQUEST``. Raise LookupError for an unknown request."""
        if request == "getLoadStoreAllPrograms":
            return self._sharers(str(asked["overall_key"]), str(asked["type"]), int(asked["op_index"]))
        step = self._by_id[str(asked["uuid"])]
        if request == "op_code":
            return self._code(step.site)
        if request == "histogram":
            return _histogram(self._values(step, str(asked["source"])), int(asked.get("bins", 64)))
        sources = {"getLoadTensor": "GLOBAL", "getMatmulA": "A", "getMatmulB": "B", "getMatmulC": "C"}
        return self._tensor(step, sources[request])

    def _values(self, step: Step, source: str) -> np.ndarray:
        if isinstance(step, Product):
            return {"A": lambda: step.left, "B": lambda: step.right, "C": lambda: _product(step)}[source]()
        return {"GLOBAL": self.recording.tensors[step.argument]}[source]

    def _tensor(self, step: Step, source: str) -> dict[str, object]:
        """Return a tensor's numbers, and which of them the program's lanes access."""
        values = _shown(self._values(step, source))
        finite = _finite(values)
        told = {
            "shape": list(values.shape),
            "dims": values.ndim,
            "min": float(finite.min()) if finite.size else 0.0,
            "max": float(finite.max()) if finite.size else 0.0,
            # The page reads value [y][x][z] of a tensor with three axes, of which z is the first.
            "values": _plain(values.transpose(1, 2, 0) if values.ndim == 3 else values),
        }
        if isinstance(step, Access) and len(places := _places(step, values.shape)):
            told["highlights"] = _lit(places)
        return told

    def _sharers(self, name: str, kind: str, number: int) -> dict[str, object]:
        """Return which programs access each element at one place of the kernel."""
        shape = _shown(self.recording.tensors[name]).shape
        programs: dict[tuple[int, ...], list[Program]] = {}
        for program, steps in self._programs.items():
            step = steps[number] if 0 <= number < len(steps) else None
            if isinstance(step, Access) and step.argument == name and _TYPES[step.kind] == kind:
                for place in _places(step, shape).tolist():
                    programs.setdefault(tuple(place), []).append(program)
        groups = {tuple(group) for group in programs.values()}
        told: dict[str, object] = {
            "subset_count": len(groups),
            "counts": [[*place, len(group)] for place, group in programs.items()],
            "max_count": max((len(group) for group in groups), default=0),
            "shape": list(shape),
        }
        if len(groups) > _MOST_SUBSETS:
            return {**told, "coords": [], "subsets": {}}
        keys = {group: "s" + hashlib.sha256(repr(group).encode()).hexdigest()[:8] for group in groups}
        subsets = {keys[group]: [list(program) for program in group] for group in sorted(groups)}
        coords = [[*place, keys[tuple(group)]] for place, group in programs.items()]
        return {**told, "coords": coords, "subsets": subsets}

    def _code(self, site: Site) -> dict[str, object]:
        """Return the kernel's lines around a line."""
        lines = next(
            (s for s in self.recording.sources if s.get(site.line, "").strip() == site.source.strip()),
            {site.line: site.source},
        )
        near = {n: text for n, text in lines.items() if abs(n - site.line) <= _AROUND}
        return {
            "filename": self.recording.kernel,
            "lineno": site.line,
            "highlight": site.line,
            "lines": [{"no": number, "text": text} for number, text in near.items()],
        }


def _id(program: Program, number: int) -> str:
    return f"{'.'.join(map(str, program))}-{number}"


def _product(step: Product) -> np.ndarray:
    wide = np.float64 if step.left.dtype.kind == "f" else np.int64
    with np.errstate(all="ignore"):
        return np.matmul(step.left.astype(wide), step.right.astype(wide))


def _shown(values: np.ndarray) -> np.ndarray:
    """Return a shape with one to three axes, which the page can draw; the first of more are joined."""
    if values.ndim <= 3:
        return np.atleast_1d(values)
    return values.reshape(-1, *values.shape[-2:])


def _places(step: Access, shape: tuple[int, ...]) -> np.ndarray:
    """Return x, y, z of each element that active lanes access, as [n, 3]."""
    elements = np.unique(step.elements[step.mask & ~step.bad])
    in_three = (1,) * (3 - len(shape)) + tuple(shape)
    return np.stack(np.unravel_index(elements, in_three)[::-1], axis=1)


def _lit(places: np.ndarray) -> dict[str, object]:
    """Return a box of elements as its corner and size, and any other elements one by one."""
    corner = places.min(axis=0)
    size = places.max(axis=0) - corner + 1
    if math.prod(size.tolist()) == len(places):
        return {"type": "descriptor", "start": corner.tolist(), "shape": size.tolist()}
    return {"type": "array", "data": places.tolist()}


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)] if values.dtype.kind == "f" else values


def _plain(values: np.ndarray) -> list:
    """Return nested lists for JSON: floats with six digits, and NaN and infinities by name."""
    if values.dtype.kind != "f":
        return (values.astype(np.int64) if values.dtype.kind == "b" else values).tolist()
    flat = [float(f"{v:.6g}") if math.isfinite(v) else _NAMES[str(v)] for v in values.ravel().tolist()]
    return np.array(flat, dtype=object).reshape(values.shape).tolist()


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # as JavaScript reads them


def _histogram(values: np.ndarray, bins: int) -> dict[str, object]:
    """Return a histogram of the values without NaN and infinities."""
    finite = _finite(values).astype(np.float64).ravel()
    counts, edges = np.histogram(finite, bins=min(max(bins, 2), 512))
    return {
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "min": float(finite.min(initial=math.inf)) if finite.size else 0.0,
        "max": float(finite.max(initial=-math.inf)) if finite.size else 0.0,
        "n": values.size,
        "sampled": finite.size,
    }
