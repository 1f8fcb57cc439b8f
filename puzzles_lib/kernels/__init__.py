"""Production kernels: what the puzzles grow up to be.

Imports torch and triton only, and runs on Triton 3.6 and 3.7. CPU tensors take a plain torch path with
the same results, so that everything above works without a GPU.
"""
