TITLE = "Quantized matmul: 4-bit weights"
