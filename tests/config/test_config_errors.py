from dataclasses import dataclass

import pytest

from harken.config import bounded, loads
from small_config import BASE, DATA, Answer, Outer, Tag, error_of

WHOLE = "expected a whole number, got"
RANGE = "choose a number in this range"
SHARE = "expected a number above 0 and below 1, got"
SIZE = "expected a number at least 1 and at most 1048576, got"
FORM = "expected the form key.key=value; write for example model.width=64"


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("seed", FORM),
        ("=3", FORM),
        ("#a=3", FORM),
        ("a..b=3", FORM),
        (
            "data.train.source=x",
            "data.train is the string 't.txt', not a table; set data.train itself",
        ),
        ("sede=1", "unknown key 'sede' at the top level; did you mean 'seed'?"),
        (
            "model.layers=six",
            f"model.layers: {WHOLE} the string 'six'; replace it by a whole number",
        ),
        ("model.layers=6.0", f"model.layers: {WHOLE} the number 6.0; write model.layers=6"),
        (
            "data.words=one",
            "data.words: expected an array (each item a string), got the string 'one'; "
            "write 'data.words=[\"one\"]'",
        ),
        (
            "seed=1\nname=2",
            f"seed: {WHOLE} the string '1\\nname=2'; replace it by a whole number",
        ),
        ("name.x=3", "name: expected a string, got a table; replace it by a string"),
        ("model.layers=0", f"model.layers: {SIZE} 0; {RANGE}, such as the default 2"),
        (
            "model.attention.hidden=3",
            "'hidden' belongs to kind 'dense', 'random', but this is kind 'scaled'; "
            "remove 'hidden', or write kind = \"dense\"",
        ),
        ("model={width=5}", "model: width 5 is odd; change [model]"),
    ],
)
def test_wrong_override(assignment: str, message: str) -> None:
    shown = assignment.replace("\n", "\\n")  # a message is one line
    assert error_of(DATA, assignment) == f"override {shown}: {message}"


NORMS = "one of 'layer', 'rms', 'none'"


@pytest.mark.parametrize(
    ("text", "expected", "value", "fix"),
    [
        ('model.layers = "6"', "a whole number", "the string '6'", "write layers = 6"),
        ("model.layers = true", "a whole number", "true", ""),
        ("model.layers = 2024-01-02", "a whole number", "the date or time 2024-01-02", ""),
        (f"model.layers = 0x{'f' * 99}", "a whole number", "a number beyond 64 bits", ""),
        ("model.bias = 1", "true or false", "the number 1", ""),
        (f'model.bias = "{"x" * 99}"', "true or false", f"the string '{'x' * 40}'…", ""),
        ("data.words = 3", "an array (each item a string)", "the number 3", ""),
        ("data.dev = true", "a path or a number", "true", 'write dev = "true"'),
        ("data.dev = []", "a path or a number", "an array", ""),
        ('data.test = ""', "a path", "the string ''", ""),
        ('data.test = "a\\u0000b"', "a path", "the string 'a\\x00b'", ""),
        (
            "model.attention = 3",
            "a table",
            "the number 3",
            "write [model.attention] and below it 'kind'",
        ),
        (
            "model.stack = {width = 3}",
            "an array of tables",
            "a table",
            "write [[model.stack]] and below it 'width'",
        ),
        ('model.norm = "RMZ"', NORMS, "the string 'RMZ'", "did you mean 'rms'?"),
        ('model.norm = "batch"', NORMS, "the string 'batch'", ""),
        ('model.bits = "16"', "one of 8, 16", "the string '16'", "write bits = 16"),
        ("model.bits = 8.0", "one of 8, 16", "the number 8.0", "write bits = 8"),
        ("model.bits = 9", "one of 8, 16", "the number 9", ""),
    ],
)
def test_wrong_type(text: str, expected: str, value: str, fix: str) -> None:
    key = text.split(" ")[0]
    assert error_of(f'\ndata.train = "t"\n{text}') == (
        f"recipe.toml:3: {key}: expected {expected}, got {value}; "
        + (fix or f"replace it by {expected}")
    )


# The text of DATA is lines 1 and 2.
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\nlayrs = 3", "4: unknown key 'layrs' in [model]; did you mean 'layers'?"),
        (
            "[model.attention]\nwidth = 3",
            "4: unknown key 'width' in [model.attention]; "
            "'width' belongs in [model] or in [[model.stack]]",
        ),
        ("seed = 1", "3: unknown key 'seed' in [data]; 'seed' belongs at the top level"),
        ("bits = 1\n", "3: unknown key 'bits' in [data]; 'bits' belongs in [model]"),
        (
            "[model.attention]\nzzz = 1",
            "4: unknown key 'zzz' in [model.attention]; "
            "the known keys are 'kind', 'heads', 'dropout'",
        ),
        (
            "[[model.stack]]\nwidth = 1\n[[model.stack]]\nwidht = 1",
            "6: unknown key 'widht' in [[model.stack]]; did you mean 'width'?",
        ),
        (
            'words = [\n  "a",\n  3,\n]',
            '5: data.words[1]: expected a string, got the number 3; write "3"',
        ),
        (
            '[model.attention]\nkind = "scald"',
            "4: unknown kind 'scald' in [model.attention]; "
            "choose one of 'scaled', 'random', 'dense', 'plain'",
        ),
        (
            "[model.attention]\nkind = 3",
            "4: unknown kind the number 3 in [model.attention]; "
            "choose one of 'scaled', 'dense', 'random', 'plain'",
        ),
        (
            '[model.attention]\nkind = "random"\nheads = 3',
            "5: 'heads' belongs to kind 'scaled', but this is kind 'random'; "
            "remove 'heads', or write kind = \"scaled\"",
        ),
        (
            '[model.attention]\nkind = "dense"',
            "3: missing required key 'hidden' in [model.attention]; "
            "add 'hidden', a whole number, to [model.attention]",
        ),
        (
            "[[model.stack]]\nwidth = 2\n[model.stack.score]\nheads = 2",
            "5: missing required key 'kind' in [model.stack.score]; "
            'add kind = "scaled" or "dense" or "plain"',
        ),
        ("dev = 1.0", f"3: data.dev: {SHARE} 1.0; {RANGE}, such as the default 0.1"),
        ("dev = nan", f"3: data.dev: {SHARE} nan; {RANGE}, such as the default 0.1"),
        (
            "weights = [1,\n-2]",
            f"4: data.weights[1]: expected a number at least 0, got -2.0; {RANGE}",
        ),
        (
            f"[model]\nlayers = {2**20 + 1}",
            f"4: model.layers: {SIZE} 1048577; {RANGE}, such as the default 2",
        ),
        ("[model]\nwidth = 3", "3: model: width 3 is odd; change [model]"),
    ],
)
def test_wrong_value(text: str, message: str) -> None:
    assert error_of(DATA + text) == f"recipe.toml:{message}"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "",
            Tag,
            "1: missing required key 'data' at the top level; write [data] and below it 'train'",
        ),
        (
            "\n\n[data]\ndev = 0.5",
            Tag,
            "3: missing required key 'train' in [data]; add 'train', a path, to [data]",
        ),
        (
            "",
            Answer,
            "1: missing required key 'read' at the top level; "
            "add 'read', a path, above the first table",
        ),
    ],
)
def test_missing_key(text: str, kind: type, message: str) -> None:
    assert error_of(text, kind=kind) == f"recipe.toml:{message}"


@pytest.mark.parametrize(
    ("limit", "accepted"),
    [("at_least", [3, 4]), ("at_most", [2, 3]), ("above", [4]), ("below", [2])],
)
def test_bounds_at_the_edge(limit: str, accepted: list[float]) -> None:
    @dataclass(frozen=True)
    class Sized:
        size: float = bounded(**{limit: 3})

    for size in (2.0, 3.0, 4.0):
        if size in accepted:
            assert loads(Sized, f"size = {size}", base=BASE).size == size
        else:
            assert f"{limit.replace('_', ' ')} 3, got" in error_of(f"size = {size}", kind=Sized)


def test_errors_of_a_config_name_the_overrides_in_its_table() -> None:
    assert error_of(DATA + "\n[model]\nlayers = 2", "seed=1", "model.width=5") == (
        "recipe.toml:4: model: width 5 is odd; change [model] or the override model.width=5"
    )
    assert error_of("", "data.dev=0.5", kind=Outer) == (
        "recipe.toml:1: half is not enough; change the recipe or the override data.dev=0.5"
    )
    assert error_of(DATA, "model.width=666") == "an error of the config; its fix"
