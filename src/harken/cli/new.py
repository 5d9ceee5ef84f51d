"""Write a recipe for your own files, after checking them.

Paths in the recipe are relative to it, so that the folder can be moved as a whole.
"""

import argparse
import os
from pathlib import Path

from harken.errors import UserError

EPILOG = """examples:
  harken new answer texts.txt questions.tsv
  harken new answer texts.txt questions.tsv --out recipes/mine.toml --dev 0.2
"""

ANSWER = """\
# Made by `harken new`; every key has a default, `harken train` saves all of them with the run.
task = "answer"
seed = 0

[data]
read = {read}    # {documents} texts, one a line
train = {train}    # {questions} questions
dev = {dev}    # share held out, by person: {held} questions

[encode]
kind = "bpe"    # or "unigram", "words", "characters"; `size` is 2000 where not written

[model]
layers = 4
width = 256
length = 128    # tokens of a text that the model sees at once
position.kind = "rotary"    # or "learned", "sinusoid", "none"
attention.heads = 8
attention.score.kind = "scaled"    # or "dot", "synthesizer" (not with rotary)

[training.pretrain]
steps = 2000
batch_tokens = 4096
corrupted = 0.5    # share of texts with a hole to fill; the others are read whole
questions = 0.2    # share of each batch that is training questions

[training.finetune]
steps = 200
evaluate_every = 50
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken new`."""
    parser.add_argument("task", choices=("answer",), metavar="TASK")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, default=Path("recipe.toml"), metavar="RECIPE.toml")
    parser.add_argument("--dev", type=float, default=0.15, help="share to hold out for measuring")


def run(options: argparse.Namespace) -> int:
    """Check the files, then write the recipe."""
    from harken.cli.output import remark, result
    from harken.config.write import inline
    from harken.data.questions import hold_out, read_questions
    from harken.data.text import read_lines
    from harken.files import write_text

    if options.out.exists():
        raise UserError(
            f"{options.out}: found a file there already, wanted a new name",
            fix="choose another with --out, or remove it",
        )
    if len(options.files) != 2:
        raise UserError(
            f"harken new answer: found {len(options.files)} files, wanted two: "
            "a text to read and questions",
            fix="call `harken new answer texts.txt questions.tsv`",
        )
    if not 0 < options.dev < 1:
        raise UserError(
            f"--dev {options.dev}: found no share, wanted a number between 0 and 1",
            fix="leave it out for 0.15",
        )
    read, train = options.files
    questions = read_questions(train)
    documents = sum(1 for _ in read_lines(read))
    _, held = hold_out(questions, options.dev, seed=0)

    def beside(path: Path) -> str:
        return inline(os.path.relpath(path, options.out.parent).replace(os.sep, "/"))

    write_text(
        options.out,
        ANSWER.format(
            read=beside(read),
            train=beside(train),
            documents=documents,
            questions=len(questions),
            held=len(held),
            dev=options.dev,
        ),
    )
    result(str(options.out))
    remark(f"next: harken train {options.out}")
    return 0
