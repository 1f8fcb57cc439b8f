TITLE = "Fusion: one pass over memory"
