"""Write docs/reference.md and docs/reference/*.md: every recipe key, from the config dataclasses.

    python tools/reference.py

The description of a key is the comment after its field, or the comment lines above the field. If
the comment starts with "of", the name of the key is put before it.
"""

import ast
import inspect
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import MISSING, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harken.config.schema import (
    KeySpec,
    Types,
    choices,
    config_types,
    item_types,
    key_specs,
    tagged_classes,
    types_of,
)
from harken.config.write import as_plain, toml_literal
from harken.recipe import TASKS
from harken.training.loop import StageConfig

DOCS = Path(__file__).parent.parent / "docs"
INTRO = """# Recipe reference

A recipe is a TOML file with `task = "NAME"` and the keys below; `harken new` writes a short one. A
key that is not marked as required may be left out. The default of a table, such as
`{ kind = "lstm", layers = 2 }`, takes precedence over the defaults in the rows of that table. If
the recipe sets another `kind`, the defaults of that kind apply. `--set model.width=64` overrides a
key of the file. A table that occurs at several paths has a heading with its last name: [score] is,
for example, `[model.attention.score]`.

These pages are generated from the source by `python tools/reference.py`.

"""
HEADER = "| key | default | values | meaning |\n| --- | --- | --- | --- |"
NAMES = {bool: "`true` or `false`", int: "integer", float: "number", str: "string", Path: "path"}
SIGNS = {"at_least": "≥", "above": ">", "at_most": "≤", "below": "<"}
# Pages of the tables that several tasks share, by the folder of the class. A table of a single task
# is on the page of this task.
TOPICS = {
    "augment": ("training", "Training stages, optimizers and runtime"),
    "attention": ("attention", "Attention and positions"),
    "design": ("models", "Models"),
    "layers": ("layers", "Layers"),
    "models": ("models", "Models"),
    "training": ("training", "Training stages, optimizers and runtime"),
    "encode": ("tokenizers", "Tokenizers"),
    "decode": ("search", "Search"),
    "tasks": ("data", "Data"),
}


@cache
def field_comments(path: str) -> dict[tuple[str, str], str]:
    """Return the comments of the annotated fields of a source file, by class and field."""
    text = Path(path).read_text(encoding="utf-8")
    by_line, whole_lines = {}, set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type")):
            by_line[token.start[0]] = token.string.lstrip("# ").strip()
            if token.line.lstrip().startswith("#"):
                whole_lines.add(token.start[0])
    fields = {}
    for node in ast.walk(ast.parse(text)):
        for field in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                first = field.lineno
                while first - 1 in whole_lines:
                    first -= 1
                lines = range(first, (field.end_lineno or first) + 1)
                words = " ".join(by_line[line] for line in lines if line in by_line)
                fields[node.name, field.target.id] = words
    return fields


def describe(kind: type, name: str) -> str:
    """Return the description of a key, or "" if the source has no comment."""
    for base in kind.__mro__[:-1]:
        if text := field_comments(inspect.getfile(base)).get((base.__name__, name), ""):
            text = f"{name.replace('_', ' ')} {text}" if text.startswith("of ") else text
            return (text[0].upper() + text[1:]).rstrip(".").replace("|", "\\|") + "."
    return ""


def is_kind_key(spec: KeySpec) -> bool:
    """Return whether a key has a single possible value: it is the `kind` of its table."""
    return len(choices(spec.types)) == 1


def tables(
    types: Types, path: tuple[str, ...] = (), owner: str = ""
) -> Iterator[tuple[type, str, str, str]]:
    """Yield (class, path, kind, kind of the table that holds it) of every table of a recipe."""
    union = config_types(types)
    tag, by_value = tagged_classes(union) if len(union) > 1 else ("", {})
    values = {kind: f'{tag} = "{value}"' for value, kind in by_value.items()}
    for kind in union:
        value = values.get(kind, "")
        yield kind, ".".join(path), value, owner
        for name, spec in key_specs(kind).items():
            yield from tables(spec.types, (*path, name), value)
            yield from tables(item_types(spec.types), (*path, name), value)


class Reference:
    """The sections of all tables, each on one page."""

    def __init__(self) -> None:
        self.paths: dict[type, list[str]] = defaultdict(list)
        self.kinds: dict[type, str] = {StageConfig: ""}
        self.owners: dict[type, str] = {}
        users: dict[type, set[str]] = defaultdict(set)
        for task in TASKS:
            for kind, path, value, owner in tables(types_of(TASKS[task].recipe_type)):
                self.paths[kind] = list(dict.fromkeys((*self.paths[kind], path)))
                self.kinds[kind] = self.kinds.get(kind) or value
                self.owners[kind] = owner
                users[kind].add(task)
        self.titles = {task: f"Recipe of the task {task}" for task in TASKS}
        self.pages: dict[str, list[type]] = {task: [] for task in TASKS}
        for kind in self.kinds:
            if len(users[kind]) == 1:
                (page,) = users[kind]
            else:
                page, title = TOPICS[kind.__module__.split(".")[1]]
                self.titles.setdefault(page, title)
            self.pages.setdefault(page, []).append(kind)
        self.page_of = {kind: page for page, kinds in self.pages.items() for kind in kinds}

    def heading(self, kind: type) -> str:
        if kind is StageConfig:
            return "Every training stage"
        paths = self.paths[kind]
        names = paths if len(paths) == 1 else sorted({path.rpartition(".")[2] for path in paths})
        table = " or ".join(f"[{name}]" for name in names if name) or "Top level"
        others = [other for other in self.kinds if self.paths[other] == paths]
        # Tables of one path in different tables, such as the columns of texts and of sounds.
        value = self.kinds[kind] or (self.owners[kind] if len(others) > 1 else "")
        return f"{table} with {value}" if value else table

    def link(self, kind: type, name: str = "table") -> str:
        anchor = re.sub(r"[^\w\- ]", "", self.heading(kind).lower()).replace(" ", "-")
        name = self.kinds[kind].split('"')[1] if self.kinds[kind] else name
        return f"[{name}]({self.page_of[kind]}.md#{anchor})"

    def values(self, spec: KeySpec) -> str:
        """Return the allowed values of a key."""
        parts = [f"`{toml_literal(choice)}`" for choice in choices(spec.types)]
        for types, form in ((spec.types, "{}"), (item_types(spec.types), "array of {}")):
            if names := [NAMES[scalar] for scalar in types if scalar in NAMES]:
                parts.append(form.format(" or ".join(names) + format_bounds(spec.bounds)))
            if links := [self.link(kind) for kind in config_types(types)]:
                parts.append(form.format(", ".join(links)))
        if items := [f"`{toml_literal(choice)}`" for choice in choices(item_types(spec.types))]:
            parts.append(f"array of {', '.join(items)}")
        return ", ".join(parts)

    def section(self, kind: type) -> str:
        intro = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
        lines = [f"## {self.heading(kind)}", "", intro, ""]
        specs = key_specs(kind)
        if issubclass(kind, StageConfig) and kind is not StageConfig:
            lines += [f"All keys of {self.link(StageConfig, 'every stage')}, and:", ""]
            own = inspect.get_annotations(kind)
            specs = {name: spec for name, spec in specs.items() if name in own}
        rows = [
            f"| `{name}` | {format_default(spec)} | {self.values(spec)} | {describe(kind, name)} |"
            for name, spec in specs.items()
            if not is_kind_key(spec)
        ]
        if rows:
            lines += [HEADER, *rows, ""]
        return "\n".join(lines)

    def files(self) -> dict[str, str]:
        """Return the text of every page by its path in docs/."""
        links = "\n".join(f"- [{self.titles[page]}](reference/{page}.md)" for page in self.pages)
        texts = {"reference.md": f"{INTRO}{links}\n"}
        for page, kinds in self.pages.items():
            body = "\n".join(map(self.section, kinds))
            texts[f"reference/{page}.md"] = f"# {self.titles[page]}\n\n{body}"
        return texts

    def undescribed_keys(self) -> list[str]:
        """Return the keys whose field has no comment."""
        return sorted(
            f"{kind.__module__}.{kind.__name__}.{name}"
            for kind in self.kinds
            for name, spec in key_specs(kind).items()
            if not is_kind_key(spec) and not describe(kind, name)
        )


def format_bounds(limits: dict[str, float]) -> str:
    """Return bounds such as ", 1 to 64" or ", > 0"."""
    if limits.keys() == {"at_least", "at_most"}:
        return f", {limits['at_least']:,} to {limits['at_most']:,}"
    return "".join(f", {SIGNS[name]} {bound:,}" for name, bound in limits.items())


def format_default(spec: KeySpec) -> str:
    """Return the default of a key as TOML; for a table, the keys that differ from its defaults."""
    default = spec.default_value(None)
    if default is MISSING or default is None:
        return "required" if default is MISSING else "none"
    if is_dataclass(default):
        changes = changed_keys(default, is_union=len(config_types(spec.types)) > 1)
        return f"`{toml_literal(changes)}`" if changes else "defaults"
    if isinstance(default, tuple):
        default = [as_plain(item) if is_dataclass(item) else item for item in default]
    return f"`{toml_literal(str(default) if isinstance(default, Path) else default)}`"


def changed_keys(config: Any, *, is_union: bool) -> dict[str, Any]:
    """Return the values of a config that are not the defaults of its class, and its kind."""
    changes: dict[str, Any] = {}
    for name, spec in key_specs(type(config)).items():
        value, default = getattr(config, name), spec.default_value(None)
        if value == default and not (is_union and is_kind_key(spec)):
            continue
        if is_dataclass(value):
            changes[name] = changed_keys(value, is_union=type(value) is not type(default))
        else:
            changes[name] = str(value) if isinstance(value, Path) else value
    return changes


def main() -> None:
    """Write the pages and remove old ones."""
    texts = Reference().files()
    (DOCS / "reference").mkdir(exist_ok=True)
    for path in (DOCS / "reference").glob("*.md"):
        path.unlink()
    for name, text in texts.items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
