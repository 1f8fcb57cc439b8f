TITLE = "From Python to machine code"
