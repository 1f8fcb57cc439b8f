TITLE = "Blocks: load, store, mask"
