"""Commands for formulas, data and the machine: design, claims, cost, data, doctor, completion."""

import argparse
from pathlib import Path

from harken.cli.arguments import Parser, at_least, positive

SHELLS = ("bash", "zsh", "fish")
KINDS = {
    "shift": "attends to the token --offset positions back",
    "band": "attends to the tokens around --offset positions back",
    "copy": "attends to one given token",
    "average": "attends to two given tokens equally",
    "lookup": "copies the vector u_b from the token u_d + u_b to the token u_a (claim B12)",
    "induction": "attends to the token after an earlier copy of the query's token (two layers)",
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
  harken design induction --vocabulary 11 --length 64 --json
"""


def _design_options(parser: Parser, kind: str) -> None:
    add = parser.add_argument
    if kind in ("shift", "band", "induction"):
        positions = ("sinusoid", "fourier")
        add("--width", type=int, default=64, help="Width of the position vectors")
        add(
            "--key-width",
            type=int,
            help="Width of queries and keys, two elements per frequency (default: --width)",
        )
        add("--length", type=int, default=256, help="Maximum sequence length")
        add("--position", choices=positions, default="sinusoid", help="Kind of positions")
        add("--base", type=float, default=10000.0, help="Base of --position sinusoid")
        text = "Half of the longest period of --position fourier (default: --length)"
        add("--span", type=int, help=text)
    if kind in ("shift", "band"):
        masks = ("causal", "strictly_causal", "bidirectional")
        add("--offset", type=int, default=1, help="Number of positions back")
        add("--mask", dest="mask_kind", choices=masks, default="causal", help="Attention mask")
    if kind == "band":
        add("--band", type=float, default=8.0, help="Approximate width of the band in tokens")
        add("--sharpness", type=float, default=1.0, help="Factor of the scores")
    else:
        add("--tolerance", type=float, default=0.01, help="Maximum total weight on the other keys")
    if kind in ("copy", "average"):
        count, targets, text = 1, [0], "Attended token, counted from 0"
        if kind == "average":
            count, targets, text = 2, [0, 1], "The two attended tokens, counted from 0"
        add("--keys", type=int, default=16, help="Number of tokens; their vectors are orthonormal")
        add("--target", type=int, nargs=count, default=targets, metavar="KEY", help=text)
    if kind == "induction":
        add("--vocabulary", type=int, default=11, help="Vocabulary size, including the start token")
    add("--out", type=Path, metavar="FILE", help="Figure to draw: .svg or .png")
    parser.add_json()


def claims_options(parser: Parser) -> None:
    """Check statements about attention from course material by computation."""
    add = parser.add_argument
    add("names", nargs="*", metavar="ID", help="Claims to check, such as A4 (default: all)")
    add("--list", action="store_true", help="Only list the statements and their sources")
    add("--width", type=int, default=64, metavar="N", help="Width d of the formulas")
    add("--seed", type=int, default=0, metavar="N", help="Seed of all random numbers")
    add("--run", type=Path, metavar="DIR", dest="folder", help="Run folder for claim B8")
    add("--page", type=Path, metavar="FILE.html", help="Also write a page with figures")
    parser.add_json()
    parser.epilog = """examples:
  harken claims A4 A6 --width 128     check two claims at another width
  harken claims --page claims.html    write a page with figures
  harken claims B8 --run runs/gpt     attention of a run if W_Q^T W_K has a lower rank

The exit code is 1 if a verdict is not the expected one.
"""


def cost_options(parser: Parser) -> None:
    """Print FLOPs, memory and depth of a training step, time it, or plan several processes."""
    add = parser.add_argument
    add("recipe", type=Path, metavar="RECIPE.toml", help="Recipe, or Hugging Face folder")
    parser.add_overrides()
    size = at_least(1)
    add("--length", type=size, nargs="+", metavar="N", help="Tokens or frames per row")
    add("--batch", type=size, metavar="N", help="Rows per batch (default: the recipe's)")
    add("--vocabulary", type=size, metavar="N", help="Vocabulary size (default: the recipe's)")
    add("--measure", action="store_true", help="Also predict and measure the time of a step")
    text = "Predict time, bytes sent and memory of 1, 2, 4, … N processes (needs --bandwidth)"
    add("--processes", type=size, metavar="N", help=text)
    text = "Bandwidth of the link of each process in gigabits per second, in each direction"
    add("--bandwidth", type=positive, metavar="GBPS", help=text)
    text = "Latency of a message between two processes"
    add("--latency", type=at_least(0), default=50, metavar="MICROSECONDS", help=text)
    parser.add_json()
    parser.epilog = """The step is traced on fake tensors, without data. --measure also runs steps
on random data. --processes runs each kernel of a step but no whole step, and assumes one process on
each of N machines like this one.

examples:
  harken cost recipes/lm.toml --length 128 512 2048 --set model.max_length=2048
  harken cost recipes/tag.toml --vocabulary 16000 --measure
  harken cost gpt2/ --length 1024 --batch 8        a Hugging Face folder
  harken cost recipes/lm.toml --set training.micro_batches=8 --processes 8 --bandwidth 10
"""


def data_options(parser: Parser) -> None:
    """Generate or download a data set."""
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="Data set; without a name, the list is printed")
    add("--list", action="store_true", help="Print the list of data sets")
    add("--json", action="store_true", help="Print the list as one JSON object")
    add("options", nargs=argparse.REMAINDER, metavar="…", help="Options of the data set")
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
    """Report package versions, the device and the speed of this machine."""
    parser.add_json()
    parser.epilog = "examples:\n  harken doctor --json\n"


def completion_options(parser: Parser) -> None:
    """Print a script that completes commands, options and files in your shell."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="Shell: bash, zsh or fish")
    parser.epilog = """examples:
  harken completion bash > ~/.local/share/bash-completion/completions/harken
  harken completion zsh > "${fpath[1]}/_harken"
  harken completion fish > ~/.config/fish/completions/harken.fish

Start a new shell afterwards.
"""
