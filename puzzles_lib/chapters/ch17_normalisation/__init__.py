TITLE = "Normalisation, and what orders memory"
