"""What `harken data` does with pictures: draw some."""

import argparse
from pathlib import Path


def drawn_options(parser: argparse.ArgumentParser) -> None:
    """Of `harken data drawn`."""
    parser.add_argument("--scenes", type=int, default=2000, help="a tenth each: dev and test")
    parser.add_argument("--size", type=int, default=48, help="pixels, both ways")
    parser.add_argument("--least", type=int, default=1, help="things a scene")
    parser.add_argument("--most", type=int, default=3)
    parser.add_argument("--noise", type=float, default=3.0, help="deviation, of 255 steps")
    parser.add_argument(
        "--new-pairs", action="store_true", help="test has colours on shapes that train has not"
    )
    parser.add_argument("--seed", type=int, default=0)


def make_drawn(options: argparse.Namespace) -> list[Path]:
    """Captions and pictures of three parts, and a folder of examples."""
    from harken.synthetic.scenes import DrawnConfig, write_drawn

    config = DrawnConfig(
        scenes=options.scenes,
        size=options.size,
        least=options.least,
        most=options.most,
        noise=options.noise,
        new_pairs=options.new_pairs,
        seed=options.seed,
    )
    files = write_drawn(config, options.out)
    return [*files.captions.values(), *files.images.values(), files.examples]
