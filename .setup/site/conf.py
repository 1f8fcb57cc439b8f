"""Sphinx's settings for the site; `puzzles_lib.authoring.site` puts the pages beside this file."""

import re
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

project = "Triton, bit by bit"
html_title = project
author = copyright = "The authors of Triton, bit by bit"
language = "en"

extensions = ["myst_nb"]
exclude_patterns = ["extra"]
html_extra_path = ["extra"]
html_static_path = ["static"]
html_favicon = "static/icon.svg"
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_show_copyright = False
html_show_sphinx = False

nb_execution_mode = "off"
nb_render_markdown_format = "myst"
nb_merge_streams = True
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
suppress_warnings = ["myst.header", "mystnb.unknown_mime_type"]

html_theme = "sphinx_book_theme"
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "use_source_button": False,
    "navbar_persistent": [],  # the search is in the side bar, and on a phone above the page
    "show_toc_level": 2,
    "navigation_with_keys": False,  # the arrow keys are the players'
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}  # without it, the theme's script logs an error

# Formulas are MathML: a browser draws it without a script and without a font of ours.
html_math_renderer = "mathml"
_LEFT_OVER = {r"\_": "_", r"\lfloor": "⌊", r"\rfloor": "⌋", r"<mi>\arg</mi>": "<mi>arg</mi>"}


def mathml(tex, display):
    """Return a formula as MathML. Raise ValueError if it has a command that latex2mathml does not know."""
    found = convert(tex, display=display)
    for before, after in _LEFT_OVER.items():
        found = found.replace(before, after)
    if command := re.search(r"\\\w+", found):
        raise ValueError(f"latex2mathml does not know {command[0]} in {tex!r}")
    return found


def _inline(translator, node):
    translator.body.append(mathml(node.astext(), "inline"))
    raise SkipNode


def _block(translator, node):
    formula = mathml(node.astext(), "block")
    translator.body.append(
        f'<div class="formula" tabindex="0" role="group" aria-label="Formula">{formula}</div>'
    )
    raise SkipNode


# Labels that hide what is written on the control itself from a screen reader.
_LABELS = re.compile(
    r'(<summary) aria-label="Toggle hidden content"'
    r'|(<button class="btn search-button-field[^>]*?) aria-label="Search"'
)


def _finish(app, exception):
    for path in () if exception else Path(app.outdir).rglob("*.html"):
        if path.name.endswith("macros.html"):  # the theme's sources
            path.unlink()
        else:
            path.write_text(_LABELS.sub(lambda match: match[1] or match[2], path.read_text("utf-8")), "utf-8")


def setup(app):
    """Register the renderer of formulas, and what is done when all pages are written."""
    app.connect("build-finished", _finish)
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
