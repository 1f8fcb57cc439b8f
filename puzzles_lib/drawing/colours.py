"""The colours of the pictures, by name: a name is one colour in every chapter."""

# Okabe & Ito's palette, told apart by readers with any common colour blindness.
BLACK = "#000000"
ORANGE = "#e69f00"
SKY = "#56b4e9"
GREEN = "#009e73"
YELLOW = "#f0e442"
BLUE = "#0072b2"
VERMILLION = "#d55e00"
PURPLE = "#cc79a7"
PALETTE = (BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE)
# Two more, where programs need eight colours beside the marks.
LILAC = "#b9a7e6"
BROWN = "#8c6239"

# Pale ones, under a text or for what is only repeated.
PALE_ORANGE = "#f8e6c4"
PALE_SKY = "#d9eefa"
PALE_GREEN = "#dfeee6"

# Greys, from dark to light.
INK = "#1a1a1a"  # text and outlines
HATCHING = "#444444"
FAINT = "#555555"  # lesser labels
RIM = "#777777"  # around a whole tensor
LINE = "#8c8c8c"  # cell borders
GREY = "#999999"
SLATE = "#b0b0b0"  # cell borders under bolder lines, in four shades
BLANK = "#b5b5b5"
SILVER = "#c4c4c4"
MIST = "#cccccc"
PALE = "#eeeeee"  # cells without a meaning of their own
HAZE = "#f4f4f4"  # what barely shows

# Program 0, 1, 2 ...; without vermillion, black and grey: those mark lanes out of bounds, the outline and
# shared elements.
PROGRAM_COLORS = (SKY, ORANGE, GREEN, PURPLE, YELLOW, BLUE, LILAC, BROWN)
PROGRAM_TINTS = ("#dbeefb", "#fdebc8", "#cdeee2", "#f3dcea", "#fbf7c4", "#cfe3f2", "#e6defa", "#e8dccb")
BAD = VERMILLION  # lanes out of bounds
