"""Draw what a model looked at for inputs of your own.

One picture an input, as PNG and as SVG: the sound, and below it where each head looked as each
symbol was decided; or the picture, clear where each head looked as each word was.
"""

import argparse
from pathlib import Path

from harken.errors import UserError

EPILOG = """examples:
  harken inspect runs/speech one.wav two.flac --out pictures
  harken inspect runs/captions beach.jpg test.npz#7 --out pictures
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken inspect`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="files of sound; pictures, or rows of an array of them",
    )
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="of the pictures")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")


def run(options: argparse.Namespace) -> int:
    """Print the path of each picture."""
    from harken.cli.output import remark, result
    from harken.files import replacing
    from harken.report.looking import files_of, look
    from harken.run import load
    from harken.tasks.task import Looking

    loaded = load(options.folder, options.device)
    if not isinstance(loaded.task, Looking):
        raise UserError(
            f"{options.folder}: found a run of task {loaded.recipe.task!r}, "
            "wanted a recogniser or a captioner",
            fix="its report shows an example of what it looks at: `harken report RUN`",
        )
    stems = [_stem(name) for name in options.inputs]
    for name, stem in zip(options.inputs, stems, strict=True):
        if stems.count(stem) > 1:
            raise UserError(
                f"{name}: found another input named {stem!r}, wanted a picture for each",
                fix="inspect one of them at a time, with another --out",
            )
    for name, stem in zip(options.inputs, stems, strict=True):
        glimpse = loaded.task.look(loaded.trained, name)
        found = [] if glimpse is None else look(loaded.model, glimpse)
        if glimpse is None or not found:
            remark(f"{name}: nothing was written by attention, so there is nothing to draw")
            continue
        options.out.mkdir(parents=True, exist_ok=True)
        for looked in found:
            for ending, content in files_of(looked, glimpse.title).items():
                path = options.out / f"{stem}.{ending}"
                with replacing(path) as file:
                    file.write_bytes(content)
                result(str(path))
    return 0


def _stem(name: str) -> str:
    """Of a picture's file: the input's, with the row or the stretch where one was asked for."""
    path, mark, rest = Path(name).name.partition("#")
    return f"{Path(path).stem}{'-' if mark else ''}{rest}"
