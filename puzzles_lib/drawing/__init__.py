"""What notebooks show: cards of HTML, and figures with alt text, readable in a light or dark theme.

    card                        what everything says itself on
    colours                     by name
    sheet                       pictures made by hand: cells, boxes, labels, arrows and a legend on a sheet
    accesses, errors            pictures made from what a kernel did
    canvas, layout, svg, live   what these are made with

Figures are matplotlib's, unknown to pyplot, so that nothing piles up in a long session; a card needs none.
"""
