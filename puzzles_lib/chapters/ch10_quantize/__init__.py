TITLE = "Quantize and pack: scale, minimum, rounding"
