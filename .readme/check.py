"""Makes check.png, the picture at the top of the README: python .readme/check.py

A kernel without a mask, what `check` reports, and what the kernel touched. Needs what the browser tests need.
The report's text is kept in the picture, so that a test can tell when the picture is out of date.
"""

import io
import os
import shutil
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from puzzles_lib import MASKED_ADD, check, trace
from puzzles_lib.authoring.solutions import define

FILE = Path(__file__).with_name("check.png")
WIDTH, MOST_BYTES = 1100, 300_000
CASE = 3  # the one that is drawn: several programs, the last one past the end
TRACE = f'trace(masked_add_kernel, MASKED_ADD, case={CASE}, only=("x",))'
SOURCE = """\
@triton.jit
def masked_add_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(z_ptr + offs, x + 10)

check(masked_add_kernel, MASKED_ADD)
"""
STYLE = """
body { margin: 12px; background: white; font: 14px system-ui, sans-serif; display: flex; gap: 24px }
div { min-width: 0 } body > div { flex: 1 } body > div + div { flex: 1.05 }
.drawn { margin-top: 8px } .drawn svg { max-width: 100%; height: auto }
.highlight { margin: 0; padding: 8px 10px; background: #f5f5f5; border: 1px solid #ddd; font-size: 12px }
"""


def kernel():
    """Return the learner's kernel of the picture."""
    return define(SOURCE.rpartition("check(")[0].strip(), "<masked_add>")


def main() -> None:
    learners = kernel()
    report, drawn = check(learners, MASKED_ADD), trace(learners, MASKED_ADD, case=CASE, only=("x",))
    formatter = HtmlFormatter(nowrap=True)
    code = f"<pre class='highlight'>{highlight(SOURCE, PythonLexer(), formatter)}</pre>"
    cell = f"<pre class='highlight'>{highlight(TRACE, PythonLexer(), formatter)}</pre>"
    page = (
        f"<style>{STYLE}{formatter.get_style_defs('.highlight')}</style>"
        f"<div>{code}<div class='drawn'>{cell}{drawn._repr_html_()}</div></div>"
        f"<div>{report._repr_html_()}</div>"
    )
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        view = chromium.new_page(viewport={"width": WIDTH, "height": 300}, device_scale_factor=2)
        view.set_content(page)
        shot = Image.open(io.BytesIO(view.screenshot(full_page=True))).convert("RGB")
        chromium.close()
    told = PngInfo()
    told.add_text("report", str(report))
    small = shot.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    small.save(FILE, optimize=True, pnginfo=told)
    size = FILE.stat().st_size
    print(f"{FILE.name}: {shot.width} x {shot.height}, {size / 1000:.0f} kB")
    assert size <= MOST_BYTES, size


if __name__ == "__main__":
    main()
