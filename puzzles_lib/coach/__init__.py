"""Help for one puzzle: `hint` before it is solved, `mistake` after."""
