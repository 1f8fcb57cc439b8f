TITLE = "Bit-packing: shift, sum, sign"
