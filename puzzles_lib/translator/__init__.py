"""Run Triton's front end in a separate process, and translate its messages into words for learners.

Nothing here imports torch or numpy, because a process with them is slow to fork; `nursery` has neither.
"""
