TITLE = "Flash attention: online softmax and matrix products"
