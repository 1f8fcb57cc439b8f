"""The wheel in an empty environment: `make test PYTEST_ARGS="--wheel tests/test_wheel_alone.py"`.

It downloads torch and other libraries, several gigabytes, so it is not run by itself.
"""

import sys
from pathlib import Path

import pytest

from tests.environment import printed, run
from tests.handout import make_handout

pytestmark = pytest.mark.wheel

NEIGHBORS = ("accelerate", "peft", "timm", "torchvision", "transformers")
TRAIN = """
import copy
import torch
from torch import nn
from puzzles_lib.kernels import dequant_gemm, pack_activations, q8_linear, quantize_pack, quantize_rows

torch.manual_seed(0)
plain = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
packed = pack_activations(copy.deepcopy(plain), 8, 32)
x = torch.randn(32, 64)
losses = [model(x).square().sum() for model in (plain, packed)]
assert torch.allclose(*losses)
for loss in losses:
    loss.backward()
for (name, ours), theirs in zip(packed.named_parameters(), plain.parameters()):
    assert torch.nn.functional.cosine_similarity(ours.grad.flatten(), theirs.grad.flatten(), 0) > 0.999, name
w = torch.randn(64, 64)
assert torch.allclose(dequant_gemm(x, quantize_pack(w, 8, 32)), x @ w.T, atol=0.5)
assert torch.allclose(q8_linear(x, *quantize_rows(w)), x @ w.T, atol=0.5)
import triton
print(torch.__version__, triton.__version__)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("alone")
    source = make_handout(folder / "source")
    printed(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    printed(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    printed(python, "-m", "pip", "install", "--quiet", wheel)
    return python


def test_it_brings_little_and_its_layers_train(python):
    names = printed(python, "-m", "pip", "list", "--format=freeze").lower()
    assert "torch==" in names and "triton==" in names
    for name in ("matplotlib", "jupyter", "triton-viz", "jaxtyping"):
        assert name not in names
    assert printed(python, "-c", TRAIN)


def test_the_course_says_what_it_misses(python):
    ran = run(python, "-c", "from puzzles_lib import check")
    assert ran.returncode == 1 and "jaxtyping" in ran.stderr.splitlines()[-1]
    assert ran.stderr.splitlines()[-1].startswith("ImportError: the course needs ")


def test_its_page_in_an_index_would_not_be_empty(python):
    code = "import importlib.metadata as m; d = m.metadata('triton-bit-by-bit'); print(d, d.get_payload())"
    shown = printed(python, "-c", code)
    for text in ("Author: ", "Keywords: ", "Classifier: ", "# Triton, bit by bit", "License-Expression: MIT"):
        assert text in shown


def test_libraries_beside_it_break_nothing(python):
    said = printed(python, "-m", "pip", "install", *NEIGHBORS)
    assert "triton-bit-by-bit" not in said.partition("Successfully installed")[0]
    assert run(python, "-m", "pip", "check").returncode == 0
    assert printed(python, "-c", TRAIN)
