TITLE = "The clinic: real bugs"
