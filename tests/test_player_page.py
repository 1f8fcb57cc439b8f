"""The player's page in Chromium, by mouse and by keyboard, in light and dark, with no network."""

from collections.abc import Callable

import pytest
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import BATCHED_MATMUL, DOUBLE, MASKED_ADD, QUANTIZE_ROWS, WINDOW_ATTENTION
from puzzles_lib.authoring.solutions import kernel_sources, solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.chapters.ch07_matmul.mistakes import MISTAKES
from puzzles_lib.player import watch
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.source import define
from tests.test_player import ADD_TEN, add_ten_kernel, cell, overrunning_kernel, winding_kernel

pytestmark = pytest.mark.browser
THEMES = {  # what JupyterLab's themes say, and what VS Code 1.100 says within an output
    "light": "--jp-layout-color0:white;--jp-content-font-color1:rgba(0,0,0,.87);--jp-brand-color1:#1976d2;"
    "--jp-success-color1:#388e3c;--jp-error-color1:#d32f2f;--jp-warn-color1:#f57c00",
    "dark": "--jp-layout-color0:#111111;--jp-content-font-color1:white;--jp-brand-color1:#2196f3;"
    "--jp-success-color1:#4caf50;--jp-error-color1:#f44336;--jp-warn-color1:#ff9800",
    "vscode-light": "--vscode-editor-background:#ffffff;--vscode-editor-foreground:#3b3b3b;"
    "--vscode-charts-green:#388a34;--vscode-charts-red:#e51400;--vscode-charts-blue:#1a85ff;"
    "--vscode-editorWarning-foreground:#bf8803;--vscode-descriptionForeground:#3b3b3b",
    "vscode-dark": "--vscode-editor-background:#1f1f1f;--vscode-editor-foreground:#cccccc;"
    "--vscode-charts-green:#89d185;--vscode-charts-red:#f14c4c;--vscode-charts-blue:#3794ff;"
    "--vscode-editorWarning-foreground:#cca700;--vscode-descriptionForeground:#9d9d9d",
    "vscode-high-contrast": "--vscode-editor-background:#000000;--vscode-editor-foreground:#ffffff;"
    "--vscode-charts-green:#89d185;--vscode-charts-red:#f48771;--vscode-charts-blue:#3794ff;"
    "--vscode-editorWarning-foreground:#ffd370;--vscode-descriptionForeground:rgba(255,255,255,.7)",
}


def style(theme: str) -> str:
    """The style sheet of a page in one of `THEMES`."""
    ground = "background:var(--jp-layout-color0,var(--vscode-editor-background))"
    ink = "color:var(--jp-content-font-color1,var(--vscode-editor-foreground))"
    return f"<style>:root{{{THEMES[theme]}}}body{{{ground};{ink}}}</style>"


@pytest.fixture
def show(open_html) -> Callable:
    """``show(player, ..., theme="dark", width=1000)``: a page with these outputs, one below the other."""

    def shown(*players, theme: str = "light", width: int = 1400, scripts: bool = True):
        outputs = "".join(f"<div>{player._repr_html_()}</div>" for player in players)
        page = open_html(f"{style(theme)}{outputs}", width, scripts=scripts)
        if scripts:
            page.locator(".puzzles-player .stage").nth(len(players) - 1).wait_for()
        return page

    return shown


COLOURS = """(c) => {
    const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
    return new Set(new Uint32Array(data.buffer)).size;
}"""


def lit(page, number: int = 0) -> str:
    return page.locator(".puzzles-player").nth(number).locator(".code .on").last.inner_text()


def press(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_keys_step_and_the_lit_line_the_blocks_and_the_lanes_follow(show):
    page = show(watch(add_ten_kernel, ADD_TEN, 1, program=2))
    assert "def add_ten_kernel" in lit(page)
    page.locator(".code").focus()
    press(page, "ArrowRight")
    assert "offs = tl.program_id(0)" in lit(page)
    assert page.locator(".blocks .changed h4").all_inner_texts() == ["offs"]
    press(page, "PageDown")
    assert "x = tl.load(" in lit(page)
    x = page.locator(".blocks .block").first
    assert x.locator(".off").count() == 8 and "8 of 16 lanes off" in x.inner_text()
    sheet = page.locator(".tensors .block").first
    assert sheet.locator(".lit").count() == 8 and "8 loaded by this line" in sheet.inner_text()
    press(page, "End")
    assert "tl.store(" in lit(page)
    assert "40 of 40 stored so far: 40 correct" in page.locator(".tensors .block").nth(1).inner_text()
    press(page, "ArrowLeft", "Home")
    assert "def add_ten_kernel" in lit(page)
    press(page, "[")
    assert page.get_by_label("program", exact=True).get_attribute("aria-valuetext") == "1 (of 0–2)"


def test_a_button_keeps_the_keys_where_there_is_no_further_step(show):
    page = show(watch(add_ten_kernel, ADD_TEN, 1, program=2))
    page.get_by_label("next step").click()
    back = page.get_by_label("previous step")
    back.click()
    assert "def add_ten_kernel" in lit(page) and back.is_disabled()
    press(page, "Enter")  # nothing before it
    assert "def add_ten_kernel" in lit(page)
    press(page, "ArrowRight")
    assert "offs = tl.program_id(0)" in lit(page) and back.is_enabled()


def test_a_step_from_within_a_block_keeps_the_keys(show):
    page = show(watch(add_ten_kernel, ADD_TEN, 1, program=2))
    page.locator(".code").focus()
    press(page, "PageDown")
    page.locator(".blocks [data-cells]").first.focus()
    press(page, "PageDown")  # to a step with blocks of its own
    assert "tl.store(" in lit(page)
    press(page, "PageUp")
    assert "x = tl.load(" in lit(page)


def test_lanes_are_walked_by_keyboard_and_pointed_at(show):
    page = show(watch(add_ten_kernel, ADD_TEN, 1, program=2))
    page.locator(".code").focus()
    press(page, "PageDown")
    cells = page.locator(".blocks [data-cells]").first
    cells.focus()
    press(page, "End")
    said = page.locator(".inspect")
    assert said.inner_text() == (
        "lane [15] of x: masked off, because offs < N is False; its address is x + 47"
    )
    press(page, "Home", "ArrowRight")
    assert said.inner_text().endswith("lane [1]: x[33]") and said.inner_text().startswith("lane [1] of x = ")
    assert "x = tl.load(" in lit(page)  # the arrows were the block's
    page.locator(".tensors .block").nth(1).locator(".grid > span").nth(5).hover()
    assert said.inner_text().startswith("z[5]; = ") and "expected " in said.inner_text()


def test_a_wrong_value_is_opened_at_marked_and_gone_to(show):
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)\n"
        "    tl.store(z_ptr + offs, x + 10 + tl.program_id(0), mask=offs < N)\n",
        "<wrong from program 1 on, on a page>",
    )
    page = show(watch(kernel, ADD_TEN, 1))
    assert "tl.store(" in lit(page)
    sheet = page.locator(".tensors .block").nth(1)
    assert (sheet.locator(".right").count(), sheet.locator(".wrong").count()) == (16, 16)
    page.locator(".code").focus()
    press(page, "Home", "[", "w")
    assert "tl.store(" in lit(page)
    assert page.get_by_label("program", exact=True).get_attribute("aria-valuetext") == "1 (of 0–2)"


def test_out_of_bounds_lanes_stand_beyond_the_tensor(show):
    page = show(watch(overrunning_kernel, ADD_TEN, 1))
    sheet = page.locator(".tensors .block").first
    assert sheet.locator(".bad").count() == 8
    assert "out of bounds: elements 40 to 47, but x has 40" in sheet.inner_text()
    assert "out-of-bounds load of x_ptr" in page.locator(".inspect").inner_text()


def test_loops_are_counted_stepped_over_and_helpers_shown(show):
    page = show(watch(winding_kernel, ADD_TEN, 1, program=0))
    page.get_by_label("next step").click(click_count=4)
    assert "turns += 1" in lit(page) and page.locator(".code .turn").inner_text() == "iteration 1"
    page.get_by_label("next end of a loop").click()
    assert (
        "while turns < 3:" in lit(page) and "is false: the loop ends" in page.locator(".inspect").inner_text()
    )
    page.get_by_label("next step").click(click_count=2)
    assert "winding_kernel called this function at line" in page.locator(".code .caller").inner_text()
    page.get_by_label("name to look for").select_option("j")
    page.get_by_label("next line that sets that name").click()
    assert page.locator(".code .turn").all_inner_texts() == ["iteration 1 of 2", "iteration 1 of 2"]


def test_two_players_do_not_disturb_each_other(show):
    first, second = watch(add_ten_kernel, ADD_TEN, 1), watch(add_ten_kernel, ADD_TEN, 1)
    assert first._repr_html_() == second._repr_html_()
    page = show(first, second)
    page.locator(".puzzles-player").nth(1).locator(".code").focus()
    press(page, "ArrowRight", "ArrowRight")
    assert "def add_ten_kernel" in lit(page, 0) and "mask = " in lit(page, 1)


def test_large_blocks_are_heat_maps_that_tell_their_cells(show):
    puzzle = next(p for p in puzzles() if p.name == "batched_matmul")
    page = show(watch(solutions()["batched_matmul"], puzzle, 2, program=0), width=1000)
    page.locator(".code").focus()
    press(page, "PageDown")
    canvas = page.locator(".blocks canvas").first
    assert canvas.evaluate(COLOURS) > 50
    canvas.hover(position={"x": 3, "y": 3})
    assert page.locator(".inspect").inner_text().startswith("lane [0, 0] of x = ")
    assert page.locator(".blocks header").first.inner_text().startswith("x\nfloat16 [16, 64]\nloaded\n-3.4")


def test_columns_and_rows_of_a_heat_map_are_numbered(show):
    puzzle = next(p for p in puzzles() if p.name == "batched_matmul")
    page = show(watch(solutions()["batched_matmul"], puzzle, 2, program=0), width=1000)
    page.locator(".code").focus()
    press(page, "PageDown")
    canvas = page.locator(".blocks canvas").first
    columns, rows = (page.locator(f".blocks .{name}").first.locator("i") for name in ("columns", "rows"))
    assert columns.all_inner_texts() == [str(n) for n in range(0, 64, 4)]
    assert rows.all_inner_texts() == [str(n) for n in range(0, 16, 4)]
    x = columns.nth(3).bounding_box()["x"] + 2 - canvas.bounding_box()["x"]
    y = rows.nth(2).bounding_box()["y"] + 2 - canvas.bounding_box()["y"]
    canvas.hover(position={"x": x, "y": y})
    assert page.locator(".inspect").inner_text().startswith("lane [8, 12] of x = ")


def test_axes_are_named_unless_one_is_a_formula(show):
    puzzle = next(p for p in puzzles() if p.name == "relu_pack")
    page = show(watch(solutions()["relu_pack"], puzzle, 5), width=1000)
    told = page.locator(".tensors").inner_text()
    assert "bfloat16 [3, 100], axes M N" in told
    assert "int32 [3, 4]" in told and "//" not in told
    programs = page.get_by_label("program", exact=True)
    assert programs.get_attribute("aria-valuetext") == "(0, 0), number 0 (of 0–2)"


def test_no_line_of_a_kernel_is_cut_in_a_notebook_of_a_window_of_1000(show):
    puzzle = next(p for p in puzzles() if p.name == "bias_relu")
    page = show(watch(solutions()["bias_relu"], puzzle, 2, program=(3, 0)), width=870)
    assert page.locator(".code").evaluate("(code) => code.scrollWidth <= code.clientWidth")


def test_what_is_undefined_is_shown_as_that_and_nothing_else_as_what_is_stored(show):
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + offs, mask=offs < 30)\n"
        "    y = tl.sum(x) + 0 * x\n"
        "    tl.store(z_ptr + offs, y + 0 * x)\n"
        "    tl.store(z_ptr + offs, x)\n",
        "<stores what is undefined, on a page>",
    )
    page = show(watch(kernel, ADD_TEN, 0))
    sheet = page.locator(".tensors .block").nth(1)
    assert set(sheet.locator(".undefined").all_inner_texts()) == {"?"}
    sheet.locator(".undefined").first.hover()
    assert page.locator(".inspect").inner_text().startswith("z[0]; undefined; expected ")
    tags = page.locator(".blocks .block header")
    assert [text.split("\n")[0::2][:2] for text in tags.all_inner_texts()] == [
        ["z_ptr", "read"], ["offs", "read"], ["y", "read"], ["x", "read"], ["stored to z", "store"],
    ]  # fmt: skip
    page.locator(".code").focus()
    press(page, "End")
    assert tags.last.inner_text().split("\n")[0:3:2] == ["x", "stored to z"]


def sideways(x: Float32[Tensor, "M N"]) -> Float32[Tensor, "M N"]:
    return x


SIDEWAYS = Puzzle(number="t9", spec=sideways, grid=lambda s: (1,), cases=(Case(M=2, N=70_000, BLOCK=16),))


def test_no_canvas_is_larger_than_browsers_draw(show):
    kernel = cell(
        "def kernel(x_ptr, z_ptr, M, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        "    tl.store(z_ptr + offs, tl.load(x_ptr + offs))\n",
        "<copies the first few>",
    )
    page = show(watch(kernel, SIDEWAYS))
    canvas = page.locator(".tensors canvas").first
    assert canvas.evaluate("(c) => [c.width, c.style.width]") == [32_000, "70000px"]
    assert canvas.evaluate(COLOURS.replace("c.width", "999")) > 50


def test_a_step_of_very_many_lanes_takes_a_moment(show):
    """Half a second of the processor's time, where a tenth or two is enough; it was one and a half."""
    page = show(watch(add_ten_kernel, ADD_TEN, Case(N=131_072, BLOCK=131_072)))
    page.locator(".code").focus()
    press(page, "End")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def used() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    before = used()
    for _ in range(3):
        press(page, "ArrowLeft", "ArrowRight")
    assert used() - before < 6 * 0.5 and "tl.store" in lit(page)


def test_nan_in_a_heat_map_is_not_what_is_undefined(show):
    kernel = cell(
        "def kernel(x_ptr, z_ptr, M, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, 512)\n"
        "    none = (offs - offs) / (offs - offs)\n"
        "    unknown = tl.load(x_ptr + offs, mask=offs < 0)\n"
        "    both = none + unknown\n",
        "<two kinds of nothing>",
    )
    page = show(watch(kernel, SIDEWAYS))
    page.locator(".code").focus()
    press(page, "Home", "ArrowRight", "ArrowRight")
    beside_the_middle = """(c) => {
        const side = c.width / 32;  // of a cell
        return [...c.getContext("2d").getImageData(0.7 * side, 0.4 * side, 1, 1).data.slice(0, 3)];
    }"""
    canvas = page.locator(".blocks canvas").first
    red, green, blue = canvas.evaluate(beside_the_middle)
    assert red > green + 100 and red > blue + 100  # a dot
    press(page, "ArrowRight", "ArrowRight")
    assert min(canvas.evaluate(beside_the_middle)) > 180  # a stripe on a pale ground
    assert "NaN" in page.locator(".key > span").all_inner_texts()


def test_keys_work_on_where_a_button_has_nowhere_to_go(show):
    page = show(watch(add_ten_kernel, ADD_TEN, 1, program=2))
    page.get_by_label("next step").focus()
    press(page, *["Enter"] * 4)
    assert page.get_by_label("next step").is_disabled()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    press(page, "ArrowLeft")
    assert "x = tl.load(" in lit(page)


def test_a_screen_reader_hears_a_step_or_a_lane_once(show):
    page = show(watch(add_ten_kernel, ADD_TEN, 1, program=2))
    live = page.locator(".puzzles-player [aria-live]")
    assert live.count() == 1
    page.locator(".code").focus()
    press(page, "ArrowRight")
    assert live.inner_text().startswith("step 2, line ") and live.inner_text().endswith("changes offs")
    press(page, "Tab", "ArrowRight")
    assert live.inner_text() == page.locator(".inspect").inner_text() == "lane [1] of offs = 33"


def test_colours_that_the_system_forces_leave_right_and_wrong_apart(show):
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        "    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + tl.where(offs < 20, 10, 11))\n",
        "<half right>",
    )
    page = show(watch(kernel, ADD_TEN, 0), watch(add_ten_kernel, ADD_TEN, Case(N=512, BLOCK=512)))
    page.emulate_media(forced_colors="active")
    grounds = [
        page.locator(f".tensors .{state}").first.evaluate("(e) => getComputedStyle(e).backgroundColor")
        for state in ("right", "wrong")
    ]
    assert grounds[0] != grounds[1]
    page.locator(".code").nth(1).focus()
    press(page, "PageDown")
    assert page.locator(".blocks canvas").first.evaluate(COLOURS) > 50


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_swatch_has_the_color_of_the_cells_that_it_explains(show, theme):
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        "    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + tl.where(offs < 256, 10, 11))\n",
        "<half right, in a heat map>",
    )
    page = show(watch(kernel, ADD_TEN, Case(N=512, BLOCK=512)), theme=theme)
    page.locator(".code").focus()
    press(page, "End")
    grounds = [
        page.locator(f".key .{state}").evaluate("(e) => getComputedStyle(e).backgroundColor")
        for state in ("right", "wrong")
    ]
    shares = page.locator(".tensors canvas").last.evaluate(
        """(canvas, grounds) => {
            const pen = document.createElement("canvas").getContext("2d");
            grounds.forEach((ground, x) => { pen.fillStyle = ground; pen.fillRect(x, 0, 1, 1); });
            const swatches = pen.getImageData(0, 0, grounds.length, 1).data;
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return grounds.map((_, x) => {
                let same = 0;
                for (let i = 0; i < data.length; i += 4) {
                    const far = [0, 1, 2].map((c) => Math.abs(swatches[4 * x + c] - data[i + c]));
                    if (Math.max(...far) < 4) same += 1;
                }
                return same / (data.length / 4);
            });
        }""",
        grounds,
    )
    assert min(shares) > 0.1, shares


def test_the_key_and_the_buttons_are_those_that_a_step_needs(show):
    page = show(watch(add_ten_kernel, ADD_TEN, 1), watch(winding_kernel, ADD_TEN, 1))
    keys = page.locator(".puzzles-player").first.locator(".key > span")
    page.locator(".code").first.focus()
    press(page, "Home")
    assert keys.all_inner_texts() == ["stored, correct"]  # by the programs before
    press(page, "End")
    told = keys.all_inner_texts()
    assert {"accessed by this line", "stored, correct"} <= set(told) and not {"NaN", "stored, wrong"} & set(
        told
    )
    frames = [page.locator(place).first.evaluate("(e) => getComputedStyle(e).boxShadow")
              for place in (".key .lit", ".tensors .lit")]  # fmt: skip
    assert frames[0] == frames[1] != "none"
    past = page.get_by_label("next end of a loop")
    assert [button.is_visible() for button in past.all()] == [False, True]
    assert page.locator("button.alarm").first.is_hidden()  # nothing is wrong


def test_the_red_button_leads_to_where_a_value_becomes_undefined(show):
    source = (
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + offs, mask=offs < N - 3)\n"
        "    z = x + {}\n"
        "    tl.store(z_ptr + offs, z, mask=offs < N)\n"
    )
    for added, name, line in (
        (10, "first undefined value", "x = tl.load(x_ptr + offs, mask=offs < N - 3)"),
        (11, "first wrong store", "tl.store(z_ptr + offs, z, mask=offs < N)"),
    ):
        page = show(watch(cell(source.format(added), f"<adds {added}>"), ADD_TEN, 1))
        page.locator(".code").focus()
        press(page, "Home")
        page.get_by_role("button", name=name).click()
        assert page.locator(".code .on").last.inner_text().endswith(line)


def test_a_player_out_of_the_page_is_let_be_and_painted_anew_when_it_is_back(show):
    """JupyterLab takes cells out that are out of sight, and for good the output of a cell that runs again."""
    page = show(watch(add_ten_kernel, ADD_TEN, Case(N=512, BLOCK=512)))
    page.locator(".code").focus()
    press(page, "PageDown")
    painted = page.locator(".blocks canvas").first.evaluate("(canvas) => canvas.toDataURL()")
    page.evaluate(
        """async () => {
            window.taken = document.querySelector(".puzzles-player");
            window.place = taken.parentElement;
            taken.remove();
            document.documentElement.style.setProperty("--jp-layout-color0", "#111111");
            document.documentElement.style.setProperty("--jp-content-font-color1", "white");
            document.body.setAttribute("data-jp-theme-light", "false");
            for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame);
            place.append(taken);
        }"""
    )
    page.wait_for_function(
        """(painted) => {
            const canvas = taken.shadowRoot.querySelector(".blocks canvas");
            return canvas.toDataURL() !== painted;
        }""",
        arg=painted,
    )


def test_a_table_says_the_same(show):
    page = show(watch(add_ten_kernel, ADD_TEN, 1, program=2))
    page.locator(".code").focus()
    press(page, "PageDown")
    page.get_by_text("The same as a table").click()
    table = page.locator("details[open] table")  # it is made once the page has been told of the opening
    table.wait_for()
    rows = table.locator("tr").all_inner_texts()
    assert rows[0].split("\t") == ["name", "here", "dtype", "shape", "range", "first values"]
    assert rows[1].startswith("x\tchanged\tfloat32\t[16]\t") and "undefined (off)" in rows[1]
    assert any(row.startswith("lanes of x\tload\t\t[16]") and "lane [0]: x[32]" in row for row in rows)


def test_without_scripts_there_is_the_first_frame(show):
    page = show(watch(add_ten_kernel, ADD_TEN, 1), scripts=False)
    assert "This is the first frame." in page.locator("body").inner_text()
    assert "def add_ten_kernel" in page.locator("pre b").inner_text()


FAINT = """
(host) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => under.map((c, i) => top[i] * top[3] + c * (1 - top[3]));
  const up = (element) => element.parentElement ?? element.getRootNode().host ?? null;
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = up(e)) layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const texts = document.createTreeWalker(host.shadowRoot, NodeFilter.SHOW_TEXT);
  const found = [];
  let seen = 0;
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim(), element = texts.currentNode.parentElement;
    const unread = element.closest("style, [aria-disabled=true], .empty");
    if (!text || unread || !element.getClientRects().length) continue;
    const ground = behind(element), ink = over(rgba(getComputedStyle(element).color), ground);
    const [a, b] = [light(ink), light(ground)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)} ${element.className}: ${text}`);
  }
  if (seen < 50) throw new Error("no texts");
  return found;
}
"""


@pytest.mark.parametrize("theme", THEMES)
def test_texts_stand_out(show, theme):
    kernel = cell(
        "def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # where\n"
        "    x = tl.load(x_ptr + offs, mask=offs < N - 3)\n"
        "    tl.store(z_ptr + offs, x + 10, mask=offs < N)\n",
        "<stores what is undefined>",
    )
    page = show(watch(kernel, ADD_TEN, 1), watch(overrunning_kernel, ADD_TEN, 1), theme=theme)
    for number in (0, 1):
        assert page.locator(".puzzles-player").nth(number).evaluate(FAINT) == []


@pytest.mark.parametrize("width", [500, 1000])
def test_nothing_is_wider_than_its_place(show, width):
    """500 px is what 1000 px are at 200% zoom."""
    page = show(watch(add_ten_kernel, ADD_TEN, 1, program=2), width=width)
    page.locator(".code").focus()
    press(page, "PageDown")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    too_wide = page.locator(".puzzles-player").evaluate(
        "(host) => [...host.shadowRoot.querySelectorAll('.blocks .scroll')]"
        ".filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.ariaLabel)"
    )
    assert too_wide == []


def test_buttons_code_and_the_changed_block_are_on_one_screen(show):
    page = show(watch(solutions()["window_attention"], WINDOW_ATTENTION, case=0, step=18), width=1400)
    player = page.locator(".puzzles-player").bounding_box()
    inspect, room = page.locator(".inspect").bounding_box(), page.locator(".room").bounding_box()
    changed = page.locator(".blocks .changed").first.bounding_box()
    assert inspect["y"] - player["y"] < 700 and room["height"] < 460
    assert (
        room["y"] <= changed["y"] + 2 and changed["y"] + changed["height"] <= room["y"] + room["height"] + 2
    )


def test_masked_off_lanes_are_gray_and_only_a_stored_one_is_hatched_as_undefined(show):
    source = kernel_sources()["masked_add"]
    short = source.replace("x_ptr + lanes, mask=mask", "x_ptr + lanes, mask=lanes < N - 1 - pid * BLOCK")
    page = show(watch(define(short, "<one lane short>"), MASKED_ADD, case=3))
    stored = page.locator(".block", has=page.get_by_role("heading", name="stored to z"))
    assert stored.locator(".undefined").count() == 1 and stored.locator(".off").count() == 24
    assert "24 of 32 lanes off, 1 undefined" in stored.inner_text()
    stored.locator(".undefined").hover()
    said = page.locator(".inspect").inner_text()
    assert said.startswith("lane [7] stores to z[199]; its value is undefined: it comes from a lane that")
    stored.locator(".off").first.hover()
    said = page.locator(".inspect").inner_text()
    assert (
        said.startswith("the value of lane [8]: masked off, because lanes < N - pid * BLOCK is False")
        and "undefined" not in said
    )


def test_what_is_computed_from_masked_off_lanes_is_off_if_nothing_uses_it(show):
    """A correct kernel has no red lanes."""
    page = show(watch(define(kernel_sources()["double"], "<doubled>"), DOUBLE, case=2, program=3))
    page.locator(".code").focus()
    z = page.locator(".blocks .block", has=page.get_by_role("heading", name="z", exact=True))
    while "z = 2 * x" not in lit(page):
        assert not page.locator(".blocks .undefined").count()
        press(page, "ArrowRight")
    assert "2 of 8 lanes off" in z.last.inner_text() and "undefined" not in z.last.inner_text()
    assert z.last.locator(".off").count() == 2 and not page.locator(".blocks .undefined").count()
    z.last.locator(".off").first.hover()
    said = page.locator(".inspect").inner_text()
    assert said == "lane [6] of z: it comes from a lane that the load of x_ptr masks off, and nothing uses it"


@pytest.mark.parametrize("width", [1400, 1000])
def test_vectors_of_one_length_have_rows_of_one_length(show, width):
    """A lane is in the same place in each block, and a line says so if blocks are cut off below."""
    page = show(
        watch(define(kernel_sources()["masked_add"], "<rows>"), MASKED_ADD, case=3, program=6), width=width
    )
    page.locator(".code").focus()
    grids = (
        "(all) => all.map((each) => [...each.querySelectorAll('span')].map((cell) => cell.offsetLeft).join())"
    )
    several = 0
    for _ in range(8):
        lefts = page.locator(".blocks .grid").evaluate_all(grids)
        several += len(lefts) > 1
        assert len(set(lefts)) <= 1, lefts
        hidden = page.locator(".room").evaluate(
            "(room) => room.scrollHeight - room.clientHeight - room.scrollTop"
        )
        assert (hidden > 4) == (page.locator(".room.more").count() == 1)
        press(page, "ArrowRight")
    assert several >= 2


def test_long_vectors_of_a_short_kernel_are_below_it_in_rows_of_16(show):
    """Next to the code, 32 lanes took eight rows, and what's in memory was below the screen."""
    page = show(
        watch(define(kernel_sources()["masked_add"], "<rows>"), MASKED_ADD, case=1, step=8), width=1200
    )
    code, room = page.locator(".code").bounding_box(), page.locator(".room").bounding_box()
    assert room["y"] >= code["y"] + code["height"]
    lefts = page.locator(".blocks .grid").first.evaluate(
        "(grid) => [...grid.querySelectorAll('span')].map((cell) => cell.offsetLeft)"
    )
    assert len(lefts) == 32 and len(set(lefts)) == 16
    memory = page.locator(".tensors").bounding_box()
    assert memory["y"] + memory["height"] < 800


WRAPPED = """(host) => [...host.shadowRoot.querySelectorAll(".code > div")]
    .filter((row) => row.getBoundingClientRect().height > 30).length"""


@pytest.mark.parametrize("width", [1400, 1000])
@pytest.mark.parametrize("name", ["quantize_rows", "conv2d", "once_per_group", "window_attention"])
def test_lines_of_code_are_whole_in_a_wide_window(show, name, width):
    puzzle = next(each for each in puzzles() if each.name == name)
    page = show(watch(solutions()[name], puzzle, 1), width=width)
    assert page.locator(".puzzles-player").evaluate(WRAPPED) == 0


def test_a_wrapped_line_goes_on_right_of_where_it_begins(show):
    page = show(watch(solutions()["quantize_rows"], QUANTIZE_ROWS, 1), width=500)
    left = """(host) => [...host.shadowRoot.querySelectorAll(".code > div")].map((row) => {
        const range = document.createRange();
        range.selectNodeContents(row);
        const lines = [...range.getClientRects()].filter((box) => box.width > 0 && box.height > 0);
        const top = Math.min(...lines.map((box) => box.top));
        const text = row.textContent.replace(/^\\d+/, "");
        const start = row.getBoundingClientRect().left + 4 + 39 + 7.8 * text.search(/\\S/);
        const later = lines.filter((box) => box.top > top + 10 && box.left > 0);
        return later.length ? Math.min(...later.map((box) => box.left)) - start : 1;
    })"""
    assert min(page.locator(".puzzles-player").evaluate(left)) > 0


def test_the_last_number_of_a_row_is_not_cut(show):
    page = show(watch(solutions()["quantize_rows"], QUANTIZE_ROWS, 2, step=20))
    cut = page.locator(".puzzles-player").evaluate("""(host) =>
        [...host.shadowRoot.querySelectorAll(".scroll")].filter((box) => {
            box.scrollTop = box.scrollHeight;
            const last = box.querySelector(".rows i:last-child");
            return last && last.getBoundingClientRect().bottom > box.getBoundingClientRect().bottom + 0.5;
        }).length""")
    assert cut == 0


@pytest.mark.parametrize("width", [700, 1000, 1400])
def test_no_number_is_wider_than_its_cell(show, width):
    half = next(each for each in MISTAKES if each.name == "half_accumulator")
    source = kernel_sources()["batched_matmul"]
    for old, new in half.edits.items():
        source = source.replace(old, new)
    page = show(watch(define(source, "<half>"), BATCHED_MATMUL, case=4, step=14), width=width)
    block = page.locator(".block", has=page.get_by_role("heading", name="acc", exact=True))
    assert block.locator(".grid span").first.inner_text() == "2048"
    cut = page.locator(".puzzles-player").evaluate("""(host) =>
        [...host.shadowRoot.querySelectorAll(".grid span")].filter((cell) => {
            const text = document.createRange();
            text.selectNodeContents(cell);
            return text.getBoundingClientRect().right > cell.getBoundingClientRect().right;
        }).length""")
    assert cut == 0


def test_a_short_column_is_shown_as_one(show):
    page = show(watch(solutions()["quantize_rows"], QUANTIZE_ROWS, 2, step=20))
    grid = page.locator(".block", has=page.get_by_role("heading", name="rows", exact=True)).locator(".grid")
    assert grid.locator("span").count() == 4
    assert len({box["x"] for each in grid.locator("span").all() if (box := each.bounding_box())}) == 1
