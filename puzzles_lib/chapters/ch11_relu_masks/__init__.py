TITLE = "ReLU masks: one bit for backward"
