"""What authors and maintainers run; nothing that a learner imports leads here."""
