"""Measurements that the course's figures come from: ``python -m puzzles_lib.bench --help``."""
