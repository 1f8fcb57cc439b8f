"""Production kernels: what the puzzles grow up to be.

Imports torch and triton only, runs on Triton 3.6 and 3.7, and compiles with 3.9 (`make test-next`). CPU
tensors take a plain torch path with the same results, so that everything above works without a GPU.
"""
