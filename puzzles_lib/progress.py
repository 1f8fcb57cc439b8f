"""Run ``python -m puzzles_lib.progress [--json | --csv] [FILE ...]``. The command is in `export`."""

import signal
import sys

if __name__ == "__main__":
    from puzzles_lib.export import main

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `... | head` is not an error
    sys.exit(main())
else:  # the package has a function with this name, which an imported module would replace
    from puzzles_lib.overview import progress

    sys.modules[__name__] = progress  # type: ignore[assignment]
