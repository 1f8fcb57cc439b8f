"""Pictures for the notebooks: matplotlib figures with alt text, readable in a light or dark theme."""

import base64
import html
import io

import matplotlib
from matplotlib.figure import Figure

# Okabe & Ito's palette, told apart by readers with any common colour blindness.
PALETTE = tuple(matplotlib.color_sequences["okabe_ito"])


class Picture:
    """A figure that shows itself in a notebook as a PNG with alt text.

    The figure keeps a white card behind it, so that it reads the same in Jupyter's dark theme. As
    text a picture is its alt text, which must say what the figure shows, numbers included.
    """

    def __init__(self, figure: Figure, alt: str):
        if not alt:
            raise ValueError("Picture: alt is empty, it must say what the figure shows")
        self.figure = figure
        self.alt = " ".join(alt.split())

    def png(self) -> bytes:
        """The figure as PNG bytes, the same for the same figure (no date, no version inside)."""
        buffer = io.BytesIO()
        self.figure.savefig(
            buffer, format="png", dpi=110, bbox_inches="tight", facecolor="white", metadata={"Software": None}
        )
        return buffer.getvalue()

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.png()).decode()
        style = "max-width:100%;background:white;padding:6px;border-radius:4px"
        return f'<img alt="{html.escape(self.alt)}" style="{style}" src="data:image/png;base64,{data}"/>'

    def __repr__(self) -> str:
        return f"[picture] {self.alt}"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches that is no part of pyplot's global state."""
    return Figure(figsize=(width, height), layout="constrained")
