"""Tools for authors and maintainers. No module that a learner imports imports any of these."""
