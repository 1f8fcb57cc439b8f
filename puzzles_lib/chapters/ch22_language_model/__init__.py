TITLE = "A language model, out of your own kernels"
