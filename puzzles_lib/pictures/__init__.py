"""The pictures of the chapters: a module each, whose functions return `drawing.Picture`."""
