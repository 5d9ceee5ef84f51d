"""Commands for data and the machine: data, doctor."""

import argparse

from harken.cli.arguments import add_json


def data(parser: argparse.ArgumentParser) -> None:
    """Generate or download a data set."""
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="Data set; without it, the list is printed")
    add("--list", action="store_true", help="Print the list of data sets")
    add("--json", action="store_true", help="Print the list as one JSON object")
    add("options", nargs=argparse.REMAINDER, metavar="…", help="Options of this data set")
    parser.epilog = """people, sentences, spoken and drawn are generated; manifest, joined and
stretches are made from your own recordings; the others are public corpora, downloaded from their
publishers and checked (SHA-256).

examples:
  harken data                                      the list, with licenses and sizes
  harken data people --people 1000 --biographies 4 --out data/people
  harken data people --people 10000000 --out /data/people
  harken data sentences --sentences 2000 --out data/sentences
  harken data spoken --utterances 1000 --out data/spoken
  harken data drawn --scenes 2000 --out data/drawn
  harken data manifest recordings --pattern "{text}_{speaker}_{index}.wav" --words digits \\
      --test "*_[0-4].wav" --out data/digits       transcripts from file names
  harken data joined recordings --pattern "{text}_{speaker}_{index}.wav" --words digits \\
      --test-speakers theo --out data/connected    sentences of joined single words
  harken data stretches data/yesno/train.jsonl --run runs/yesno --out data/cut
  harken data multi30k --out data/multi30k         download it; Ctrl-C is safe
  harken data multi30k --out data/multi30k --from https://mirror.example/corpora
  harken data people --help                        the options of one data set
"""


def doctor(parser: argparse.ArgumentParser) -> None:
    """Check this machine: versions, device, speed, missing packages."""
    add_json(parser)
    parser.epilog = """examples:
  harken doctor
  harken doctor --json
"""


COMMANDS = (data, doctor)
