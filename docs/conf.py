"""The documentation as a site: `make docs` builds it into `build/docs`.

The pages are Markdown that reads well by itself; nothing here fetches anything, and neither do the pages.
"""

from __future__ import annotations

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import lswap

project = "lswap"
author = "the lswap authors"
project_copyright = author
version = release = lswap.__version__

extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["_static", "examples"]
# Pages link to headings of each other, as on any place that shows Markdown.
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"lswap {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
# A prompt is not copied, and neither is what the command prints.
copybutton_prompt_text = "$ "


def setup(app: Sphinx) -> None:
    """Drawings in Mermaid stay text here, as showing them would take a script from elsewhere."""
    app.add_lexer("mermaid", TextLexer)
