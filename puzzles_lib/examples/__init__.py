"""Programs to run and to take apart: what `puzzles_lib.kernels` is like to use.

python -m puzzles_lib.examples.train_vit --help
"""
