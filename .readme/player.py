"""Makes player.gif, the picture of the README that moves: python .readme/player.py

Chapter 00's kernel, the last of its programs, played line by line in Chromium. Needs what the browser
tests need.
"""

import io
import os
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from puzzles_lib import DOUBLE, watch
from puzzles_lib.authoring.solutions import solutions

FILE = Path(__file__).with_name("player.gif")
WIDTH, HEIGHT = 1000, 720
STEP_MS, LAST_MS = 1500, 4000
MOST_BYTES = 1_000_000


def main() -> None:
    player = watch(solutions()["double"], DOUBLE, case=2, program=3)
    frames = []
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_content(f'<body style="margin:8px;background:white">{player._repr_html_()}</body>')
        page.locator(".puzzles-player .stage").wait_for()
        page.locator(".puzzles-player .code").focus()
        page.keyboard.press("Home")
        while True:
            shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            if frames and shot.tobytes() == frames[-1].tobytes():
                break
            frames.append(shot)
            page.keyboard.press("ArrowRight")
        chromium.close()
    small = [frame.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE) for frame in frames]
    times = [STEP_MS] * (len(small) - 1) + [LAST_MS]
    small[0].save(FILE, save_all=True, append_images=small[1:], duration=times, loop=0, optimize=True)
    size = FILE.stat().st_size
    print(f"{FILE.name}: {len(frames)} pictures, {size / 1000:.0f} kB")
    assert size <= MOST_BYTES, size


if __name__ == "__main__":
    main()
