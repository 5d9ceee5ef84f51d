"""Draw what a model looked at for inputs of your own.

One picture an input, as PNG and as SVG: the sound, and below it where each head looked as each
symbol was decided.
"""

import argparse
from pathlib import Path

from harken.errors import UserError

EPILOG = """examples:
  harken inspect runs/speech one.wav two.flac --out pictures
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken inspect`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="files of sound")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="of the pictures")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")


def run(options: argparse.Namespace) -> int:
    """Print the path of each picture."""
    from harken.cli.output import remark, result
    from harken.files import replacing, write_text
    from harken.report.looking import look, sound_maps
    from harken.report.sound_file import sound_png, sound_svg
    from harken.run import load
    from harken.tasks.task import Looking

    loaded = load(options.folder, options.device)
    if not isinstance(loaded.task, Looking):
        raise UserError(
            f"{options.folder}: found a run of task {loaded.recipe.task!r}, wanted a recogniser",
            fix="its report shows an example of what it looks at: `harken report RUN`",
        )
    stems = [Path(name).stem for name in options.inputs]
    for name, stem in zip(options.inputs, stems, strict=True):
        if stems.count(stem) > 1:
            raise UserError(
                f"{name}: found another input named {stem!r}, wanted a picture for each",
                fix="inspect one of them at a time, with another --out",
            )
    for name, stem in zip(options.inputs, stems, strict=True):
        glimpse = loaded.task.look(loaded.trained, name)
        found = [] if glimpse is None else look(loaded.model, glimpse)
        maps = [one for looked in found if (one := sound_maps(looked)) is not None]
        if glimpse is None or not maps:
            remark(f"{name}: nothing was written by attention, so there is nothing to draw")
            continue
        options.out.mkdir(parents=True, exist_ok=True)
        for one in maps:
            svg, png = options.out / f"{stem}.svg", options.out / f"{stem}.png"
            write_text(svg, sound_svg(one, glimpse.title))
            with replacing(png) as file:
                file.write_bytes(sound_png(one, glimpse.title))
            result(str(svg))
            result(str(png))
    return 0
