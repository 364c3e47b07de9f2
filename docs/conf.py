"""How the site is made of the Markdown in this folder and the docstrings of accord: `make docs`."""

import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parent.parent
project, author = "accord", "The accord authors"
release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
project_copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "accord"
html_static_path = ["_static"]
html_css_files = ["dark.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#b0352f", "color-brand-content": "#b0352f"},
    "dark_css_variables": {"color-brand-primary": "#ef8f86", "color-brand-content": "#ef8f86"},
}
html_math_renderer = "mathml"

autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
viewcode_follow_imported_members = True
nitpicky = True
nitpick_ignore_regex = [
    # Other libraries' names have no pages here, and a strict build asks no network for theirs.
    (
        "py:.*",
        r"(torch|numpy|np|nn|collections|pathlib|multiprocessing|fractions|datasets|flwr_datasets|Path|Tensor|Any|Mapping)\b.*",
    ),
    ("py:class", r"(accord\.engines\.(contract|job)\..*|Plan)"),  # what engines are handed is not for users
    ("py:class", r"accord\.runs\.(rows|evaluation)\..*"),  # rows and evaluations: their docstrings are the reference
    ("py:class", r"accord\.core\.metrics\..*"),  # as above
    ("py:class", r"Refit"),  # which tables alone are made with
    ("py:class", r"accord\.runs\.client_models\..*"),  # which `Run` alone is handed
    ("py:class", r"accord\.core\.protocols\..*"),  # the guide "Write your own rule" is their page
]


def as_markdown(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written for people who read code: `names` in backquotes, everything else as it is. Sphinx would
    take |x| and * for markup of its own."""
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            parts = re.split(r"(`+[^`]+`+)", line)
            parts[::2] = [re.sub(r"([|*_])", r"\\\1", part) for part in parts[::2]]
            parts[1::2] = [f"``{part.strip('`')}``" for part in parts[1::2]]
            lines[number] = "".join(parts)


def without_notes(app: Sphinx, obj: Any, bound_method: bool) -> None:
    """A signature tells a field's type; what the field is for stands on the page of settings."""
    if isinstance(notes := getattr(obj, "__annotations__", None), dict):
        obj.__annotations__ = {
            name: get_args(kind)[0] if get_origin(kind) is Annotated else kind for name, kind in notes.items()
        }


def plain_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> Any:
    """A default that is made anew each time is an ellipsis: what Python prints for it is no expression, and would spoil
    the whole line."""
    return (signature or "").replace("<factory>", "...") or signature, returns


class Settings(SphinxDirective):
    """Every key of an experiment file, a table for each section."""

    def run(self) -> list[nodes.Node]:
        from accord.experiments.reference import keys
        from accord.experiments.settings import SECTIONS

        text = []
        for section in SECTIONS:
            text += [f"## [{section}]", "", "| key | default | what it is |", "|---|---|---|"]
            for key, default, about in keys():
                if key.startswith(f"{section}."):
                    shown = "-" if default is None else f"`{json.dumps(default)}`"
                    text.append(
                        f"| `{key.removeprefix(f'{section}.')}` | {shown} | {about.replace('|', chr(92) + '|')} |"
                    )
            text.append("")
        return self.parse_text_to_nodes("\n".join(text), allow_section_headings=True)


class Notebook(MystParser):
    """A notebook as the page of its cells, with what they printed when it was last run."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        text = []
        for cell in json.loads(inputstring)["cells"]:
            source = "".join(cell["source"])
            text.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
            printed = "".join(line for output in cell.get("outputs", []) for line in output["text"])
            if printed:
                text.append(f"```text\n{printed}```")
        super().parse("\n\n".join(text), document)


def inline_equation(translator: Any, node: nodes.math) -> None:
    """Equations are MathML, which browsers draw themselves: no script, no network."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def equation(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_directive("accord-settings", Settings)
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(Notebook)
    app.connect("autodoc-process-docstring", as_markdown)
    app.connect("autodoc-before-process-signature", without_notes)
    app.connect("autodoc-process-signature", plain_signature)
    app.add_html_math_renderer("mathml", (inline_equation, None), (equation, None))
