"""`python -m puzzles_lib.examples.train_vit`, of which rank 1 is killed in step 3; started by torchrun."""

import os
import signal
import sys

from puzzles_lib.examples import train_vit, training

step_of = training.take_step


def killed(run, images, optimiser, ranks, step):
    if (ranks.rank, step) == (1, 3):
        os.kill(os.getpid(), signal.SIGKILL)
    step_of(run, images, optimiser, ranks, step)


if __name__ == "__main__":
    training.take_step = killed
    sys.exit(train_vit.main())
