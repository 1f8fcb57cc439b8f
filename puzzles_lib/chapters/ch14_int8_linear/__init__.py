TITLE = "Int8 dynamic linear: a real model through your kernel"
