"""Seeded mutations: of bytes, of lines of text, of JSON and TOML trees.

Each takes a `random.Random` and returns a damaged copy, so that a mutant is a function of its seed.
"""

import copy
import json
import random
import struct
from typing import Any

HUGE = (0, 1, 0x7F, 0x3FF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
INTEGERS = (-1, *HUGE, 3, 2**20, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, 10**400)
FLOATS = (0.0, -0.0, 1e-300, 1e-9, 0.5, 1.5, 1e9, 1e18, 1e308, -1e308)
STRINGS = (
    *("", " ", "\0", "a" * 5000, "a" * 300_000, "../../../etc/passwd", "/dev/zero", "~", "-"),
    *("\u202e\u0000\ufffe", "e\u0301\u0301\u0301", "𝕏" * 300, "true", "1e999", "(a+)+$"),
    *("<script>alert(1)</script>", "${jndi:ldap://x}"),
)
# White space, line ends, marks of direction and of byte order, which Unicode has many of.
CHARACTERS = (
    "\0\t\n\r\x0b\x0c\x1c\x1e\x85\u00a0\u2028\u2029\u200f\u202e\ufeff\u3000\ufffd\U0010ffff"
)
BAD_UTF8 = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe9", b"\xf5\x80\x80\x80", b"\xef\xbb\xbf")
DUPLICATE = "\ue000"  # a key that ends so is written without it: an object with the same key twice


def mutate_bytes(good: bytes, rng: random.Random) -> bytes:
    """Flip, replace, cut, insert, delete, overwrite with boundary integers, copy within."""
    data = bytearray(good)
    for _ in range(rng.randint(1, 3)):
        # Half of the damage goes to where the header is.
        place = rng.randrange(max(1, min(len(data), rng.choice([64, 1 << 30]))))
        match rng.randrange(8):
            case 0 if data:
                data[place] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[place] = rng.randrange(256)
            case 2:
                del data[place:]
            case 3:
                data[place:place] = rng.randbytes(rng.choice([1, 2, 4, 1000]))
            case 4:
                del data[place : place + rng.choice([1, 2, 4, 100])]
            case 5:
                layout = rng.choice(["<I", ">I", "<H", ">H", "<Q"])
                value = rng.choice(HUGE) & (2 ** (8 * struct.calcsize(layout)) - 1)
                data[place : place + struct.calcsize(layout)] = struct.pack(layout, value)
            case 6 if data:
                other, length = rng.randrange(len(data)), rng.choice([1, 2, 4, 16, 100])
                data[place : place + length] = data[other : other + length]
            case 7:
                data[place:place] = data[place : place + rng.choice([10, 1000])]
    return bytes(data)


def mutate_parts(good: bytes, starts: list[int], rng: random.Random) -> bytes:
    """Swap, remove or repeat parts of a file, such as the chunks of a PNG."""
    parts = [good[a:b] for a, b in zip([0, *starts], [*starts, None], strict=True)]
    first, second = (rng.randrange(len(parts)) for _ in range(2))
    match rng.randrange(3):
        case 0:
            parts[first], parts[second] = parts[second], parts[first]
        case 1:
            del parts[first]
        case 2:
            parts[first:first] = [parts[second]] * rng.choice([1, 100])
    return b"".join(parts)


def mutate_lines(good: str, rng: random.Random) -> bytes:
    """Damage lines and their tab-separated fields; sometimes the bytes of the UTF-8 text."""
    lines = good.split("\n")
    for _ in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        fields = lines[at].split("\t")
        field = rng.randrange(len(fields))
        match rng.randrange(12):
            case 0:
                lines[at], lines[other] = lines[other], lines[at]
            case 1:
                lines[at:at] = [lines[other]] * rng.choice([1, 3, 3000])
            case 2 if len(lines) > 1:
                del lines[at]
            case 3:
                swap = rng.randrange(len(fields))
                fields[field], fields[swap] = fields[swap], fields[field]
            case 4:
                fields.insert(field, rng.choice(["", "_", " ", fields[field]]))
            case 5:
                del fields[field]
            case 6:
                fields[field] = str(rng.choice(INTEGERS)) + rng.choice(["", ".5", "-3", "e9"])
            case 7:
                fields[field] = rng.choice(STRINGS)
            case 8:
                place = rng.randint(0, len(fields[field]))
                text = rng.choice(CHARACTERS) * rng.choice([1, 1, 1000])
                fields[field] = fields[field][:place] + text + fields[field][place:]
            case 9:
                lines[at:at] = [rng.choice(["", " ", "\t", "\t" * 9, "\u3000", "#", "# text = x"])]
                continue
            case 10:
                fields[field] = fields[field][: rng.randint(0, len(fields[field]))]
            case 11:
                del lines[at + 1 :]
        if at < len(lines) and fields != lines[at].split("\t"):
            lines[at] = "\t".join(fields)
    data = rng.choice(["\n", "\n", "\n", "\r\n", "\r"]).join(lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        place = rng.randint(0, len(data))
        data = data[:place] + rng.choice(BAD_UTF8) + data[place:]
    return mutate_bytes(data, rng) if rng.random() < 0.15 else data


def mutate_tree(good: Any, rng: random.Random, *, count: int = 2) -> Any:
    """Replace, remove, rename, swap, repeat and nest nodes of a JSON or TOML tree."""
    root = {"": copy.deepcopy(good)}
    for _ in range(rng.choice([1, 1, count])):
        parent, key = _random_node(root, rng)
        match rng.randrange(9):
            case 0 | 1 | 2:
                parent[key] = interesting(parent[key], rng)
            case 3 if parent is not root:
                del parent[key]
            case 4 if isinstance(parent, dict) and parent is not root:
                name = rng.choice([key + "x", key[:-1], key + DUPLICATE, *STRINGS[:3], "type"])
                parent[name] = copy.deepcopy(parent[key])
            case 5:
                elsewhere, name = _random_node(root, rng)
                parent[key], value = copy.deepcopy(elsewhere[name]), parent[key]
                if parent is not elsewhere and rng.random() < 0.5:
                    elsewhere[name] = value
            case 6 if isinstance(parent[key], list):
                parent[key] = parent[key] * rng.choice([2, 17, 1000])
            case 7:
                value: Any = parent[key]
                for _ in range(rng.choice([1, 2, 40, 300])):
                    value = [value] if rng.random() < 0.5 else {"a": value}
                parent[key] = value
            case _:
                parent[key] = interesting(parent[key], rng)
    return root[""]


def interesting(value: Any, rng: random.Random) -> Any:
    """Return a value that a reader may not expect, often of the same type."""
    if isinstance(value, str) and value and rng.random() < 0.5:
        place = rng.randrange(len(value))
        return value[:place] + rng.choice([*CHARACTERS, "", "x", "9"]) + value[place + 1 :]
    if isinstance(value, bool) and rng.random() < 0.5:
        return not value
    if isinstance(value, int | float) and rng.random() < 0.8:
        numbers = [value + 1, value - 1, -value, value * 2, float(value) if value < 1e300 else 0.5]
        return rng.choice([*numbers, *INTEGERS, *FLOATS])
    return rng.choice(
        [*INTEGERS, *FLOATS, *STRINGS, True, False, [], {}, [[]], ["a", 1], {"kind": "x"}]
    )


def json_text(tree: Any, rng: random.Random) -> str:
    """Write a tree as JSON, or as what almost is."""
    text = json.dumps(tree, ensure_ascii=rng.random() < 0.5).replace(DUPLICATE, "")
    text = text.replace("\\ue000", "")
    match rng.randrange(25):
        case 0:
            return text.replace("0", "9" * 5000, 1)
        case 1:
            return text.replace("null", rng.choice(["NaN", "Infinity", "-Infinity"]), 1)
        case 2:
            return text[: rng.randint(0, len(text))]
        case 3:
            bracket = rng.choice("[{")
            return bracket * 100_000 if bracket == "[" else '{"a":' * 100_000
        case 4:
            return text + rng.choice([" ", "\0", text, "]", "#"])
        case 5:
            return text.replace('"', '"\\ud800', 1)
    return text


def _random_node(root: dict[str, Any], rng: random.Random) -> tuple[Any, Any]:
    """Walk down from the root: a large vocabulary is as likely as a flag next to it."""
    parent: Any = root
    key: Any = ""
    while isinstance(parent[key], dict | list) and parent[key] and rng.random() < 0.85:
        parent = parent[key]
        key = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    return parent, key
