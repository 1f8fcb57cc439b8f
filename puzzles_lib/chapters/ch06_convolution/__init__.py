TITLE = "Convolution: halo, zero padding"
