"""What the checker takes for a GPU's arithmetic, on one, bit for bit.

python -m pytest -o addopts= tests/test_arithmetic_gpu.py
"""

import numpy as np
import pytest

from puzzles_lib.authoring.solutions import define
from tests.test_arithmetic import FUSED, KERNEL, N, tensors

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("expression", FUSED)
def test_a_gpu_takes_the_product_unrounded(expression):
    kernel = define(KERNEL.replace("EXPRESSION", expression), "<fused>")
    given = {name: tensor.cuda() for name, tensor in tensors().items()}
    kernel[(1,)](**given, N=N)
    wide = [given[f"{name}_ptr"].double().cpu().numpy() for name in "xyw"]
    assert np.array_equal(given["z_ptr"].cpu().numpy(), FUSED[expression](*wide).astype(np.float32))
