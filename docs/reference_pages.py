"""Write the generated pages of the reference: commands, recipes, step ids, errors of the book's sources.

`conf.py` calls `write_pages` before every build. Nothing in them is typed: they come from the help of the commands, the
recipes and the table of steps, so they cannot disagree with the program.
"""

from __future__ import annotations

import os
import re
import tomllib
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from unittest import mock

from glassformer.cli.main import COMMANDS, main
from glassformer.config.recipes import load_recipe, recipe_names, recipe_text
from glassformer.explain.capture.sites import AXES, SITES
from glassformer.nn.operations import OPERATIONS


def write_pages(folder: Path) -> list[Path]:
    """Write every generated page into a folder; returns their paths. A page that has not changed is not touched."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"command-line": command_line(), "recipes": recipes(), "steps": steps(), "errata": errata()}
    for path in folder.glob("*.md"):
        if path.stem not in pages:  # of an earlier version: Sphinx would read it
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return [folder / f"{name}.md" for name in pages]


def command_line() -> str:
    """Return the page of the commands, with all flags."""
    parts = [
        "# Command line",
        "What `glassformer COMMAND --help` prints. The name above a group of flags is a table of a recipe in TOML, and "
        "the flags are its fields: `--lr`, of the group `train`, is `lr` in `[train]`. `--no-` turns a switch off: "
        "`--no-json`.",
    ]
    for name in COMMANDS:
        parts += [f"## {name}", f"```text\n{help_of(name)}\n```"]
    return "\n\n".join(parts) + "\n"


def help_of(name: str) -> str:
    """Return the help of a command, in lines that a page has room for."""
    with redirect_stdout(StringIO()) as printed, suppress(SystemExit), mock.patch.dict(os.environ, COLUMNS="88"):
        main([name, "--help"])
    return printed.getvalue().strip()


def recipes() -> str:
    """Return the page of the shipped recipes, as their files with comments."""
    parts = ["# Recipes", "`glassformer recipes NAME` prints one; edit a copy and train it by its path."]
    for name in recipe_names():
        config = load_recipe(name)
        parts += [f"## {name}", f"Task `{config.task}`. {config.note}", f"```toml\n{recipe_text(name).rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def steps() -> str:
    """Return the page of the steps that an explanation records: operations, kinds of steps, axes."""
    rows = [(f"`{name}`", site.op, ", ".join(site.axes)) for name, site in SITES.items()]
    operations = [
        (
            f"`{name}`",
            f"`{row.takes}`" if row.takes else "",
            f"`{row.gives}`" if row.gives else "",
            ", ".join(f"`{name} = {gives}`" for name, gives in row.where.items()),
            "; ".join(f"{to}: `{gives}`" for to, gives in row.gradients.items()),
        )
        for name, row in OPERATIONS.items()
    ]
    axes = [(f"`{name}`", meaning) for name, meaning in AXES.items()]
    return (
        "\n\n".join(
            [
                "# Steps of a forward pass",
                "An id such as `decoder.1.cross.weights` names stack, layer (from 0), block and step. The last word is "
                "one of the kinds below; what follows a colon is a variant of one kind.",
                "## Kinds of steps",
                table(("step", "operation", "axes"), rows),
                "## Operations",
                "`WORDS` in `nn/operations.py` says what each function is.",
                table(("operation", "takes", "gives", "where", "gradients"), operations),
                "## Axes",
                table(("axis", "meaning"), axes),
            ]
        )
        + "\n"
    )


def errata() -> str:
    """Return the page of what the book's sources teach and get wrong, with the places that show it."""
    with (Path(__file__).parent / "book" / "rows.toml").open("rb") as file:
        rows = tomllib.load(file)
    parts = [
        "# Errors of the sources",
        "The [book](../../book/reading.md) follows five tutorials. Their authors taught many people, and these pages "
        "stand on their work. What they print is not run by their readers, though, and errors travel. Each error below "
        "is shown in the book by a cell that runs, and tested.",
    ]
    for number, source in rows["sources"].items():
        wrong = [row for id, row in rows["wrong"].items() if id.startswith(number)]
        wrong += [row for row in rows["more"] if row["source"] == int(number)]
        parts += [f"## {number}. {source}", "| it says | right is | shown in |\n| --- | --- | --- |"]
        parts[-1] += "".join(f"\n| {row['says']} | {row['is']} | {place_of(row)} |" for row in wrong)
        also = [(row["id"], row) for row in rows["also"]]
        taught = [row for id, row in [*rows["taught"].items(), *also] if id.startswith(number)]
        parts.append("It teaches " + "; ".join(f"{row['words']} ({place_of(row)})" for row in taught) + ".")
    return "\n\n".join(parts) + "\n"


def place_of(row: dict[str, str]) -> str:
    """Return a link to the heading of the book that a row names."""
    slug = re.sub(r"[^\w -]", "", row["heading"]).lower().replace(" ", "-")
    text = (Path(__file__).parent / "book" / f"{row['page']}.md").read_text(encoding="utf-8")
    title = text.partition("\n# ")[2].partition("\n")[0]
    return f"[{title}: {row['heading']}](../../book/{row['page']}.md#{slug})"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    plain = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in plain)
