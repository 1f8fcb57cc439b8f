"""What the patients of chapter 20 suffer from."""

from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS

MISTAKES = tuple(patient.slip for patient in PATIENTS)
