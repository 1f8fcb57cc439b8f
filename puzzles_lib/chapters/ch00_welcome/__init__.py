TITLE = "Welcome"
