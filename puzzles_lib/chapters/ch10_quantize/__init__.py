TITLE = "Quantise and pack: scale, minimum, rounding"
