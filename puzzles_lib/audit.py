"""``python -m puzzles_lib.audit module:function --inputs module:make_inputs``: the command of `auditor`.

The function `puzzles_lib.audit` is in `puzzles_lib.auditor`, since a module cannot share its function's name;
this one is only run, and nothing imports it.
"""

from puzzles_lib.auditor.command import main

if __name__ == "__main__":
    raise SystemExit(main())
