"""What the site has beside the pages of docs/: commands, methods, settings as the code has them, notebooks, figures.

MkDocs calls `on_files` and `on_page_markdown` while it builds. Nothing is copied by hand, so nothing grows old.
"""

import base64
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from traitlets.config import Config
from typer.main import get_command

from dmuh.cli import app

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
COMMANDS = """# Command line

Every command says this by `--help` too, and `--json` gives its result to other programs. A mistake is one sentence on
standard error and exit code 2; Ctrl-C is exit code 130."""
METHOD_NOTES = """# Methods

Each is one small file in `src/dmuh/methods`, with its formula, its paper and every deviation from it. Deep methods
train in one loop on the same networks; shallow ones are fitted to the features of a frozen network. `dmuh list
--methods` shows them too.

{table}

`--preset paper` takes the settings of the paper for `dmuh`: β = 50, γ = 1, α = 0.7, SGD from 0.05 to 0.0005, and sums
normalised as its learning rate implies. The other deep methods have theirs by the same name, with 150 epochs each; the
method's file says what of it is neither its paper's nor its authors' code's. `dsdh` has a second one, `--preset
released`: the weights that its authors' code runs with, which are not those that their paper prints. One thing that no
paper does stays on in all of them: `standardize` scales the features and the fresh hash layer before the first step,
because without it training often does not leave zero; `--set standardize=false` is the papers' way. The defaults are
chosen to train well on small and large sets alike.
"""
SETTINGS = """# Settings

What `--set key=value` takes, the TOML files of `--config`, and `dmuh.configure`. `dmuh list --settings` shows them
too."""
Table = list[dict[str, str]]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the files from outside of docs/."""
    made: dict[str, str | bytes] = {
        "reference/command-line.md": command_line(),
        "reference/methods.md": methods(),
        "reference/settings.md": settings(),
    }
    for source in sorted(NOTEBOOKS.glob("*.py")):
        made |= notebook_page(source.stem, run_notebook(source))
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    shown = ("figures", "tuned/figures", "regime/figures", "unclipped/figures")
    for figure in (file for folder in shown for file in sorted((ROOT / "results" / folder).glob("*.png"))):
        files.append(File.generated(config, f"figures/{figure.name}", abs_src_path=str(figure)))
    files.append(File.generated(config, "figures/report.html", abs_src_path=str(ROOT / "results" / "index.html")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Include the files of the repository's top, whose links lead to docs/ from there."""
    included = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}.get(page.file.src_uri)
    if included is None:
        return markdown
    text = (ROOT / included).read_text(encoding="utf-8")
    return re.sub(r"\]\(docs/", "](", text)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Keep figures with their deviation, and the names of methods, on one line of a table."""
    html = re.sub(r"<td>(?=[a-z]+(?:-[a-z]+)+</td>)", '<td style="white-space: nowrap">', html)
    return html.replace(" ± ", "\u00a0±\u00a0")


def command_line() -> str:
    """Return the reference of all commands, from the texts of their own --help."""
    parts = [COMMANDS]
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    for name, command in group.commands.items():
        context = typer.Context(command, info_name=f"dmuh {name}")
        usage = command.get_usage(context).removeprefix("Usage: ")
        parts.append(f"## dmuh {name}\n\n```text\n{usage}\n```\n\n{_paragraphs(command.help or '')}")
        parts.append(_markdown_table(list(_parameters(command, context))))
    return "\n\n".join(parts) + "\n"


def _parameters(command: Any, context: Any) -> Iterator[dict[str, str]]:
    for parameter in command.params:
        if parameter.name == "help":
            continue
        record = parameter.get_help_record(context)
        name, text = record if record is not None else (parameter.name, "")
        if not name.startswith("-"):
            name = (parameter.metavar or parameter.name).upper()
        yield {"argument or option": f"`{name.strip()}`", "what it does": text or ""}


def _paragraphs(text: str) -> str:
    """Return a help text with its examples as code."""
    shown = []
    for part in re.split(r"\n\s*\n", text.replace("\b", "")):
        line = " ".join(part.split())
        begin, command, rest = line.partition("dmuh ") if line.startswith("Example: ") else ("", "", "")
        shown.append(f"{begin.strip()}\n\n```text\n{command}{rest}\n```" if command else line.replace("<", "&lt;"))
    return "\n\n".join(shown)


def methods() -> str:
    """Return the table of all methods."""
    from dmuh.methods import METHODS

    rows = [
        {"name": f"`{name}`", "kind": method.kind, "year": str(method.year), "what it is": method.title,
         "where it is from": method.paper}
        for name, method in METHODS.items()
    ]  # fmt: skip
    return METHOD_NOTES.format(table=_markdown_table(rows))


def settings() -> str:
    """Return the tables of all settings, by section and by method."""
    from dmuh.config import SECTIONS, describe
    from dmuh.methods import METHODS

    parts = [SETTINGS]
    groups = {name.capitalize(): cls for name, cls in SECTIONS.items()}
    groups |= {f"Method {name}": method.Options for name, method in METHODS.items()}
    for title, cls in groups.items():
        rows = [
            {"setting": f"`{name}`", "default": f"`{default!s}`" if str(default) else "", "what it does": str(about)}
            for name, default, about in describe(cls)
        ]
        if rows:
            parts.append(f"## {title}\n\n{_markdown_table(rows)}")
    return "\n\n".join(parts) + "\n"


def run_notebook(source: Path) -> Any:
    """Return a notebook with what its cells gave, made from its source."""
    book = jupytext.read(source)
    with tempfile.TemporaryDirectory() as folder:
        # The kernel is this Python; it is spoken to by files of this folder, and no port is opened.
        config = Config(KernelManager={"transport": "ipc", "ip": str(Path(folder) / "kernel")})
        how = {"timeout": 600, "startup_timeout": 300, "resources": {"metadata": {"path": str(NOTEBOOKS)}}}
        NotebookClient(book, kernel_name="python3", config=config, **how).execute()
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return book


def notebook_page(name: str, book: Any) -> dict[str, str | bytes]:
    """Return a notebook as a page, its pictures, and as a file to open in Jupyter, by path."""
    page: list[str] = []
    made: dict[str, str | bytes] = {}
    for cell in book.cells:
        if cell.cell_type == "markdown":
            page.append(cell.source)
            continue
        page.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            if output.output_type == "stream":
                page.append(f"```text\n{output.text.rstrip()}\n```" if output.name == "stdout" else "")
                continue
            data = output.data
            if "image/png" in data:
                picture = f"{name}-{len(made)}.png"
                made[f"notebooks/{picture}"] = base64.b64decode(data["image/png"])
                page.append(f"![{_title_of(cell)}]({picture})")
            elif "text/html" in data:
                page.append("".join(f"{line.strip()}\n" for line in data["text/html"].splitlines() if line.strip()))
            else:
                page.append(f"```text\n{data['text/plain']}\n```")
    page.append(f"[Download it as a notebook]({name}.ipynb){{ download }}")
    made[f"notebooks/{name}.ipynb"] = nbformat.writes(book)
    made[f"notebooks/{name}.md"] = "\n\n".join(page) + "\n"
    return made


def _title_of(cell: Any) -> str:
    """Return what a picture shows: the comment that its cell begins with."""
    first = str(cell.source).partition("\n")[0]
    return first.removeprefix("# ") if first.startswith("# ") else "What the cell above drew"


def _markdown_table(rows: Table) -> str:
    columns = list(rows[0])
    cells_of = [[row[column].replace("|", "\\|").replace("<", "&lt;") for column in columns] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells_of]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
