"""The measurements that the course's figures come from: ``python -m puzzles_lib.bench --help``.

Nothing else in the library imports them. The code that takes times, and the records, are in
`puzzles_lib.timing`.
"""
