TITLE = "Reductions: loops and running values"
