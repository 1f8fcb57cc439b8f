"""What is asked of each patient of chapter 20, before anything is run."""

from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS

QUESTIONS = tuple(patient.question for patient in PATIENTS)
