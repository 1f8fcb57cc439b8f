"""The bugs of chapter 20's patients."""

from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS

MISTAKES = tuple(patient.slip for patient in PATIENTS)
