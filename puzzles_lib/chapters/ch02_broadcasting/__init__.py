TITLE = "Broadcasting: rows, columns and tiles"
