"""Example programs that use `puzzles_lib.kernels`.

python -m puzzles_lib.examples.train_vit --help
"""
