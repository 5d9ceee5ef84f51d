"""The plan of the house, checked: one direction of imports, no dumping grounds, known letters."""

import ast
import re
from pathlib import Path
from typing import get_args, get_type_hints

import harken
from harken.attention.positions import PositionConfig
from harken.attention.scores import ScoreConfig
from harken.shapes import LETTERS

ROOT = Path(harken.__file__).parent

# Each room may import the rooms above it, and itself.
ORDER = [
    "version",
    "errors",
    "files",
    "shapes",
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
    "training",
    "tasks",
    "recipe",
    "provenance",
    "run",
    "foreign",
    "cost",
    "claims",
    "report",
    "pipeline",
    "api",
    "demo",
    "cli",
    "__main__",
]
TENSORS_ONLY = {"attention", "layers", "models", "design", "decode"}
DATA_HALF = {"formats", "corpora", "synthetic", "augment", "encode", "batch"}


def rooms() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        first = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if first != "__init__":
            found.setdefault(first, []).append(path)
    return found


def imports(path: Path) -> set[str]:
    """Rooms that a file imports, at the top or inside functions, type checking left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
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
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module)
            if node.module == "harken":
                names |= {f"harken.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("harken.")}


def test_every_room_has_its_place() -> None:
    assert set(rooms()) <= set(ORDER)


def test_imports_go_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for room, paths in rooms().items()
        for path in paths
        for other in imports(path)
        if ORDER.index(other) > ORDER.index(room)
    ]
    assert wrong == []


def test_models_know_tensors_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {other}"
        for room in TENSORS_ONLY & set(rooms())
        for path in rooms()[room]
        for other in imports(path) & DATA_HALF
    ]
    assert wrong == []


def test_no_dumping_grounds() -> None:
    forbidden = re.compile(r"^_?(utils?|helpers?|common|misc|core|base|tools?)$")
    names = [
        part for path in ROOT.rglob("*") for part in path.relative_to(ROOT).with_suffix("").parts
    ]
    assert [name for name in names if forbidden.match(name)] == []


def test_files_stay_short() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in ROOT.rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}


def test_every_module_says_why_it_is_there() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def shape_strings(path: Path) -> list[str]:
    """The second part of every `Float[Tensor, "…"]`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
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
        f"{path.relative_to(ROOT)}: {letter!r} in {shape!r}"
        for path in ROOT.rglob("*.py")
        for shape in shape_strings(path)
        for letter in (part.lstrip("#*") for part in shape.split())
        if not letter.isdigit()
        and letter not in LETTERS
        and not (letter.islower() and len(letter) > 2)
    ]
    assert unknown == []
    assert any(shape_strings(path) for path in ROOT.rglob("*.py"))


def error_messages(path: Path) -> list[str]:
    """The text of every `UserError(…)` and `Failure(…)` in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
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
    """A Python caller cannot pass `--resume`: a flag is marked as one of the command line.

    Whole commands, as in `harken train recipe.toml --resume`, work for everybody.
    """
    command = re.compile(r"`harken [^`]*`")
    wrong = [
        f"{path.relative_to(ROOT)}: {message}"
        for room, paths in rooms().items()
        if room != "cli"
        for path in paths
        for message in error_messages(path)
        if re.search(r"(^|[^-])--[a-z]", command.sub("", message)) and "command line" not in message
    ]
    assert wrong == []


# Files that Harken itself wrote or brought, stdin, and the system's own.
OPENERS = {"inputs.py", "files.py", "memory.py", "page.py", "predict.py"}


def test_every_input_file_is_opened_by_inputs() -> None:
    """Reading a path directly would hang on a pipe, or fill the memory from a device."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or path.name in OPENERS:
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            mode = node.args[0] if node.args else None
            reads = name in ("read_text", "read_bytes") or (
                name == "open" and isinstance(mode, ast.Constant) and mode.value in ("r", "rb")
            )
            assert not reads, f"{path}:{node.lineno} opens a file; use harken.inputs"


def test_tasks_do_not_lose_their_types() -> None:
    """The one `Any` of a task is in the registry of `recipe.py`."""
    names = [
        f"{path.name}:{node.lineno} {name}"
        for path in (ROOT / "tasks").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (name := getattr(node, "attr", getattr(node, "id", getattr(node, "name", ""))))
        in ("Any", "cast")
        and hasattr(node, "lineno")
    ]
    assert names == []


def kinds_of_scores_and_positions() -> set[str]:
    """Names of the configs of the two unions and of the classes that these build."""
    configs = [*get_args(ScoreConfig), *get_args(PositionConfig)]
    built = [get_type_hints(config.build)["return"] for config in configs]
    classes = [kind for hint in built for kind in get_args(hint) or (hint,)]
    return {kind.__name__ for kind in (*configs, *classes)}


def test_scores_and_positions_describe_themselves() -> None:
    """Only `attention/` asks which kind of score or position it has."""
    kinds = kinds_of_scores_and_positions()
    assert {"MergedConfig", "MergedScore", "RotaryConfig", "Rotary"} <= kinds
    calls = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for room, paths in rooms().items()
        if room != "attention"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("isinstance", "issubclass")
        and kinds & {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
    ]
    assert calls == []
