TITLE = "Normalisation: norms, and what orders memory"
