TITLE = "Your own kernel"
