"""Provide pictures of characters, drawn as they are needed. Each is new, so none can be learned by heart.

A picture is a character of about 500, in a font that matplotlib ships, turned, sheared, scaled and moved at
random, with more or less contrast, under noise. Many characters differ in a dot or an accent, which the noise
often hides. Nothing is downloaded.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F

FONTS = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique", "DejaVuSerif",
    "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSansMono", "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique", "STIXGeneral", "STIXGeneralBol", "STIXGeneralBolIta",
)  # fmt: skip
UNSEEN = ("DejaVuSerif-BoldItalic", "DejaVuSansMono-BoldOblique", "STIXGeneralItalic")
"""Fonts that are never trained on."""
RANGES = ((0x21, 0x7F), (0xA1, 0x250), (0x370, 0x530), (0x1E00, 0x1F00), (0x2010, 0x2260))
SIDE, BASELINE, SIZE = 64, 48, 46  # of a drawn character, in pixels: the picture, its baseline, the font


@dataclass(frozen=True)
class Glyphs:
    """Characters drawn once in each of several fonts.

    drawn: [fonts, classes, 64, 64], float32 from 0 to 1. noise: the standard deviation of a pixel's noise.
    """

    drawn: torch.Tensor
    noise: float = 0.2

    @property
    def classes(self) -> int:
        return self.drawn.shape[1]

    def to(self, device: torch.device | str) -> "Glyphs":
        return replace(self, drawn=self.drawn.to(device))

    def draw(
        self, generator: torch.Generator, count: int, side: int = 32
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return new pictures, float32 [count, 1, side, side], and their classes, int64 [count].

        generator: on the device of the drawn characters. Raises ValueError for a count or side below 1.
        """
        for name, value in (("count", count), ("side", side)):
            if value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, but is {value}")
        device = self.drawn.device

        def uniform(low: float, high: float) -> torch.Tensor:
            return low + (high - low) * torch.rand(count, device=device, generator=generator)

        font = torch.randint(len(self.drawn), (count,), device=device, generator=generator)
        label = torch.randint(self.classes, (count,), device=device, generator=generator)
        angle, shear = uniform(-0.25, 0.25), uniform(-0.2, 0.2)
        wide, high = uniform(-0.25, 0.2).exp(), uniform(-0.25, 0.2).exp()
        rows = [
            angle.cos() / wide, (shear - angle.sin()) / wide, uniform(-0.1, 0.1),
            angle.sin() / high, angle.cos() / high, uniform(-0.1, 0.1),
        ]  # fmt: skip
        grid = F.affine_grid(torch.stack(rows, 1).view(count, 2, 3), [count, 1, side, side], False)
        x = F.grid_sample(self.drawn[font, label][:, None], grid, align_corners=False)
        x = uniform(0.6, 1.6)[:, None, None, None] * x
        shade = torch.randn(count, 1, 4, 4, device=device, generator=generator)
        x = x + 0.15 * F.interpolate(shade, (side, side), mode="bilinear")
        return x + self.noise * torch.randn(x.shape, device=device, generator=generator), label


@cache
def glyphs() -> tuple[Glyphs, Glyphs]:
    """Return the characters in the fonts to train on, and in those that are never trained on.

    They are the characters that all fonts have, without those that look the same as an earlier one. Raises
    ModuleNotFoundError without matplotlib.
    """
    import matplotlib
    from matplotlib.ft2font import FT2Font
    from PIL import Image, ImageDraw, ImageFont

    folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
    files = [str(folder / f"{name}.ttf") for name in (*FONTS, *UNSEEN)]
    codes = {code for first, end in RANGES for code in range(first, end)}
    for file in files:
        codes &= set(FT2Font(file).get_charmap())

    def picture(font: ImageFont.FreeTypeFont, code: int) -> bytes:
        image = Image.new("L", (SIDE, SIDE))
        ImageDraw.Draw(image).text((SIDE // 2, BASELINE), chr(code), 255, font, "ms")
        return image.tobytes()

    known = {bytes(SIDE * SIDE)}
    for code in sorted(codes):
        seen = picture(ImageFont.truetype(files[0], SIZE), code)
        codes -= {code} if seen in known else set()
        known.add(seen)
    drawn = torch.empty(len(files), len(codes), SIDE, SIDE, device="cpu")
    for place, file in enumerate(files):
        font = ImageFont.truetype(file, SIZE)
        for number, code in enumerate(sorted(codes)):
            data = bytearray(picture(font, code))
            drawn[place, number] = torch.frombuffer(data, dtype=torch.uint8).view(SIDE, SIDE) / 255
    return Glyphs(drawn[: len(FONTS)]), Glyphs(drawn[len(FONTS) :])
