"""Split lines of tab-separated cells without quotes, such as `beach.jpg<TAB>two dogs run`."""

from collections.abc import Sequence

from harken.formats.text import Line


def split_cells(line: Line, names: Sequence[str], see: str) -> list[str]:
    """Return the cells of one line; raise `UserError` unless there is one for each name."""
    cells, text = line.text.split("\t"), line.text.strip()
    if len(cells) == len(names):
        return cells
    fix, got = see, f"{len(cells)} columns" if len(cells) > 1 else "no tab"
    if len(cells) > len(names):
        columns = ",".join(str(number) for number, _ in enumerate(names, start=1))
        fix = f"name the columns in the first line, or cut them with `cut -f{columns}`"
    elif "  " in text and len(cells) == 1:
        fix = "replace the run of spaces by one tab"
    raise line.error(f"expected {'<TAB>'.join(names)}, got {got} in {text[:60]!r}", fix)


def split_full_cells(line: Line, names: Sequence[str], see: str) -> list[str]:
    """Return the cells of a line without white space around them; none may be empty."""
    cells = [cell.strip() for cell in split_cells(line, names, see)]
    if not all(cells):
        expected, text = "<TAB>".join(names), line.text.strip()
        raise line.error(f"expected {expected}, got an empty column in {text[:60]!r}", see)
    return cells
