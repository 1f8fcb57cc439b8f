"""The cases: a module each, found by its number. `PATIENT` is what it gives."""

import importlib
import pkgutil

from puzzles_lib.chapters.ch20_clinic.patient import Patient

PATIENTS: tuple[Patient, ...] = tuple(
    importlib.import_module(f"{__name__}.{name}").PATIENT
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__))
)
"""All cases, in order."""
