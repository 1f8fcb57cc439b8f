"""The clinic's cases: one module for each, named by its number, which defines `PATIENT`."""

import importlib

from puzzles_lib.chapters.ch20_clinic.patient import Patient

ORDER = (
    "p45_bias_relu",
    "p56_cells",
    "p43_running_sums",
    "p64_tuned_rows",
    "p57_discounted_sum",
    "p41_far_rows",
    "p47_any_above",
    "p55_products",
    "p60_random_rounding",
    "p65_temperatures",
    "p48_kept_scores",
    "p53_norm_and_turn",
    "p59_attended",
)
"""As in the notebook. Neighbors need different ways of looking, so that the order gives nothing away."""

PATIENTS: tuple[Patient, ...] = tuple(importlib.import_module(f"{__name__}.{name}").PATIENT for name in ORDER)
"""All cases, in order."""
