"""Triton's front end at work in a process of its own, and what it says in words for learners.

Nothing here imports torch or numpy, for a process that has them is slow to fork: `nursery` is one that has
not.
"""
