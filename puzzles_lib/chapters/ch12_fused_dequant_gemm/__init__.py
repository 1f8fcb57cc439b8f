TITLE = "Fused dequant-GEMM: unpack inside the matmul"
