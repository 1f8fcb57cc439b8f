TITLE = "Broadcasting: two axes, a grid"
