TITLE = "Attention: forward and backward"
