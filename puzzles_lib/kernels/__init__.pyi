# What `__init__.py` imports on first use, for type checkers and editors. A test keeps both lists equal.
from puzzles_lib.kernels.attention import (
    attention as attention,
)
from puzzles_lib.kernels.bitpack import (
    pack_bits as pack_bits,
    unpack_bits as unpack_bits,
)
from puzzles_lib.kernels.checkpoints import (
    pack_checkpoints as pack_checkpoints,
    packed_checkpoint as packed_checkpoint,
)
from puzzles_lib.kernels.dequant_gemm import (
    dequant_gemm as dequant_gemm,
    dequant_gemm_dw as dequant_gemm_dw,
)
from puzzles_lib.kernels.grouped_matmul import (
    grouped_matmul as grouped_matmul,
)
from puzzles_lib.kernels.linear_cross_entropy import (
    linear_cross_entropy as linear_cross_entropy,
)
from puzzles_lib.kernels.modules import (
    PackedDropout as PackedDropout,
    PackedGELU as PackedGELU,
    PackedLayerNorm as PackedLayerNorm,
    PackedLinear as PackedLinear,
    PackedMLP as PackedMLP,
    PackedReLU as PackedReLU,
    PackedRMSNorm as PackedRMSNorm,
    PackedSiLU as PackedSiLU,
    pack_activations as pack_activations,
    report as report,
    seed_rounding as seed_rounding,
    unpack_activations as unpack_activations,
)
from puzzles_lib.kernels.packed_relu import (
    relu_pack as relu_pack,
    relu_unpack_backward as relu_unpack_backward,
)
from puzzles_lib.kernels.paged_decode import (
    paged_attention as paged_attention,
)
from puzzles_lib.kernels.q8_linear import (
    Q8Linear as Q8Linear,
    q8_linear as q8_linear,
    quantize_rows as quantize_rows,
    swap_linears as swap_linears,
)
from puzzles_lib.kernels.quantize import (
    PackedTensor as PackedTensor,
    dequantize as dequantize,
    quantize_pack as quantize_pack,
)
from puzzles_lib.kernels.rope import (
    rope as rope,
)
