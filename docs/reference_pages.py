"""Write the generated pages of the reference: commands, configuration, recipes, step ids, errors.

`conf.py` calls `write_pages` before every build. Nothing in them is typed: they come from the dataclasses, the
recipes, the table of steps and the error classes, so they cannot disagree with the program.
"""

from __future__ import annotations

import re
import tomllib
import types
import typing
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from glassformer import errors
from glassformer.cli.flags import PREFIXED
from glassformer.cli.main import COMMANDS
from glassformer.config import Config, docstrings
from glassformer.config.recipes import load_recipe, recipe_names, recipe_text
from glassformer.explain.capture.sites import AXES, OPERATIONS, SITES

SECTIONS = ("data", "text", "model", "train", "decode")


def write_pages(folder: Path) -> list[Path]:
    """Write every generated page into a folder; returns their paths. A page that has not changed is not touched."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "command-line": command_line(),
        "configuration": configuration(),
        "recipes": recipes(),
        "steps": steps(),
        "errors": error_classes(),
        "errata": errata(),
    }
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return [folder / f"{name}.md" for name in pages]


def command_line() -> str:
    """Return the page of the commands: what each does, and the flags that are its own."""
    parts = [
        "# Command line",
        "`glassformer COMMAND --help` prints those of one command. Commands that train or decode also take the "
        "settings of [configuration](configuration.md) as flags. A switch has no value: `--json` turns it on, "
        "`--no-json` off.",
    ]
    for name, summary in COMMANDS.items():
        parts += [f"## {name}", f"{capital(summary)}.", *own_flags(arguments_of(name))]
    for name in ("audit", "curve", "encode"):
        parts += [f"## data {name}", *own_flags(arguments_of(name))]
    return "\n\n".join(parts) + "\n"


def arguments_of(command: str) -> Any:
    """Return the dataclass of a command's flags."""
    return getattr(import_module(f"glassformer.cli.{command}"), f"{command.capitalize()}Arguments")


def own_flags(cls: Any) -> list[str]:
    """Return a table of the flags of a command, and the sections of the configuration that it takes."""
    hints, docs, start = get_type_hints(cls), docstrings(cls), cls()
    rows, taken = [], getattr(cls, "sections", ())
    for f in fields(cls):
        flag = f"--{f.name.replace('_', '-')}"
        rows.append((f"`{flag}`", type_text(hints[f.name], f), value_text(getattr(start, f.name)), docs[f.name]))
    found = [table(("flag", "value", "default", "meaning"), rows)] if rows else []
    if taken:
        links = ", ".join(f"[{name}](configuration.md#{name})" for name in taken)
        found.append(f"And the settings of {links}.")
    return found


def configuration() -> str:
    """Return the page of every field of a configuration, by section."""
    parts = [
        "# Configuration",
        "A recipe is a configuration in TOML; the flags of `train` are its fields. A recipe is listed where it sets a "
        "field to another value than the default. A flag of type bool has no value; `no-` before its name turns it "
        "off, as in `--model.no-bias`.",
    ]
    set_by = recipes_by_field()
    for section in SECTIONS:
        cls = get_type_hints(Config)[section]
        parts += [f"({section})=\n## {section}", first_paragraph(cls)]
        for key, inner in tables(cls, section):
            if key != section:
                parts += [f"### {key}", first_paragraph(inner)]
            parts.append(field_table(inner, key, set_by))
    return "\n\n".join(parts) + "\n"


def tables(cls: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield a section and its inner sections, with their keys in TOML."""
    yield key, cls
    for name, kind in get_type_hints(cls).items():
        if is_dataclass(kind):
            yield from tables(kind, f"{key}.{name}")


def field_table(cls: Any, key: str, set_by: dict[str, list[str]]) -> str:
    """Return the table of the fields of one section, inner sections left out."""
    hints, docs, rows = get_type_hints(cls), docstrings(cls), []
    for f in fields(cls):
        if is_dataclass(hints[f.name]):
            continue
        prefix = f"{key}." if key in PREFIXED else ""
        flag = f"--{prefix}{f.name.replace('_', '-')}"
        recipes = ", ".join(f"`{name}`" for name in set_by.get(f"{key}.{f.name}", []))
        meaning = f"{docs[f.name]} Set by {recipes}." if recipes else docs[f.name]
        rows.append((f"`{f.name}`<br>`{flag}`", type_text(hints[f.name], f), value_text(f.default), meaning))
    return table(("field and flag", "type and range", "default", "meaning, and recipes that set it"), rows)


def recipes_by_field() -> dict[str, list[str]]:
    """Return the recipes that set each field to another value than its default."""
    found: dict[str, list[str]] = {}

    def compare(section: Any, default: Any, key: str, recipe: str) -> None:
        for f in fields(section):
            value, other = getattr(section, f.name), getattr(default, f.name)
            if is_dataclass(value):
                compare(value, other, f"{key}.{f.name}", recipe)
            elif value != other:
                found.setdefault(f"{key}.{f.name}", []).append(recipe)

    for recipe in recipe_names():
        config = load_recipe(recipe)
        for section in SECTIONS:
            compare(getattr(config, section), getattr(Config(), section), section, recipe)
    return found


def recipes() -> str:
    """Return the page of the shipped recipes, as their files with comments."""
    parts = ["# Recipes", "`glassformer recipes NAME` prints one; edit a copy and train it by its path."]
    for name in recipe_names():
        config = load_recipe(name)
        parts += [f"## {name}", f"Task `{config.task}`. {config.note}", f"```toml\n{recipe_text(name).rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def steps() -> str:
    """Return the page of the steps that an explanation records: operations, kinds of steps, axes."""
    rows = []
    for name, site in SITES.items():
        axes = ", ".join(site.axes)
        rows.append((f"`{name}`", site.op, " ".join(f"`{step}`" for step in site.inputs), axes))
    operations = [(f"`{name}`", f"`{takes}`" if takes else "", result) for name, (takes, result) in OPERATIONS.items()]
    axes = [(f"`{name}`", meaning) for name, meaning in AXES.items()]
    return (
        "\n\n".join(
            [
                "# Steps of a forward pass",
                "An id such as `decoder.1.cross.weights` names stack, layer (from 0), block and step. The last word is "
                "one of the kinds below; what follows a colon is a variant of one kind.",
                "## Kinds of steps",
                table(("step", "operation", "inputs", "axes"), rows),
                "## Operations",
                table(("operation", "inputs, parameters, constants", "result"), operations),
                "## Axes",
                table(("axis", "meaning"), axes),
            ]
        )
        + "\n"
    )


def error_classes() -> str:
    """Return the page of the errors and exit codes."""
    classes = [errors.GlassformerError, *errors.GlassformerError.__subclasses__()]
    rows = [(f"`{cls.__name__}`", str(cls.exit_code), first_paragraph(cls)) for cls in classes]
    return "\n\n".join(
        [
            "# Errors and exit codes",
            "A command that succeeds exits with 0. `Interrupted` exits with 129 (SIGHUP), 130 (Ctrl-C) or 143 "
            "(SIGTERM). A message names what was expected, what came and where; a second line says what to try. "
            "`--json` prints the same as one JSON object, `--debug` the traceback.",
            table(("error", "exit code", "when"), rows) + "\n",
        ]
    )


def type_text(kind: Any, f: Field[Any]) -> str:
    """Return a type and an interval as a reader sees them: `int [1, 100]`, `adam or sgd`."""
    if get_origin(kind) is typing.Annotated:
        kind = get_args(kind)[0]
    options = [option for option in get_args(kind) if option is not types.NoneType]
    if get_origin(kind) in (typing.Union, types.UnionType):
        kind = options[0]
    if get_origin(kind) is Literal:
        return " or ".join(f"`{option}`" for option in get_args(kind))
    name = "list of str" if get_origin(kind) is tuple else getattr(kind, "__name__", str(kind))
    return f"{name} {f.metadata['interval']}" if "interval" in f.metadata else name


def value_text(value: Any) -> str:
    """Return a default as TOML or a flag spells it; empty for none."""
    if value is None or value in ("", ()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def first_paragraph(cls: type) -> str:
    """Return the first paragraph of a class's docstring on one line."""
    return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())


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


def capital(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    plain = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in plain)
