from pathlib import Path

import pytest

from harken.config import load_config
from harken.config.source import MAX_BYTES
from harken.errors import UserError
from small_config import DATA, Tag, error_of, load_tag

FORM = "expected the form key.key=value; write for example model.width=64"


def file_error(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_config(Tag, path)
    return str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.tml"
    missing = f"{path}: file not found (expected a TOML file); "
    assert file_error(path) == missing + "check the name and the folder"
    (tmp_path / "recipe.toml").touch()
    assert file_error(path) == missing + "did you mean 'recipe.toml'?"


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    message = f"{tmp_path}: this is a folder (expected a TOML file); "
    assert file_error(tmp_path) == message + "name a file inside it"
    (tmp_path / "r.toml").touch()
    assert file_error(tmp_path) == message + f"did you mean {tmp_path / 'r.toml'}?"


def test_encoding_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(b"seed = 1\nname = \xe9\n")
    problem = f"{path}:2: invalid byte 0xe9, byte 8 of the line (expected UTF-8)"
    assert file_error(path) == f"{problem}; save the file as UTF-8"
    path.write_bytes(b'\xef\xbb\xbfseed = 1\r\ndata.train = "t"\r\n')
    assert load_config(Tag, path).seed == 1
    path.write_bytes(b"seed = 1\r\n\r\nsede = 1\r\n")
    assert f"{path}:3: unknown key 'sede' at the top level" in file_error(path)


def test_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    comment = DATA + "#"
    path.write_text(comment + "x" * (MAX_BYTES - len(comment)))
    assert load_config(Tag, path).data.train == tmp_path / "t.txt"
    path.write_text("#" * (MAX_BYTES + 1))
    assert "(expected a TOML file of at most 65,536 bytes)" in file_error(path)


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("seed = 1\nname = foo", "2: invalid TOML at column 8: Invalid value", "in quotes"),
        ("seed = 1\nseed = 2\n", "2: invalid TOML at column 9: Cannot overwrite", "once"),
        ("[a]\n[a]\n", "2: invalid TOML at column 3: Cannot declare", "once"),
        ('name = "C:\\data"', "1: invalid TOML at column 13: Unescaped", "'C:\\data'"),
        ("seed 1", "1: invalid TOML at column 6: Expected '='", "https://toml.io"),
        ('\nname = """a\n\n', "2: invalid TOML: Unterminated string", "https://toml.io"),
        (f"seed = {'1' * 5000}", "1: invalid TOML: Exceeds the limit", "https://toml.io"),
    ],
)
def test_syntax_error(text: str, message: str, fix: str) -> None:
    error = error_of(text)
    assert error.startswith(f"recipe.toml:{message}") and fix in error


DEEP = ".".join("a" * 30_000)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 9999,
        "\n".join(".".join("a" * 400) + f"{number} = 1" for number in range(80)),
        "x = " + "{ a = " * 40 + "1" + " }" * 40,
    ],
)
def test_deep_nesting_is_refused_before_it_costs_time(text: str) -> None:
    assert "recipe.toml: tables or arrays are nested too deeply" in error_of(text)


@pytest.mark.parametrize("text", [DEEP + " = 1", f"[{DEEP}]", f"x = {{ {DEEP} = 1 }}"])
def test_many_dots_in_a_line_are_refused_before_they_cost_time(text: str) -> None:
    assert "recipe.toml:2: too many dots in a line (expected at most 500" in error_of("\n" + text)


def test_deep_overrides() -> None:
    assert FORM in error_of(DATA, DEEP + "=1")
    assert load_tag(DATA, "name=" + "[" * 9999).name == "[" * 9999
