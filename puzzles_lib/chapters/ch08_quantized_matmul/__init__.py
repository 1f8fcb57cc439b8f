TITLE = "Quantised matmul: 4-bit weights"
