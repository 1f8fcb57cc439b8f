"""The clinic's cases: one module for each, named by its number, which defines `PATIENT`."""

import importlib

from puzzles_lib.chapters.ch20_clinic.patient import Patient

ORDER = (
    "p45_bias_relu",
    "p43_running_sums",
    "p41_far_rows",
    "p60_random_rounding",
    "p56_cells",
    "p47_any_above",
    "p48_kept_scores",
    "p64_tuned_rows",
    "p65_temperatures",
    "p53_norm_and_turn",
    "p55_products",
    "p57_discounted_sum",
    "p59_attended",
)
"""Part by part of the notebook, each of which uses another way of looking."""

PATIENTS: tuple[Patient, ...] = tuple(importlib.import_module(f"{__name__}.{name}").PATIENT for name in ORDER)
"""All cases, in order."""
