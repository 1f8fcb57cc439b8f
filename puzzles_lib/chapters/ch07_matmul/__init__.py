TITLE = "Matmul: tl.dot and the accumulator"
