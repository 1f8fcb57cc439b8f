"""The colors of the pictures, by name. A name is the same color in every chapter.

The values are for a light page. `themed` returns the color in the reader's own theme.
"""

from matplotlib.colors import to_hex, to_rgb
from matplotlib.typing import ColorType

# Okabe & Ito's palette, which readers with any common color blindness can tell apart.
BLACK = "#000000"
ORANGE = "#e69f00"
SKY = "#56b4e9"
GREEN = "#009e73"
YELLOW = "#f0e442"
BLUE = "#0072b2"
VERMILLION = "#d55e00"
PURPLE = "#cc79a7"
PALETTE = (BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE)
# Two more, because programs need eight colors besides the marks.
LILAC = "#b9a7e6"
BROWN = "#8c6239"

# Pale colors, for the background of texts or for repeated parts.
PALE_ORANGE = "#f8e6c4"
PALE_SKY = "#d9eefa"
PALE_GREEN = "#dfeee6"

HEAT = ("#fcf3e0", "#f9e7c2", "#f6dba3", "#f3cf85", "#f0c566", "#ebb233", ORANGE)
"""From nearly nothing to all: cells of a heat map."""

# Grays, from dark to light.
INK = "#1a1a1a"  # text and outlines
HATCHING = "#444444"
FAINT = "#555555"  # lesser labels
RIM = "#777777"  # around a whole tensor
LINE = "#8c8c8c"  # cell borders
GREY = "#999999"
SLATE = "#b0b0b0"  # cell borders under bolder lines, in four shades
BLANK = "#b5b5b5"
SILVER = "#c4c4c4"
MIST = "#cccccc"
PALE = "#eeeeee"  # cells without a meaning
HAZE = "#f4f4f4"  # barely visible parts

# Program 0, 1, 2 ...; without vermillion, black and gray, which mark lanes out of bounds, the outline and
# shared elements.
PROGRAM_COLORS = (SKY, ORANGE, GREEN, PURPLE, YELLOW, BLUE, LILAC, BROWN)
TWELVE_COLORS = (*PROGRAM_COLORS, "#8a8f2a", "#ee99aa", "#3aa6a0", "#5b4aa8")  # for grids of 12 programs
PROGRAM_TINTS = ("#dbeefb", "#fdebc8", "#cdeee2", "#f3dcea", "#fbf7c4", "#cfe3f2", "#e6defa", "#e8dccb")
BAD = VERMILLION  # lanes out of bounds

# On a fill that no theme changes.
JET = "#101010"  # text on bright fills
SNOW = "#fdfdfd"  # text on dark fills
PAPER = "#ffffff"  # the background

# The theme's background and text color: Jupyter's, or else VS Code's, or else a light page's.
_PAPER_OF_THEME = "var(--jp-layout-color0,var(--vscode-editor-background,#fff))"
_INK_OF_THEME = "var(--jp-content-font-color1,var(--vscode-editor-foreground,#1a1a1a))"
# A stored image sees only whether its page is dark, not its variables: JupyterLab's colors for that.
DARK = (
    "<style>@media (prefers-color-scheme:dark){"
    "svg{--jp-layout-color0:#111;--jp-content-font-color1:#fff}}</style>"
)
_SHARES_OF_INK = {  # grays between paper and ink, in percent
    HATCHING: 78, FAINT: 76, RIM: 56, LINE: 48, GREY: 42, SLATE: 34, BLANK: 31, SILVER: 25, MIST: 21,
    PALE: 9, HAZE: 5,
}  # fmt: skip
_SHARES_OF_COLOUR = {
    **dict(zip(HEAT, ((ORANGE, share) for share in (12, 24, 36, 48, 60, 80)), strict=False)),
    PALE_ORANGE: (ORANGE, 26), PALE_SKY: (SKY, 24), PALE_GREEN: (GREEN, 16),
    **dict(zip(PROGRAM_TINTS, ((color, 30) for color in PROGRAM_COLORS), strict=True)),
}  # fmt: skip
_SHARE_OF_PALE = 60  # in percent: with more of a color, its text is the same in every theme
_OF_INK_IN_LINES = (
    42  # in percent, so that bright colors are readable on a light page and dark ones on a dark page
)


def themed(colour: str) -> str:
    """Return the CSS that fills an area with a color; ``var(--paper)`` and ``var(--ink)`` are the theme's."""
    if colour in (INK, BLACK):
        return "var(--ink)"
    if colour == PAPER:
        return "var(--paper)"
    if colour in _SHARES_OF_INK:
        return f"color-mix(in srgb,var(--ink) {_SHARES_OF_INK[colour]}%,var(--paper))"
    if colour in _SHARES_OF_COLOUR:
        strong, share = _SHARES_OF_COLOUR[colour]
        return f"color-mix(in srgb,{strong} {share}%,var(--paper))"
    return colour


def themed_line(colour: str) -> str:
    """Return the CSS that draws a line or a text with a color; strong colors become closer to ink."""
    if colour in (*PALETTE[1:], LILAC, BROWN):
        return f"color-mix(in srgb,{colour} {100 - _OF_INK_IN_LINES}%,var(--ink))"
    return themed(colour)


def ink_on(colour: str) -> str | None:
    """Return what is readable on a fill that follows the theme: ink or paper; None if no theme changes it."""
    if (
        colour == PAPER
        or _SHARES_OF_COLOUR.get(colour, ("", 100))[1] <= _SHARE_OF_PALE
        or _SHARES_OF_INK.get(colour, 100) < 30
    ):
        return INK
    return PAPER if colour in (INK, BLACK) or _SHARES_OF_INK.get(colour, 0) > 60 else None


def text_color(fill: ColorType) -> str:
    """Return ink or paper on a fill that follows the theme, else black or white, whichever is clearer."""
    return ink_on(to_hex(fill)) or (JET if luminance(fill) > 0.18 else SNOW)


def luminance(color: ColorType) -> float:
    """Return WCAG's relative luminance, from 0 for black to 1 for white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


THEME = f"--paper:{_PAPER_OF_THEME};--ink:{_INK_OF_THEME}"
"""CSS that says what `themed` builds upon."""
