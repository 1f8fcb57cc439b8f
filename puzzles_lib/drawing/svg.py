"""Turn figures into SVG that follows the theme of the page; matplotlib draws on it as on any canvas.

The colors of `puzzles_lib.drawing.colours` become CSS variables of Jupyter's themes, with fallbacks. Texts
stay texts, in the page's own font, and equal looks are written once. Ids begin with a digest of the
picture, so that the ids of pictures on a page differ. The same figure gives the same bytes.
"""

import base64
import hashlib
import html
import io
import re
import warnings
from typing import Any

import numpy as np
from matplotlib.backend_bases import FigureCanvasBase, GraphicsContextBase, RendererBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import imsave
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Affine2D, Bbox, Transform
from matplotlib.typing import ColorType

from puzzles_lib.drawing.card import untypeset
from puzzles_lib.drawing.colours import BLACK, INK, PAPER, THEME, text_color, themed, themed_line

DPI = 96  # CSS pixels per inch
LEAST_TEXT, COLUMN = 11, 785  # the width of an output, in pixels, in a window of 1000
_FONT = "var(--jp-content-font-family,system-ui,sans-serif)"
_CODE_FONT = "var(--jp-code-font-family,monospace)"
_MARK = "\N{SECTION SIGN}"  # a placeholder for the beginning of ids until it is known
_RECTANGLE = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
_MOVE = re.compile(r"(\S+) ([-\d.e]+)(.*)", re.DOTALL)
_LOOK_BACK = 60  # how many elements are searched for one with the same look


def to_svg(figure: Figure, alt: str, crop: bool) -> str:
    """Return the figure as one ``<svg>`` element. crop: cut or extend it to what is drawn."""
    buffer = io.BytesIO()
    box = "tight" if crop else None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the page's font may have it
        backend = f"module://{__name__}"
        figure.savefig(buffer, format="svg", dpi=DPI, backend=backend, bbox_inches=box, facecolor="none")
    body = buffer.getvalue().decode()
    name = "p" + hashlib.sha256(f"{alt}{body}".encode()).hexdigest()[:10]
    told = f'role="img" aria-labelledby="{name}"'
    body = body.replace("<svg ", f"<svg {told} ", 1)
    head, _, rest = body.partition(">")
    told = untypeset(html.escape(alt))
    return f'{head}><desc id="{name}">{told}</desc>{rest}'.replace(_MARK, name)


class FigureCanvas(FigureCanvasBase):
    """The canvas that ``savefig`` draws on."""

    filetypes = {"svg": "Scalable Vector Graphics"}

    def print_svg(self, buffer: io.BytesIO, **_: object) -> None:
        width, height = self.figure.bbox.width, self.figure.bbox.height
        renderer = _Renderer(width, height)
        self.figure.draw(renderer)
        buffer.write(renderer.page().encode())


class _Element:
    """Shapes or texts with the same look. box: the area that they cover."""

    def __init__(self, tag: str, look: str, content: str, box: Bbox):
        self.tag, self.look, self.contents, self.box = tag, look, [content], box

    def join(self, content: str, box: Bbox) -> None:
        self.contents.append(content)
        self.box = Bbox.union([self.box, box])

    def meets(self, box: Bbox) -> bool:
        mine = self.box
        return mine.x0 < box.x1 and box.x0 < mine.x1 and mine.y0 < box.y1 and box.y0 < mine.y1

    def __str__(self) -> str:
        if self.tag == "path":
            return f'<path {self.look} d="{"".join(self.contents)}"/>'
        return f"<g {self.look}>{''.join(self.contents)}</g>"


class _Renderer(RendererBase):
    """Writes what matplotlib draws as SVG; y runs down, in CSS pixels."""

    def __init__(self, width: float, height: float):
        super().__init__()
        self.width, self.height = width, height
        self.elements: list[_Element] = []
        self.definitions: dict[tuple[str, str, str], str] = {}
        self.fills: list[tuple[Bbox, str]] = []  # rectangles and their colors, in order

    # ---- what matplotlib asks for

    def flipy(self) -> bool:
        return True

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

    def points_to_pixels(self, points: Any) -> Any:
        return points * DPI / 72

    def option_image_nocomposite(self) -> bool:
        return True

    def draw_path(
        self, gc: GraphicsContextBase, path: Path, transform: Transform, rgbFace: ColorType | None = None
    ) -> None:
        flipped = transform + Affine2D().scale(1, -1).translate(0, self.height)
        shape, box = _drawn(path, flipped, simplify=path.should_simplify and rgbFace is None)
        if not shape:
            return
        if rgbFace is not None and (path.codes is not None and np.array_equal(path.codes, _RECTANGLE)):
            self.fills.append((box, to_hex(rgbFace)))
        clip, hatch = self._clip(gc, box), gc.get_hatch()
        fill = "" if rgbFace is None else _paint("fill", themed(to_hex(rgbFace)), rgbFace, gc)
        line = ""
        if gc.get_linewidth() > 0 and gc.get_rgb()[3] > 0:
            line = self._line(gc, on_paper=not fill and not hatch)
        if hatch:
            if fill:
                self._add("path", fill + clip, shape, box)
            fill = f'fill="url(#{self._hatch(gc, hatch)})"'
        if fill or line:
            self._add("path", " ".join(filter(None, [fill or 'fill="none"', line])) + clip, shape, box)

    def draw_markers(
        self,
        gc: GraphicsContextBase,
        marker_path: Path,
        marker_trans: Transform,
        path: Path,
        trans: Transform,
        rgbFace: ColorType | None = None,
    ) -> None:
        points = (trans + Affine2D().scale(1, -1).translate(0, self.height)).transform(path.vertices)
        points = points[np.isfinite(points).all(1)]
        shape, box = _drawn(marker_path, marker_trans + Affine2D().scale(1, -1))
        if not len(points) or not shape:
            return
        fill = 'fill="none"' if rgbFace is None else _paint("fill", themed(to_hex(rgbFace)), rgbFace, gc)
        has_line = gc.get_linewidth() > 0 and gc.get_rgb()[3] > 0
        look = " ".join(filter(None, [fill, self._line(gc, on_paper=rgbFace is None) if has_line else ""]))
        if marker_path.codes is not None and Path.CURVE4 in np.asarray(marker_path.codes) and box.width <= 6:
            if rgbFace is not None:  # small dots: the caps of lines without length
                paint = _paint("stroke", themed(to_hex(rgbFace)), rgbFace, gc)
                look, shape = (
                    f'{paint} stroke-width="{_short(box.width + 1)}" stroke-linecap="round"',
                    "M0 0h0",
                )
        pieces = [match.groups() for match in map(_MOVE.match, shape.split("M")[1:]) if match]
        drawn = [
            f"M{_short(x + float(right))} {_short(y + float(down))}{rest}"
            for x, y in points
            for right, down, rest in pieces
        ]
        low, high = points.min(0) + box.min, points.max(0) + box.max
        around = Bbox([low, high])
        self._add("path", look + self._clip(gc, around), "".join(drawn), around)

    def option_scale_image(self) -> bool:
        return True

    def draw_image(
        self, gc: GraphicsContextBase, x: float, y: float, im: Any, transform: Transform | None = None
    ) -> None:
        height, width = im.shape[:2]
        if transform is not None:
            matrix = transform.get_matrix()
            width, height = matrix[0, 0], matrix[1, 1]
        top = self.height - y - abs(height)
        place = f'x="{_short(x)}" y="{_short(top)}" width="{_short(width)}" height="{_short(abs(height))}"'
        buffer = io.BytesIO()
        shown = np.asarray(im)[::-1] if height > 0 else np.asarray(im)
        imsave(buffer, shown, format="png", metadata={"Software": None})  # type: ignore[dict-item]
        data = base64.b64encode(buffer.getvalue()).decode()
        content = f'<image {place} preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
        box = Bbox.from_bounds(x, top, width, abs(height))
        self._add("g", 'style="image-rendering:pixelated"', content, box)

    def draw_text(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: FontProperties,
        angle: float,
        ismath: Any = False,
        mtext: Text | None = None,
    ) -> None:
        size = max(self.points_to_pixels(prop.get_size_in_points()), LEAST_TEXT * self.width / COLUMN)
        width = self.get_text_width_height_descent(s, prop, ismath)[0]
        anchor = mtext.get_horizontalalignment() if mtext is not None else "left"
        share = {"left": 0.0, "center": 0.5, "right": 1.0}[anchor]
        turn = np.deg2rad(angle)
        right, down = x + share * width * np.cos(turn), y - share * width * np.sin(turn)
        colour = self._readable(to_hex(gc.get_rgb()), right + (0.5 - share) * width, y - size / 3)
        look = [f'fill="{themed_line(colour)}"', f'font-size="{_short(size)}"']
        if share:
            look.append(f'text-anchor="{"middle" if share == 0.5 else "end"}"')
        if prop.get_weight() in ("bold", 700):
            look.append('font-weight="bold"')
        if "monospace" in prop.get_family():
            look.append(f'font-family="{_CODE_FONT}"')
        turned = f' transform="rotate({_short(-angle)} {_short(right)} {_short(down)})"' if angle else ""
        kept = ' xml:space="preserve"' if "  " in s or s != s.strip() else ""
        told = untypeset(html.escape(s, False), "tspan")
        content = f'<text x="{_short(right)}" y="{_short(down)}"{turned}{kept}>{told}</text>'
        box = Bbox.from_bounds(x, y - size, max(width, 1), size)
        if angle:
            box = Bbox.from_bounds(x - width, y - width, 2 * width, 2 * width)
        self._add("g", " ".join(look), content, box)

    def _readable(self, colour: str, x: float, y: float) -> str:
        """Return the color for a text there: black or white on a fill that no theme changes."""
        if colour in (INK, BLACK, PAPER):
            for box, fill in reversed(self.fills):
                if box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1:
                    return text_color(fill)
        return colour

    # ---- looks

    def _line(self, gc: GraphicsContextBase, on_paper: bool) -> str:
        colour = to_hex(gc.get_rgb())
        look = [_paint("stroke", themed_line(colour) if on_paper else themed(colour), gc.get_rgb(), gc)]
        width = _short(self.points_to_pixels(gc.get_linewidth()))
        if width != "1":
            look.append(f'stroke-width="{width}"')
        dashes = gc.get_dashes()[1]
        if dashes is not None:
            lengths = " ".join(_short(self.points_to_pixels(d)) for d in np.asarray(dashes))
            look.append(f'stroke-dasharray="{lengths}"')
        cap = {"projecting": "square", "round": "round"}.get(gc.get_capstyle())
        if cap and dashes is None:
            look.append(f'stroke-linecap="{cap}"')
        if gc.get_joinstyle() == "round":
            look.append('stroke-linejoin="round"')
        return " ".join(look)

    def _clip(self, gc: GraphicsContextBase, box: Bbox) -> str:
        """Return the attribute that clips what passes the axes; "" if nothing does."""
        limits = gc.get_clip_rectangle()
        if limits is None:
            return ""
        left, right, top, bottom = limits.x0, limits.x1, self.height - limits.y1, self.height - limits.y0
        if box.x0 > left - 1 and box.x1 < right + 1 and box.y0 > top - 1 and box.y1 < bottom + 1:
            return ""
        size = f'width="{_short(right - left)}" height="{_short(bottom - top)}"'
        name = self._define("clipPath", "", f'<rect x="{_short(left)}" y="{_short(top)}" {size}/>')
        return f' clip-path="url(#{name})"'

    def _hatch(self, gc: GraphicsContextBase, hatch: str) -> str:
        """Return the id of a hatch by matplotlib's name: dots, lines or crosses; a longer name is denser."""
        apart = {1: 12, 2: 9, 3: 7.5, 4: 6.5}.get(len(hatch), 5.5)
        colour = themed(to_hex(gc.get_hatch_color()))
        half = _short(apart / 2)
        if "." in hatch or "o" in hatch:
            shape = f'<circle cx="{half}" cy="{half}" r="1" fill="{colour}"/>'
        else:
            level = f"M0 {half}h{_short(apart)}" if "x" in hatch else ""
            shape = f'<path d="{level}M{half} 0v{_short(apart)}" stroke="{colour}"/>'
        size = f'width="{_short(apart)}" height="{_short(apart)}" patternUnits="userSpaceOnUse"'
        turn = -45 if "\\" in hatch else 45
        return self._define("pattern", f'{size} patternTransform="rotate({turn})"', shape)

    def _define(self, tag: str, look: str, shape: str) -> str:
        """Return the id of a definition, which is written once."""
        return self.definitions.setdefault((tag, look, shape), f"{_MARK}-{len(self.definitions)}")

    # ---- the page

    def _add(self, tag: str, look: str, content: str, box: Bbox) -> None:
        """Add a shape to an element with the same look, unless a later one is between them; else on top."""
        inner = Bbox.from_extents(box.x0 + 0.8, box.y0 + 0.8, box.x1 - 0.8, box.y1 - 0.8)
        for element in reversed(self.elements[-_LOOK_BACK:]):
            if (element.tag, element.look) == (tag, look):
                return element.join(content, box)
            if element.meets(inner):
                break
        self.elements.append(_Element(tag, look, content, box))

    def page(self) -> str:
        width, height = _short(self.width), _short(self.height)
        style = f"{THEME};display:block;max-width:100%;height:auto;background:var(--paper)"
        definitions = "".join(
            f'<{tag} id="{name}" {look}>{shape}</{tag}>'
            for (tag, look, shape), name in self.definitions.items()
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'font-family="{_FONT}" style="{style}">{definitions}{"".join(map(str, self.elements))}</svg>'
        )


def _paint(attribute: str, colour: str, rgb: Any, gc: GraphicsContextBase) -> str:
    alpha = gc.get_alpha() if gc.get_forced_alpha() else rgb[3] if len(rgb) > 3 else 1.0
    shown = f'{attribute}="{colour}"'
    return shown if alpha == 1.0 else f'{shown} {attribute}-opacity="{_short(alpha)}"'


def _short(number: float) -> str:
    """Return a number with at most one decimal, because a tenth of a pixel is not visible."""
    rounded = round(float(number), 2 if abs(number) < 1 else 1)
    return f"{rounded:g}" if rounded else "0"


def _drawn(path: Path, transform: Transform, simplify: bool = False) -> tuple[str, Bbox]:
    """Return a path as SVG commands, and the box around it."""
    commands: list[str] = []
    corners: list[tuple[int, int]] = []  # in tenths of a pixel
    start = here = (0, 0)
    for points, code in path.iter_segments(transform, simplify=simplify):
        if code == Path.CLOSEPOLY:
            commands.append("z")
            here = start
            continue
        tenths = np.round(np.asarray(points).reshape(-1, 2) * 10).astype(int)
        steps = [(int(x), int(y)) for x, y in tenths]
        corners += steps
        if code == Path.MOVETO:
            start = here = steps[0]
            commands.append(f"M{_tenths(here[0])} {_tenths(here[1])}")
            continue
        apart = [(x - here[0], y - here[1]) for x, y in steps]
        (right, down), here = apart[-1], steps[-1]
        if code == Path.LINETO and not down:
            commands.append(f"h{_tenths(right)}" if right else "")
        elif code == Path.LINETO and not right:
            commands.append(f"v{_tenths(down)}")
        else:
            letter = {Path.LINETO: "l", Path.CURVE3: "q", Path.CURVE4: "c"}[code]
            commands.append(letter + " ".join(f"{_tenths(x)} {_tenths(y)}" for x, y in apart))
    if len(corners) < 2:
        return "", Bbox.null()
    low, high = np.min(corners, 0) / 10, np.max(corners, 0) / 10
    return "".join(commands), Bbox([low, high])


def _tenths(number: int) -> str:
    return str(number // 10) if number % 10 == 0 else f"{number / 10:g}"
