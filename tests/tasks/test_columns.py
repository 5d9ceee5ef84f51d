"""Tables and examples from Python give the same splits as the files of each task."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harken.python_examples import name_examples, write_examples
from harken.recipe import TASKS, task_of
from untrained import task_recipe

Rows = Sequence[Mapping[str, Any]]
TEXT_TASKS = ("answer", "fill", "lm", "tag", "translate")


def rows_of(examples: Sequence[Any]) -> Rows:
    """Return examples as mappings from fields to values."""
    return [asdict(item) if is_dataclass(item) else {"text": item} for item in examples]


def write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ";")
        writer.writeheader()
        writer.writerows(rows)


def write_json_lines(path: Path, rows: Rows) -> None:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def write_parquet(path: Path, rows: Rows) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist([*rows])
    pytest.importorskip("pyarrow.parquet").write_table(table, path)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    ".csv": write_csv,
    ".tsv": write_csv,
    ".jsonl": write_json_lines,
    ".parquet": write_parquet,
}


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("task", TEXT_TASKS)
def test_tables_give_the_same_examples(task: str, suffix: str, tmp_path: Path) -> None:
    if task == "tag" and suffix in (".csv", ".tsv"):
        pytest.skip("lists are read from JSON lines and Parquet")
    recipe = task_recipe(task, tmp_path, ["data.documents=lines"] if task == "lm" else [])
    expected = TASKS[task].read_splits(recipe)
    names = {field: f"The {field}" for field in rows_of(expected["dev"])[0]}
    files = {split: tmp_path / f"new-{split}{suffix}" for split in expected}
    for split, path in files.items():
        rows = [
            {"id": 7, **{names[field]: value for field, value in row.items()}}
            for row in rows_of(expected[split])
        ]
        WRITERS[suffix](path, rows)
    columns = replace(recipe.data.columns, **names)
    data = replace(recipe.data, columns=columns, **files)
    splits = task_of(recipe).read_splits(replace(recipe, data=data))
    assert {split: list(splits[split]) for split in splits} == {
        split: list(expected[split]) for split in expected
    }


@pytest.mark.parametrize("task", TEXT_TASKS)
def test_examples_from_python_are_those_of_files(task: str, tmp_path: Path) -> None:
    recipe = task_recipe(task, tmp_path, ["data.documents=lines"] if task == "lm" else [])
    expected = TASKS[task].read_splits(recipe)
    examples = {split: iter(rows_of(expected[split])) for split in expected}
    if task == "answer":
        texts = (tmp_path / "texts.txt").read_text().splitlines()
        examples["pretrain"] = ({"text": text} for text in texts)
    named = name_examples(recipe, tmp_path / "run", examples)
    with write_examples(named, tmp_path / "run", examples):
        splits = TASKS[task].read_splits(named)
        for split in expected:
            assert list(splits[split]) == list(expected[split])
        if task == "answer":
            assert [block.text for block in named.data.corpus().blocks()] == texts
