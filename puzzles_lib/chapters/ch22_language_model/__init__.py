TITLE = "A language model"
