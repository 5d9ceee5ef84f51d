"""Commands of the laboratory and for the machine: design, claims, cost, data, doctor."""

import argparse
from pathlib import Path

from harken.cli.arguments import Parser, at_least

KINDS = {
    "shift": "attends to the token --offset steps back",
    "band": "attends to the tokens around --offset steps back",
    "copy": "attends to one given token",
    "average": "attends to two given tokens equally",
    "lookup": "copies a part of one token to another (claim B12)",
    "previous-match": "attends to the token after an earlier copy of this one (two layers)",
}


def design_options(parser: Parser) -> None:
    """Construct an attention head from a formula and check its attention."""
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True, dest="kind")
    for kind, summary in KINDS.items():
        command = kinds.add_parser(kind, help=summary, description=f"A head that {summary}.")
        command.set_defaults(parser=command)
        _design_options(command, kind)
    parser.epilog = """examples:
  harken design shift --offset 3 --width 64 --tolerance 0.01 --length 512
  harken design band --offset 40 --band 16 --sharpness 2 --length 256 --out band.svg
  harken design copy --keys 16 --target 3
  harken design average --keys 16 --target 3 5
  harken design lookup --tolerance 0.001
  harken design previous-match --symbols 11 --length 64 --json
"""


def _design_options(parser: Parser, kind: str) -> None:
    add = parser.add_argument
    if kind in ("shift", "band", "previous-match"):
        positions = ("sinusoid", "fourier")
        add("--width", type=int, default=64, help="Width of the position vectors")
        add("--key-width", type=int, help="Width of the head; a frequency takes 2")
        add("--length", type=int, default=256, help="Maximum length of the text")
        add("--position", choices=positions, default="sinusoid", help="Kind of positions")
        add("--base", type=float, default=10000.0, help="Base of the sinusoids")
        add("--span", type=int, help="Period of the Fourier basis (default: the length)")
    if kind in ("shift", "band"):
        masks = ("causal", "strictly_causal", "bidirectional")
        add("--offset", type=int, default=1, help="Number of steps back")
        add("--mask", dest="mask_kind", choices=masks, default="causal", help="Attention mask")
    if kind == "band":
        add("--band", type=float, default=8.0, help="Approximate number of offsets")
        add("--sharpness", type=float, default=1.0, help="Factor that narrows the band")
    else:
        add("--tolerance", type=float, default=0.01, help="Maximum attention to other keys")
    if kind in ("copy", "average"):
        count, keys = (1, [0]) if kind == "copy" else (2, [0, 1])
        add("--keys", type=int, default=16, help="Number of orthonormal tokens")
        add("--target", type=int, nargs=count, default=keys, metavar="KEY", help="Index, from 0")
    if kind == "previous-match":
        add("--symbols", type=int, default=11, help="Vocabulary size, with the start token")
    add("--out", type=Path, metavar="FILE", help="Figure to draw: .svg or .png")
    parser.add_json()


def claims_options(parser: Parser) -> None:
    """Check statements of course material about attention by computation."""
    add = parser.add_argument
    add("names", nargs="*", metavar="ID", help="Claims to check, such as A4 (default: all)")
    add("--list", action="store_true", help="List the statements and their sources; run nothing")
    add("--width", type=int, default=64, metavar="N", help="Width d of the formulas")
    add("--seed", type=int, default=0, metavar="N", help="Seed of all random numbers")
    add("--run", type=Path, metavar="DIR", dest="folder", help="Run folder for claim B8")
    add("--page", type=Path, metavar="FILE.html", help="Also write a page with figures")
    parser.add_json()
    parser.epilog = """examples:
  harken claims A4 A6 --width 128     check two claims at another width
  harken claims --page claims.html    write a page with figures
  harken claims B8 --run runs/gpt     measure the effective rank of the heads of a run

The exit code is 1 if a verdict differs from the recorded one.
"""


def cost_options(parser: Parser) -> None:
    """Print the FLOPs, memory, depth and time of a training step."""
    add = parser.add_argument
    add("recipe", type=Path, metavar="RECIPE.toml", help="Recipe, or Hugging Face folder")
    parser.add_overrides()
    size = at_least(1)
    add("--length", type=size, nargs="+", metavar="N", help="Tokens or frames per row")
    add("--batch", type=size, metavar="N", help="Rows per batch (default: the recipe's)")
    add("--vocabulary", type=size, metavar="N", help="Vocabulary size (default: the recipe's)")
    add("--measure", action="store_true", help="Predict the time of a step and time a few steps")
    parser.add_json()
    parser.epilog = """The step is traced on tensors without data; only --measure computes it.

examples:
  harken cost recipes/lm.toml --length 128 512 2048 --set model.max_length=2048
  harken cost recipes/tag.toml --vocabulary 16000 --measure
  harken cost gpt2/ --length 1024 --batch 8        a Hugging Face folder
"""


def data_options(parser: Parser) -> None:
    """Generate or download a data set."""
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="Data set; without it, the list is printed")
    add("--list", action="store_true", help="Print the list of data sets")
    add("--json", action="store_true", help="Print the list as one JSON object")
    add("options", nargs=argparse.REMAINDER, metavar="…", help="Options of this data set")
    parser.epilog = """people, sentences, speech and scenes are generated; manifest, joined and
suffixes are made from your own recordings; the others are public corpora, which are downloaded from
their publishers and checked by SHA-256.

examples:
  harken data                                      the list, with licenses and sizes
  harken data people --people 1000 --biographies 4 --out data/people
  harken data sentences --sentences 2000 --out data/sentences
  harken data speech --utterances 1000 --out data/speech
  harken data scenes --scenes 2000 --out data/scenes
  harken data manifest recordings --pattern "{text}_{speaker}_{index}.wav" --words digits \\
      --test "*_[0-4].wav" --out data/digits       transcripts from file names
  harken data joined recordings --pattern "{text}_{speaker}_{index}.wav" --words digits \\
      --test-speakers theo --out data/connected    sentences of joined single words
  harken data suffixes data/yesno/train.jsonl --run runs/yesno --out data/cut
  harken data multi30k --out data/multi30k         download; Ctrl-C is safe
  harken data multi30k --out data/multi30k --from https://mirror.example/corpora
  harken data people --help                        the options of one data set
"""


def doctor_options(parser: Parser) -> None:
    """Report versions, devices, speed and missing packages of this machine."""
    parser.add_json()
    parser.epilog = "examples:\n  harken doctor --json\n"
