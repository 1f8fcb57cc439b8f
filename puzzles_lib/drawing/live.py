"""Interactive pictures: HTML that shows a first state, and a script that changes it.

Without scripts, in a notebook that is not trusted yet or on GitHub, the first state stays, with a line that
says how to start it. The picture requests nothing from outside.
"""

import html
from dataclasses import dataclass

from puzzles_lib.drawing.colours import JET

ASLEEP = "Run this cell to make it interactive."
CODE = "font:12px var(--jp-code-font-family,monospace)"
ON_FILL = f"color:{JET};{CODE}"  # a text on a bright color


@dataclass(frozen=True, repr=False)
class Live:
    """A picture that reacts to the mouse and to keys.

    kind: a word that names it on the page. body: HTML of the first state. script: JavaScript, a function of
    the element around `body`. alt: the first state and what can be changed, in words.
    """

    kind: str
    body: str
    script: str
    alt: str

    def __repr__(self) -> str:
        return f"[picture] {self.alt}"

    def _repr_html_(self) -> str:
        style = "max-width:820px;margin:.4em 0;color:var(--jp-content-font-color1,inherit)"
        return (
            f'<div class="puzzles-live" data-kind="{self.kind}" role="group" '
            f'aria-label="{html.escape(self.alt)}" style="{style}">{self.body}'
            f'<div class="asleep"><em>{ASLEEP}</em></div><script>(() => {{\nconst wake = {self.script};\n'
            f"for (const root of document.querySelectorAll('.puzzles-live[data-kind=\"{self.kind}\"]')) {{\n"
            "  root.querySelector('.asleep')?.remove();\n"
            # Without this, JupyterLab uses the arrow keys itself; it asks each element.
            "  for (const one of root.querySelectorAll('input, button')) "
            "one.dataset.lmSuppressShortcuts = 'true';\n"
            "  if (!root.awake) wake(root);\n  root.awake = true;\n}\n})();</script></div>"
        )
