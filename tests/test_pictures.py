"""Every picture of every chapter: SVG that holds together, has alt text, and reads on a small screen."""

import inspect
import re
import xml.etree.ElementTree as ET

import pytest

from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.chapters.ch00_welcome import pictures as ch00_pictures
from puzzles_lib.chapters.ch05_flash_attention import pictures as ch05_pictures
from puzzles_lib.chapters.ch06_convolution import pictures as ch06_pictures
from puzzles_lib.drawing.colours import GREEN, ORANGE, PURPLE, SKY, VERMILLION
from puzzles_lib.drawing.sheet import Picture

COLUMN = 785  # pixels, of an output in a window of 1000 without the list of files
SVG = "{http://www.w3.org/2000/svg}"


def _drawn() -> dict[str, object]:
    """The functions that need no argument, by chapter and name."""
    found = {}
    for chapter in CHAPTERS:
        for name, made in vars(chapter.pictures).items() if chapter.pictures else ():
            ours = inspect.isfunction(made) and made.__module__.endswith(f"{chapter.folder}.pictures")
            if ours and not name.startswith("_") and made.__annotations__.get("return") is Picture:
                parameters = inspect.signature(made).parameters.values()
                if all(p.default is not p.empty for p in parameters):
                    found[f"{chapter.number}.{name}"] = made
    return found


PICTURES = _drawn()
seen: dict[str, str] = {}


def test_there_are_many():
    assert len(PICTURES) > 60


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_holds_together_and_reads(name):
    picture = PICTURES[name]()
    page = picture.svg()
    root = ET.fromstring(page)
    assert root.find(f"{SVG}desc").text == picture.alt and len(picture.alt) > 60
    assert "$" not in page, "formulas are written in letters"
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) and all(seen.setdefault(i, name) == name for i in ids)
    width, height = (float(n) for n in root.get("viewBox").split()[2:])
    sizes = [float(g.get("font-size")) for g in root.iter(f"{SVG}g") if g.get("font-size")]
    assert min(sizes) * min(1, COLUMN / width) > 10.9, f"{min(sizes)} px of {width}"
    assert height * min(1, COLUMN / width) < 860 and len(page) < 100_000


def test_true_has_no_programs_colour():
    """In chapter 00 green is program 2, and the picture is of program 3."""
    page = ch00_pictures.line_by_line().svg().lower()
    assert GREEN not in page and PURPLE in page


def test_a_maximum_is_not_drawn_in_a_colour_like_that_of_what_is_added():
    page = ch05_pictures.two_sums().svg().lower()
    assert VERMILLION not in page and ORANGE in page


def test_what_a_dot_adds_has_not_the_colour_of_the_queries():
    (greens,) = re.findall(f'fill="{GREEN}"[^>]* d="([^"]*)"', ch05_pictures.dots().svg().lower())
    assert greens.count("m") == 1  # q alone


def test_an_image_hides_the_one_behind_it():
    """Cells of one colour that are drawn together show their lines through each other."""
    page = ch06_pictures.images().svg().lower()
    assert page.count(f'<path fill="{SKY}"') == 2  # one of each image that the tile covers


def test_chapter_05_draws_what_its_text_and_kernels_name():
    drawn = words(ch05_pictures.two_sums())
    assert all(name in drawn for name in ("new_max", "factor = exp(3", "denominator", "acc"))
    assert "21.35 × 0.3679 = 7.86" in drawn and "1 × 30 + 0.04979 × 40 = 31.99" in drawn  # as q4 needs


def words(picture: Picture) -> str:
    return " ".join(ET.fromstring(picture.svg()).itertext())
