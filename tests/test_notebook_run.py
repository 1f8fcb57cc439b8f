"""That nbval, as the course runs it, notices what it should and overlooks what it should."""

import os
import time
from pathlib import Path

import nbformat
import pytest

from puzzles_lib.authoring.release import normalise
from puzzles_lib.authoring.sockets import socket_prefix
from tests import notebook_run
from tests.notebook_run import run_under_nbval


@pytest.fixture
def notebook(tmp_path):
    """Writes a notebook of one cell: its source, the output kept in the file."""

    def write(source, *outputs):
        cell = nbformat.v4.new_code_cell(source, id="cell", execution_count=1, outputs=list(outputs))
        nb = normalise(nbformat.v4.new_notebook(cells=[cell]))
        path = tmp_path / "00_small.ipynb"
        nbformat.write(nb, path)
        return path

    return write


def stdout(text):
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def picture(base64):
    data = {
        "text/plain": "[picture]",
        "text/html": f'<img alt="two blocks" src="data:image/png;base64,{base64}">',
    }
    return nbformat.v4.new_output("display_data", data=data)


SHOW = """\
from IPython.display import display
data = {"text/plain": "[picture]", "text/html": '<img alt="%s" src="data:image/png;base64,%s">'}
display(data, raw=True)"""


def test_same_output_passes(notebook):
    run_under_nbval(notebook("print(6 * 7)", stdout("42\n")), "--nbval")


@pytest.mark.parametrize(
    "source, said",
    [
        ("print(6 * 8)", "42"),
        ("1 / 0", "ZeroDivisionError"),
        ("import sys\nprint(42)\nprint('hm', file=sys.stderr)", "stderr"),
    ],
)
def test_other_output_fails(notebook, source, said):
    with pytest.raises(pytest.fail.Exception, match=said):
        run_under_nbval(notebook(source, stdout("42\n")), "--nbval")


def test_bytes_of_a_picture_are_not_compared_but_its_alt_text_is(notebook):
    path = notebook(SHOW % ("two blocks", "AAAA+/=="), picture("BBBBCCCC"))
    run_under_nbval(path, "--nbval")
    with pytest.raises(pytest.fail.Exception, match="three blocks"):
        run_under_nbval(notebook(SHOW % ("three blocks", "AAAA"), picture("AAAA")), "--nbval")


def test_lax_wants_no_output_but_no_error_either(notebook):
    run_under_nbval(notebook("print(1)"), "--nbval-lax")
    with pytest.raises(pytest.fail.Exception, match="ZeroDivisionError"):
        run_under_nbval(notebook("1 / 0"), "--nbval-lax")


def test_dead_kernel_is_noticed(notebook):
    with pytest.raises(pytest.fail.Exception, match="the kernel died"):
        run_under_nbval(notebook("import os\nos._exit(1)"), "--nbval-lax")


def test_a_cell_that_hangs_is_given_up_on(notebook, monkeypatch):
    monkeypatch.setattr(notebook_run, "CELL_TIMEOUT_S", 2)
    with pytest.raises(pytest.fail.Exception, match="Timeout of 2 seconds exceeded"):
        run_under_nbval(notebook("import time\ntime.sleep(600)"), "--nbval-lax")


def test_a_notebook_that_hangs_is_given_up_on_and_its_kernel_ends(notebook, monkeypatch, tmp_path):
    own_pid, seconds = tmp_path / "pid", 2
    source = f"""\
import os, pathlib, time
pathlib.Path({str(own_pid)!r}).write_text(str(os.getpid()))
time.sleep(600)"""
    while not (own_pid.exists() and own_pid.read_text()):  # on a busy computer, perhaps not started
        seconds *= 2
        monkeypatch.setattr(notebook_run, "NOTEBOOK_TIMEOUT_S", seconds)
        with pytest.raises(pytest.fail.Exception, match=f"/00_small.ipynb: not done after {seconds} s"):
            run_under_nbval(notebook(source), "--nbval-lax")
    kernel = int(own_pid.read_text())
    for _ in range(300):
        if not is_there(kernel):
            break
        time.sleep(0.1)
    assert not is_there(kernel)


def is_there(pid: int) -> bool:
    """Whether a process is, and not only waits to be fetched."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_kernel_that_does_not_start_is_said_in_a_few_lines(notebook, kernel_command):
    kernel_command("false")
    with pytest.raises(pytest.fail.Exception, match="no kernel to run it: Kernel died") as error:
        run_under_nbval(notebook("print(1)"), "--nbval-lax")
    assert len(str(error.value).splitlines()) < 20


def test_the_kernel_talks_over_sockets(notebook):
    source = "from ipykernel.connect import get_connection_info\nassert '\"ipc\"' in get_connection_info()"
    run_under_nbval(notebook(source), "--nbval-lax")


def test_sockets_lie_in_a_folder_with_a_short_name(tmp_path, monkeypatch):
    with socket_prefix() as first, socket_prefix() as second:
        assert os.path.isabs(first) and os.path.dirname(first) != os.path.dirname(second)
    assert not os.path.exists(os.path.dirname(first))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("long" * 30)))
    with socket_prefix() as prefix:
        assert len(f"{prefix}-5") < 107
