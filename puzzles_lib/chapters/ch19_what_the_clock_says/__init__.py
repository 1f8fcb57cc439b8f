TITLE = "What the clock says: measuring, occupancy, the roofline, autotune"
