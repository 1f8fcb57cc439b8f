"""`Trace.explore`: the data of triton-viz's page, and the server that gives it only to its owner."""

import http.client
import json
import os
import re
import signal
import socket
import threading
import types
from pathlib import Path
from urllib.parse import urlsplit

import nbclient
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32
from jupyter_client import KernelManager
from torch import Tensor

from puzzles_lib.authoring.sockets import socket_prefix
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.tracer import explorer, page, trace
from tests.conftest import REPO
from tests.test_tracer import (
    OUTER,
    RAGGED_ADD,
    breaking_kernel,
    masked_kernel,
    outer_kernel,
    sorting_kernel,
)

PUZZLES = {puzzle.name: puzzle for chapter in CHAPTERS for puzzle in chapter.puzzles}


@pytest.fixture(autouse=True)
def _every_page_ends():
    yield
    for opened in list(explorer._open.values()):
        opened.close()


def ask(url: str, path: str = "", body: object = None, host: str | None = None) -> tuple[int, bytes]:
    """Status and body of what a page's server answers; ``body`` is posted as JSON, bytes as they are."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    headers = {} if host is None else {"Host": host}
    try:
        connection.request("GET" if body is None else "POST", parts.path + path, data, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def told(url: str, path: str, body: object = None):
    status, answer = ask(url, path, body)
    assert status == 200, answer
    return json.loads(answer)


def refused(url: str) -> bool:
    """Whether nobody listens at a page's port any more."""
    try:
        socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def tabs(url: str) -> dict[str, list[dict]]:
    return told(url, "api/data")["ops"]["visualization_data"]


# ---- the data of the page


def test_each_program_has_its_loads_and_stores_by_the_learners_names():
    url = trace(outer_kernel, OUTER).explore().url
    programs = tabs(url)
    assert list(programs) == ["(0, 0, 0)", "(0, 1, 0)", "(1, 0, 0)", "(1, 1, 0)"]
    for ops in programs.values():
        assert [(op["type"], op["overall_key"], op["global_shape"]) for op in ops] == [
            ("Load", "x", [40]),
            ("Load", "y", [20]),
            ("Store", "z", [20, 40]),
        ]


def test_a_store_shows_the_result_and_the_elements_it_lights():
    made = trace(outer_kernel, OUTER)
    url = made.explore().url
    store = tabs(url)["(0, 1, 0)"][2]
    shown = told(url, "api/getLoadTensor", {"uuid": store["uuid"]})
    z = made.recording.tensors["z"]
    assert np.allclose(shown["values"], z, rtol=1e-5) and shown["shape"] == [20, 40] and shown["dims"] == 2
    assert (shown["min"], shown["max"]) == (z.min(), z.max())
    assert shown["highlights"] == {"type": "descriptor", "start": [32, 0, 0], "shape": [8, 16, 1]}


def test_which_programs_share_an_element():
    url = trace(outer_kernel, OUTER).explore().url
    shared = told(
        url, "api/getLoadStoreAllPrograms", {"type": "Load", "overall_key": "x", "op_index": 0, "time_idx": 0}
    )
    by_place = {tuple(place): shared["subsets"][key] for *place, key in shared["coords"]}
    assert len(by_place) == 40 and shared["max_count"] == 2 and shared["subset_count"] == 2
    assert by_place[(0, 0, 0)] == [[0, 0, 0], [1, 0, 0]] and by_place[(39, 0, 0)] == [[0, 1, 0], [1, 1, 0]]
    assert not any(key.isdigit() for key in shared["subsets"])  # JavaScript would put those first


def test_the_code_panel_shows_the_line_among_its_neighbours():
    url = trace(outer_kernel, OUTER).explore().url
    code = told(url, "api/op_code", {"uuid": tabs(url)["(0, 0, 0)"][0]["uuid"], "frame_idx": 0, "context": 8})
    lines = {line["no"]: line["text"] for line in code["lines"]}
    assert lines[code["highlight"]] == "    x = tl.load(x_ptr + offs_n, mask=offs_n < N)"
    assert "def outer_kernel" in " ".join(lines.values()) and code["filename"] == "outer_kernel"


def test_a_dot_shows_its_operands_and_their_product():
    made = trace(solutions()["batched_matmul"], PUZZLES["batched_matmul"], 2)
    url = made.explore().url
    ops = tabs(url)["(0, 0, 0)"]
    assert [op["type"] for op in ops] == ["Load", "Load", "Dot", "Load", "Load", "Dot", "Store"]
    dot = ops[2]
    left, right, product = (told(url, f"api/getMatmul{n}", {"uuid": dot["uuid"]})["values"] for n in "ABC")
    assert (np.shape(left), np.shape(right)) == (tuple(dot["input_shape"]), tuple(dot["other_shape"]))
    assert np.allclose(np.matmul(left, right), product, atol=1e-3)
    assert np.allclose(np.array(left)[:, :8], made.recording.tensors["x"][0, :16, :8], rtol=1e-5)


def spiky(x: Float32[Tensor, "B M N"]) -> Float32[Tensor, "B M N"]:
    return x


def spikes(shape, dtype, generator):
    values = torch.arange(float(np.prod(shape)), dtype=dtype).reshape(shape)
    values.view(-1)[:3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    return values


SPIKY = Puzzle(
    number="t3",
    spec=spiky,
    grid=lambda s: (1,),
    cases=(Case(B=2, M=3, N=4, BLOCK=32, fill={"x": spikes}),),
)


@triton.jit
def copy_kernel(x_ptr, z_ptr, B, M, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < B * M * N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


def test_what_is_no_number_goes_over_by_name_and_three_axes_as_the_page_reads_them():
    url = trace(copy_kernel, SPIKY).explore().url
    uuid = tabs(url)["(0, 0, 0)"][0]["uuid"]
    shown = told(url, "api/getLoadTensor", {"uuid": uuid})
    values = shown["values"]  # [y][x][z] of an element x[z, y, x]
    assert [values[0][n][0] for n in range(4)] == ["NaN", "Infinity", "-Infinity", 3.0]
    assert values[2][1][1] == 12 + 2 * 4 + 1
    assert (shown["min"], shown["max"]) == (3.0, 23.0)
    counts = told(url, "api/histogram", {"uuid": uuid, "source": "GLOBAL", "bins": 4, "max_samples": 9})
    assert sum(counts["counts"]) == counts["sampled"] == 21 and counts["n"] == 24


def smallest(puzzle: Puzzle) -> Case:
    """Of the cases with several programs, the one with the fewest elements."""
    several = [case for case in puzzle.cases if not case.pretend and np.prod(puzzle.grid(case)) > 1]
    return min(
        several, key=lambda case: sum(np.prod(a.shape(case.numbers)) for a in puzzle.inputs), default=0
    )


@pytest.mark.parametrize("name", sorted(PUZZLES.keys() & solutions().keys()))
def test_every_solution_can_be_explored(name):
    made = trace(solutions()[name], PUZZLES[name], smallest(PUZZLES[name]))
    assert made.clean and not made.recording.too_large
    assert not made.note or made.note.startswith("In configuration 1 of 2")  # of a tuned one
    shown = page.Page(made.recording)
    programs = shown.data["ops"]["visualization_data"]
    assert len(programs) == np.prod(made.grid)
    for op in {(op["type"], op.get("overall_key")): op for op in sum(programs.values(), [])}.values():
        requests = ["getMatmulA", "getMatmulB", "getMatmulC"] if op["type"] == "Dot" else ["getLoadTensor"]
        for request in requests:
            answer = shown.answer(request, {"uuid": op["uuid"]})
            assert json.dumps(answer, allow_nan=False) and 1 <= answer["dims"] == len(answer["shape"]) <= 3
        assert shown.answer("op_code", {"uuid": op["uuid"]})["lines"]
        if op["type"] != "Dot":
            asked = {key: op[key] for key in ("type", "overall_key", "op_index")}
            shared = shown.answer("getLoadStoreAllPrograms", asked)
            assert shared["shape"] == op["global_shape"]
            assert len(shared["coords"]) == len(shared["counts"]) and shared["max_count"] <= np.prod(
                made.grid
            )


# ---- the page itself


def test_the_page_imports_nothing_from_outside():
    url = trace(masked_kernel, RAGGED_ADD).explore().url
    text = ask(url)[1].decode()
    imports = json.loads(re.search(r'<script type="importmap"[^>]*>(.*?)</script>', text)[1])["imports"]
    assert set(imports) == set(page.fetched()) and set(imports.values()) == {"./static/three.bundle.js"}
    assert "<h1>masked_kernel</h1>" in text and "masked_kernel, N=32" in text
    assert not re.search(r"(src|href)=\"(/|https?:)", text)
    for path in re.findall(r'(?:src|href)="(static/[^"]+)"', text) + ["static/three.bundle.js"]:
        assert ask(url, path)[0] == 200


def test_every_edit_of_the_page_finds_its_place():
    """A new triton-viz would need a look."""
    folder = page._triton_viz() / "static"
    for name, edits in page.EDITS.items():
        text = (folder / name).read_text()
        assert [text.count(old) for old, _ in edits] == [1] * len(edits), name


def test_the_bundle_is_of_the_versions_that_triton_viz_imports_with_every_licence():
    pins = json.loads((REPO / ".setup/explorer/package.json").read_text())["dependencies"]
    wanted = {re.match(r"https://esm\.sh/([\w-]+)@([\d.]+)", address).groups() for address in page.fetched()}
    assert wanted == {(name, pins[name]) for name in ("three", "troika-three-text")}
    head = page.BUNDLE.read_text()[:20_000]
    for name, version in pins.items():
        (licence,) = re.findall(
            rf"==== {re.escape(name)} {re.escape(version)}, (MIT|OFL-1\.1)$", head, re.MULTILINE
        )
        assert licence == ("OFL-1.1" if "font" in name else "MIT")
    assert head.count("Permission is hereby granted") >= 7 and "SIL OPEN FONT LICENSE" in head


# ---- the server


def test_it_listens_on_this_machine_alone_and_wants_its_token():
    url = trace(masked_kernel, RAGGED_ADD).explore().url
    assert urlsplit(url).hostname == "127.0.0.1"
    root, token = url.rsplit("/", 2)[0] + "/", url.rsplit("/", 2)[1]
    assert len(token) >= 30 and ask(url)[0] == 200
    wrong = token[:-1] + ("y" if token.endswith("x") else "x")
    for path in ("", "api/data", f"{token}", f"{wrong}/", f"{token}/../{token[:5]}/", "static/main.js"):
        status, body = ask(root, path)
        assert status == 404 and token.encode() not in body, path
    for path in (
        "static/../server.py",
        "static/%2e%2e/",
        "static//etc/passwd",
        "shutdown",
        "api/update_data",
        "x",
    ):
        assert ask(url, path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "0.0.0.0"])
def test_a_foreign_host_is_refused(host):
    url = trace(masked_kernel, RAGGED_ADD).explore().url
    assert ask(url, host=host)[0] == 403 and ask(url, "api/data", host=host)[0] == 403
    assert ask(url, "api/op_code", {"uuid": "0.0.0-0"}, host=host)[0] == 403
    assert ask(url, host=f"localhost:{urlsplit(url).port}")[0] == 200


def test_garbage_is_answered_and_the_page_lives_on(capfd):
    url = trace(masked_kernel, RAGGED_ADD).explore().url
    path, address = urlsplit(url).path, (urlsplit(url).hostname, urlsplit(url).port)
    uuid = tabs(url)["(0, 0, 0)"][0]["uuid"]
    head = f"POST {path}api/op_code HTTP/1.1\r\nHost: localhost\r\n".encode()
    for raw in (
        b"\x00\xff" * 500,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"A" * 70_000,
        head + b"Content-Length: -5\r\n\r\n{}",
        head + b"Content-Length: 99999999999\r\n\r\n{}",
        head + b"Content-Length: many\r\n\r\n{}",
        head + b"X: 1\r\n" * 200 + b"\r\n",
    ):
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            assert b"Traceback" not in connection.recv(100_000)
    socket.create_connection(address).close()
    for body in (b"", b"{", b"[]", b"3", b"null", b'{"uuid": []}', b"[" * 50_000, b"\xff", b'{"uuid": null}'):
        assert ask(url, "api/op_code", body)[0] in (400, 404)
    for asked in (
        {"uuid": uuid, "source": "GLOBAL", "bins": "x"},
        {"uuid": uuid, "source": "GLOBAL", "bins": None},
        {"uuid": uuid, "source": "B"},
        {"uuid": "9-9", "source": "GLOBAL"},
    ):
        assert ask(url, "api/histogram", asked)[0] in (400, 404)
    for asked in (
        {},
        {"overall_key": "q", "type": "Load", "op_index": 0},
        {"overall_key": "x", "type": 1, "op_index": []},
    ):
        assert ask(url, "api/getLoadStoreAllPrograms", asked)[0] in (400, 404)
    assert ask(url, "api/getMatmulA", {"uuid": uuid})[0] == 404
    assert ask(url)[0] == 200 and tabs(url)
    assert capfd.readouterr() == ("", "")


def test_several_at_once_each_with_its_own_run():
    one, two = trace(masked_kernel, RAGGED_ADD, 1).explore(), trace(outer_kernel, OUTER).explore()
    assert len(tabs(one.url)) == 7 and len(tabs(two.url)) == 4
    assert urlsplit(one.url).path != urlsplit(two.url).path
    assert ask(one.url.rsplit("/", 2)[0] + urlsplit(two.url).path)[0] == 404


def test_it_ends_when_closed_and_says_so():
    opened = trace(masked_kernel, RAGGED_ADD).explore()
    url = opened.url
    assert url in repr(opened) and f'<iframe src="{url}"' in opened._repr_html_()
    opened.close()
    opened.close()
    assert refused(url) and opened.url is None
    assert (
        repr(opened) == "The page has been closed: run the cell again"
        and "iframe" not in opened._repr_html_()
    )


def test_it_ends_when_replaced_and_others_stay():
    first, other = trace(masked_kernel, RAGGED_ADD).explore(), trace(masked_kernel, RAGGED_ADD, 1).explore()
    url = first.url
    again = trace(masked_kernel, RAGGED_ADD).explore()
    assert refused(url) and first.url is None
    assert ask(again.url)[0] == ask(other.url)[0] == 200


def test_the_oldest_ends_when_there_are_many(monkeypatch):
    monkeypatch.setattr(explorer, "MOST_OPEN", 3)
    made = [trace(masked_kernel, RAGGED_ADD, Case(N=n, BLOCK=8)).explore() for n in range(8, 13)]
    assert [each.url is None for each in made] == [True, True, False, False, False]
    assert sum(t.name == "triton-viz's page" for t in threading.enumerate()) == 3


def test_a_child_process_does_not_keep_its_port():
    opened = trace(masked_kernel, RAGGED_ADD).explore()
    url = opened.url
    begun, begins = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(begins, b".")
        signal.pause()
    try:
        os.read(begun, 1)  # the child has begun, and has closed what it doesn't keep
        opened.close()
        assert refused(url)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(begun)
        os.close(begins)


# ---- where there is no page


def test_an_operation_that_triton_viz_itself_cannot_run_is_shown_like_any_other():
    opened = trace(sorting_kernel, RAGGED_ADD, 1).explore()
    programs = tabs(opened.url)
    assert len(programs) == 7 and [op["type"] for op in programs["(0, 0, 0)"]] == ["Load", "Store"]
    assert "cannot trace" not in repr(opened) and "iframe" in opened._repr_html_()


@triton.jit
def adding_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N), mask=offs < N)
    tl.atomic_add(z_ptr + offs, 10.0, mask=offs < N)


def test_atomics_are_said_to_be_left_out():
    opened = trace(adding_kernel, RAGGED_ADD, 1).explore()
    assert [op["type"] for op in tabs(opened.url)["(0, 0, 0)"]] == ["Load", "Store"]
    line = adding_kernel.starting_line_number + 4
    assert f"triton-viz does not record atomics, so line {line} is missing. <a" in opened._repr_html_()


@pytest.mark.parametrize("kernel", [breaking_kernel, lambda x_ptr: x_ptr], ids=["breaks off", "is none"])
def test_a_kernel_that_does_not_run_to_its_end_gets_a_line_and_the_reason(kernel):
    made = trace(kernel, RAGGED_ADD, 1)
    opened = made.explore()
    assert opened.url is None and repr(made) in repr(opened)
    assert opened._repr_html_().endswith(made._repr_html_())


def test_what_a_browser_could_not_draw_is_refused_in_a_line(monkeypatch):
    monkeypatch.setattr(page, "MOST_ELEMENTS", 100)
    opened = trace(masked_kernel, RAGGED_ADD, 1).explore()
    assert repr(opened).startswith(
        "No page: x has 200 elements; triton-viz's page draws at most 100\nmasked_kernel"
    )
    monkeypatch.setattr(page, "MOST_ELEMENTS", 1000)
    monkeypatch.setattr(page, "MOST_STEPS", 10)
    assert "No page: 14 loads, stores and dots" in repr(trace(masked_kernel, RAGGED_ADD, 1).explore())


def test_a_machine_without_a_free_port_gets_a_line(monkeypatch):
    def refuse(*arguments):
        raise PermissionError("not here")

    monkeypatch.setattr(explorer.socketserver.ThreadingTCPServer, "__init__", refuse)
    opened = trace(masked_kernel, RAGGED_ADD).explore()
    assert repr(opened).startswith("No page: not here\nmasked_kernel")


@pytest.mark.parametrize("folder, words", [(None, "is not installed"), ("empty", "does not have the page")])
def test_without_triton_vizs_page_a_line_says_why(monkeypatch, tmp_path, folder, words):
    real = page.importlib.util.find_spec
    found = folder and types.SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(
        page.importlib.util, "find_spec", lambda name: found if name == "triton_viz" else real(name)
    )
    page.files.cache_clear()
    opened = trace(masked_kernel, RAGGED_ADD).explore()
    first, *picture = repr(opened).splitlines()
    assert opened.url is None and first.startswith("No page: ") and words in first
    assert picture == repr(trace(masked_kernel, RAGGED_ADD)).splitlines()
    page.files.cache_clear()


# ---- in a notebook


def test_behind_a_jupyterhub_the_address_is_the_proxys_or_a_line_says_what_to_install(monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    real = explorer.importlib.util.find_spec
    installed = {"jupyter_server_proxy": None}
    monkeypatch.setattr(
        explorer.importlib.util,
        "find_spec",
        lambda name: installed[name] if name in installed else real(name),
    )
    opened = trace(masked_kernel, RAGGED_ADD).explore()
    assert opened.url is None and "jupyter-server-proxy" in repr(opened).splitlines()[0]
    installed["jupyter_server_proxy"] = object()
    opened = trace(masked_kernel, RAGGED_ADD).explore()
    port, token = re.fullmatch(r"/user/ada/proxy/(\d+)/([\w-]+)/", opened.url).groups()
    # The proxy strips its own part, and hands on the host that the browser knows.
    assert ask(f"http://127.0.0.1:{port}/{token}/", host="hub.example")[0] == 200
    assert ask(f"http://127.0.0.1:{port}/{token[:-1]}/", host="hub.example")[0] == 404
    assert "forward port" not in opened._repr_html_()


def shown(client, code: str, allow_stdin: bool) -> str:
    texts = []

    def keep(message):
        if message["msg_type"] in ("execute_result", "error", "stream"):
            texts.append(str(message["content"].get("data", message["content"])))

    client.execute_interactive(code, allow_stdin=allow_stdin, timeout=120, output_hook=keep)
    return "".join(texts)


def test_a_notebook_is_served_the_page_if_somebody_looks_until_its_kernel_ends():
    code = (
        "import tests.test_explorer as t\nopened = t.trace(t.masked_kernel, t.RAGGED_ADD).explore()\nopened"
    )
    with socket_prefix() as prefix:
        manager = KernelManager(transport="ipc", ip=prefix)
        manager.start_kernel(cwd=REPO, env={**os.environ, "PYTHONPATH": str(REPO)})
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=120)
            quiet = shown(client, code, allow_stdin=False)  # as under nbval
            assert "Run this cell in a notebook" in quiet and "http" not in quiet
            assert shown(client, "list(t.explorer._open)", allow_stdin=False) == "{'text/plain': '[]'}"
            loud = shown(client, code, allow_stdin=True)
            url = re.search(r'<iframe src="([^"]+)"', loud)[1]
            assert ask(url)[0] == 200
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    assert refused(url)


@pytest.mark.parametrize("runner", ["nbval/plugin.py", "nbclient/client.py"])
def test_those_who_run_notebooks_say_that_nobody_is_there(runner):
    source = (Path(nbclient.__file__).parents[1] / runner).read_text()
    assert re.search(r"allow_stdin ?= ?False", source)
