TITLE = "Normalization, and what orders memory"
