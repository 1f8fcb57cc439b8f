"""``python -m puzzles_lib.progress [--json | --csv] [FILE ...]``: the command is in `export`."""

import signal
import sys

if __name__ == "__main__":
    from puzzles_lib.export import main

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `... | head` is no error
    sys.exit(main())
else:  # the package has a function of this name, and an imported module would take its place
    from puzzles_lib.overview import progress

    sys.modules[__name__] = progress  # type: ignore[assignment]
