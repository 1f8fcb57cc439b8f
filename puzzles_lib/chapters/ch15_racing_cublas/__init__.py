TITLE = "Racing cuBLAS"
