"""Rules of docs/architecture.md: the order of imports, unique names, known shape letters."""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import get_args, get_type_hints

import harken
from harken.attention.positions import PositionConfig
from harken.attention.scores import ScoreConfig

ROOT = Path(harken.__file__).parent
DOCS = Path(__file__).parents[1] / "docs"
LETTERS = re.findall(r"^\| `(\w)` \|", (DOCS / "architecture.md").read_text("utf-8"), re.MULTILINE)

# A folder or file imports only itself and those above it.
ORDER = [
    "version",
    "errors",
    "notebook",
    "files",
    "strict_json",
    "inputs",
    "config",
    "formats",
    "corpora",
    "synthetic",
    "augment",
    "encode",
    "batch",
    "attention",
    "layers",
    "design",
    "models",
    "decode",
    "inspection",
    "measure",
    "run_folder",
    "run_list",
    "training",
    "tasks",
    "recipe",
    "run",
    "start",
    "provenance",
    "python_examples",
    "foreign",
    "cost",
    "claims",
    "report",
    "pipeline",
    "seeds",
    "export",
    "api",
    "demo",
    "serve",
    "cli",
    "__main__",
]
TENSORS_ONLY = {"attention", "layers", "models", "design", "decode"}
COMMAND = ("cli", "run")
DATA_FOLDERS = {"formats", "corpora", "synthetic", "augment", "encode", "batch"}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


FILES = {str(path.relative_to(ROOT)): parse(path) for path in sorted(ROOT.rglob("*.py"))}


def folder_of(file: str) -> str:
    """Return the folder of a file, or the name of a file at the top."""
    return Path(file).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> set[str]:
    """Return the folders that a file imports, also inside functions, except for type checking."""
    only_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in only_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"relative import of {node.module}"
            names.add(node.module)
            if node.module == "harken":
                names |= {f"harken.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("harken.")}


def test_imports_follow_the_order() -> None:
    folders = {file: folder_of(file) for file in FILES if file != "__init__.py"}
    assert set(folders.values()) <= set(ORDER)
    wrong = [
        f"{file} imports {other}"
        for file, folder in folders.items()
        for other in imports(FILES[file])
        if ORDER.index(other) > ORDER.index(folder)
        or (folder in TENSORS_ONLY and other in DATA_FOLDERS)
    ]
    assert wrong == []


def test_names_are_unique() -> None:
    """A public class or function has one meaning in the package.

    The `run` of each command and the parsers of `cli/parsers/`, named after their commands, are
    excepted.
    """
    places = defaultdict(set)
    for file, tree in FILES.items():
        for node in tree.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
                continue
            if not file.startswith("cli/parsers/") and (folder_of(file), node.name) != COMMAND:
                places[node.name].add(file)
    repeated = {name: sorted(files) for name, files in places.items() if len(files) > 1}
    assert not repeated, "\n".join(f"{name}: {files}" for name, files in sorted(repeated.items()))


def test_no_dumping_grounds() -> None:
    forbidden = re.compile(r"^_?(utils?|helpers?|common|misc|core|base|tools?)$")
    names = {part for file in FILES for part in Path(file).with_suffix("").parts}
    assert [name for name in names if forbidden.match(name)] == []


def test_files_are_short_and_have_a_docstring() -> None:
    for file, tree in FILES.items():
        assert len((ROOT / file).read_text(encoding="utf-8").splitlines()) <= 400, file
        assert ast.get_docstring(tree), file


def shape_strings(tree: ast.Module) -> list[str]:
    """Return the second part of every `Float[Tensor, "…"]`."""
    return [
        node.slice.elts[1].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"Float", "Int", "Bool"}
        and isinstance(node.slice, ast.Tuple)
        and isinstance(node.slice.elts[1], ast.Constant)
    ]


def test_shapes_use_the_letters() -> None:
    """Capital or single letters must be listed; a whole word (`pairs`, `rows`) explains itself."""
    unknown = [
        f"{file}: {letter!r} in {shape!r}"
        for file, tree in FILES.items()
        for shape in shape_strings(tree)
        for letter in (part.lstrip("#*") for part in shape.split())
        if not letter.isdigit()
        and letter not in LETTERS
        and not (letter.islower() and len(letter) > 2)
    ]
    assert unknown == []
    assert any(map(shape_strings, FILES.values()))


def error_messages(tree: ast.Module) -> list[str]:
    """Return the text of every `UserError(…)` and `Failure(…)` in a file."""
    return [
        "".join(
            part.value
            for part in ast.walk(call)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in {"UserError", "OptionError", "Failure"}
    ]


def test_errors_of_the_library_do_not_assume_the_command_line() -> None:
    """A Python caller cannot pass `--resume`; whole commands in backquotes are allowed."""
    command = re.compile(r"`harken [^`]*`")
    wrong = [
        f"{file}: {message}"
        for file, tree in FILES.items()
        if folder_of(file) != "cli"
        for message in error_messages(tree)
        if re.search(r"(^|[^-])--[a-z]", command.sub("", message)) and "command line" not in message
    ]
    assert wrong == []


# They read files that Harken wrote or contains, stdin, and files of the system.
OPENERS = {"inputs.py", "files.py", "memory.py", "page.py", "predict.py"}


def test_every_input_file_is_opened_by_inputs() -> None:
    """Reading a path directly would hang on a pipe, or fill the memory from a device."""
    for file, tree in FILES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or Path(file).name in OPENERS:
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            mode = node.args[0] if node.args else None
            reads = name in ("read_text", "read_bytes") or (
                name == "open" and isinstance(mode, ast.Constant) and mode.value in ("r", "rb")
            )
            assert not reads, f"{file}:{node.lineno} opens a file; use harken.inputs"


def test_tasks_do_not_lose_their_types() -> None:
    """Only the registry in `recipe.py` uses `Any` for tasks."""
    names = [
        f"{file}:{node.lineno} {name}"
        for file, tree in FILES.items()
        if folder_of(file) == "tasks"
        for node in ast.walk(tree)
        if (name := getattr(node, "attr", getattr(node, "id", getattr(node, "name", ""))))
        in ("Any", "cast")
        and hasattr(node, "lineno")
    ]
    assert names == []


def kinds_of_scores_and_positions() -> set[str]:
    """Return the names of the configs of the two unions and of the classes that they build."""
    configs = [*get_args(ScoreConfig), *get_args(PositionConfig)]
    built = [get_type_hints(config.build)["return"] for config in configs]
    classes = [kind for hint in built for kind in get_args(hint) or (hint,)]
    return {kind.__name__ for kind in (*configs, *classes)}


def test_scores_and_positions_describe_themselves() -> None:
    """Only `attention/` asks which kind of score or position it has."""
    kinds = kinds_of_scores_and_positions()
    assert {"MergedConfig", "MergedScore", "RotaryConfig", "Rotary"} <= kinds
    calls = [
        f"{file}: {ast.unparse(node)}"
        for file, tree in FILES.items()
        if folder_of(file) != "attention"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("isinstance", "issubclass")
        and kinds & {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
    ]
    assert calls == []
