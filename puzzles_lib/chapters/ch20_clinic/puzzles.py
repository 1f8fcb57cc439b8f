"""Chapter 20: the kernels of its patients, each handed out with its bug."""

from puzzles_lib.chapters.ch20_clinic.patients import PATIENTS

PUZZLES = tuple(patient.puzzle for patient in PATIENTS)
