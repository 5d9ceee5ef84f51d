"""Make or fetch a corpus by name.

`people` invents people with biographies and questions, in constant memory at any size.
"""

import argparse
from pathlib import Path

EPILOG = """examples:
  harken data people --people 1000 --biographies 4 --out data/people
  harken data people --people 10000000 --out /data/people
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken data`."""
    parser.add_argument("name", choices=("people",), metavar="NAME", help="people")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--places", type=int, default=120)
    parser.add_argument("--biographies", type=int, default=1, help="a person")
    parser.add_argument("--facts", type=int, default=6, help="a biography")
    parser.add_argument("--asked", type=float, default=0.5, help="share of people with a question")
    parser.add_argument("--same-words", action="store_true", help="one phrasing a person")
    parser.add_argument("--same-order", action="store_true", help="one order of sentences")
    parser.add_argument("--seed", type=int, default=0)


def run(options: argparse.Namespace) -> int:
    """Write the texts and both sets of questions."""
    from harken.cli.output import result
    from harken.data.generated import PeopleConfig, write_people
    from harken.errors import UserError

    try:
        config = PeopleConfig(
            people=options.people,
            places=options.places,
            biographies=options.biographies,
            facts=options.facts,
            asked=options.asked,
            rewrite=not options.same_words,
            permute=not options.same_order,
            seed=options.seed,
        )
    except ValueError as error:
        raise UserError(f"harken data people: {error}", fix="change that option") from None
    files = write_people(config, options.out)
    for path in (files.read, files.train, files.test):
        result(str(path))
    return 0
