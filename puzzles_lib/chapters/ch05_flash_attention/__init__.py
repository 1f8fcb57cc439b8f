TITLE = "Flash attention: online softmax, dot"
