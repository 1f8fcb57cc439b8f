"""Draw what notebooks show: cards of HTML, and figures with alt text, readable in a light or dark theme.

    card                        the card that shows results
    colours                     the colors, by name
    sheet                       pictures composed by code: cells, boxes, labels, arrows and a legend
    accesses, errors            pictures made from what a kernel did
    canvas, layout, svg, live   what these pictures are made with

Figures are matplotlib's, but unknown to pyplot, so that they do not pile up in a long session. A card needs
no matplotlib.
"""
