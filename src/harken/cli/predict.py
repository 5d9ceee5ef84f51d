"""Answer the lines of files or of stdin, in order; or tell what is in files of sound or pictures.

Lines of stdin are answered as they come: whatever waits goes through the model together, so a slow
pipe has its answers at once and a fast one is batched.
"""

import argparse
import io
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from harken.cli.searching import add_search_options
from harken.errors import UserError

if TYPE_CHECKING:
    from harken.run import Run
    from harken.tasks.task import Prediction

EPILOG = """output:
  One line for each line of input; a blank line stays blank. With --confidence, a tab and the
  probability follow. With --nbest, each hypothesis is a line of three columns, the best first:
  `number<TAB>log-probability<TAB>output`, where number counts the lines of input from 1, through
  all files, and a blank line has no hypothesis.
  With --abstain, `?` stands for an output that is less sure than a threshold. It is the lowest at
  which, on the dev questions of the run, no more than RATE of the outputs that pass are wrong, one
  wrong one being added for the next question. --json keeps what would have been said, beside
  "abstained".
  Line ends and tabs inside an output are written as \\n, \\r and \\t, unless stdout is a terminal;
  --json gives every output as it is.
  A sample depends on the seed, the line and its number, not on the lines before or after it.
  An input that is longer than the model reads is truncated. A line on stderr says how much of it
  was read, and --json adds "truncation": {"kept", "total", "part", "unit"} to the prediction.

  A recogniser takes each FILE as a sound, and stdin as one; talk.wav#t=1.5,3 is a stretch of it.
  With --times, each word is a line of `file<TAB>start<TAB>end<TAB>word`, in seconds.
  A captioner takes each FILE as a picture; test.npz#7 is row 7 of an array.

examples:
  harken predict runs/demo questions.txt
  echo "Where was … born?" | harken predict runs/demo --confidence
  harken predict runs/demo questions.txt --abstain 0.1
  harken predict runs/demo questions.txt --beam 8 --nbest 3
  harken predict runs/demo questions.txt --temperature 0.8 --top-p 0.9 --seed 1 --json
  harken predict runs/speech one.wav two.flac --times
  sox in.mp3 -t wav - | harken predict runs/speech
  harken predict runs/captions beach.jpg test.npz#7
"""

TOGETHER = 256  # lines that go through the model in one call
FILES_TOGETHER = 16  # sounds or pictures, which are larger
SILENCE = "?"  # in place of an output that is not sure enough
ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


class Answer(NamedTuple):
    """A line of input with its number, from 1; a blank line has no prediction."""

    number: int
    line: str
    prediction: "Prediction | None"

    def abstained(self, threshold: float | None) -> bool:
        """Whether the output is to be kept back, for which NaN is not sure enough either."""
        if threshold is None or self.prediction is None:
            return False
        return not self.prediction.confidence >= threshold


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken predict`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument("files", nargs="*", metavar="FILE", help="`-`, or nothing, is stdin")
    parser.add_argument("--confidence", action="store_true", help="add a tab and the probability")
    parser.add_argument("--nbest", type=int, metavar="N", help="print N hypotheses of each line")
    parser.add_argument(
        "--abstain", type=float, metavar="RATE", help="say ? rather than err more often than this"
    )
    parser.add_argument("--times", action="store_true", help="of words, where inputs are sounds")
    add_search_options(parser)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Stream predictions, or collect them into one object."""
    from harken.cli.output import counting_progress, remark, result, result_json
    from harken.cli.searching import searched
    from harken.data.text import require_file
    from harken.run import load
    from harken.tasks.task import OfFiles, Timing

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input is, whatever the locale says
    names: list[str] = options.files or ["-"]
    paths = [Path(name) for name in names if name != "-"]
    _check_abstain(options)
    loaded = searched(load(options.folder, options.device), options)
    threshold = None if options.abstain is None else _threshold(loaded, options.abstain)
    of_files = isinstance(loaded.task, OfFiles)
    if not of_files:
        for path in paths:
            require_file(path)
    if options.times and not isinstance(loaded.task, Timing):
        raise UserError(
            f"--times: found a run of task {loaded.recipe.task!r}, wanted a recogniser",
            fix="leave out --times",
        )
    chunks: Iterable[Sequence[str]] = _some(names, FILES_TOGETHER)
    if not of_files:
        chunks = chain.from_iterable(map(_chunks, names))
    collected = []
    known = len(paths) == len(names)
    total = (lambda: len(names) if of_files else sum(map(_count, paths))) if known else None
    counted = loaded.task.files if isinstance(loaded.task, OfFiles) else "lines"
    with counting_progress(counted, total) as advance:
        for answer in _answers(loaded, chunks, options):
            if answer.prediction is not None and answer.prediction.truncation is not None:
                where = answer.line if of_files else f"line {answer.number}"
                remark(f"{where}: {answer.prediction.truncation}")
            if options.json:
                collected.append(_record(answer, options, threshold))
            else:
                for line in _lines(answer, options, threshold):
                    result(line)
            advance()
    if options.json:
        result_json({"task": loaded.recipe.task, "predictions": collected})
    return 0


def _check_abstain(options: argparse.Namespace) -> None:
    rate: float | None = options.abstain
    if rate is None:
        return
    if not 0 < rate < 1:
        raise UserError(
            f"--abstain: found {rate}, wanted a number above 0 and below 1",
            fix="give the share of errors that you allow, such as 0.1",
        )
    if options.nbest is not None:
        raise UserError(
            f"--abstain: found --nbest {options.nbest} beside it, wanted one output to keep back",
            fix="leave out --nbest",
        )


def _threshold(loaded: "Run", rate: float) -> float:
    """The confidence from which on to answer, as the run's dev split tells."""
    from harken.measure.abstention import lowest_rate, threshold_for
    from harken.tasks.task import Judging

    if not isinstance(loaded.task, Judging):
        raise UserError(
            f"--abstain: found a run of task {loaded.recipe.task!r}, wanted one whose outputs are "
            "right or wrong as a whole, as those of 'answer' are",
            fix="leave out --abstain",
        )
    judged = loaded.task.judged(loaded.trained)
    threshold = threshold_for(judged, rate)
    if threshold is None:
        least = math.ceil(1000 * lowest_rate(judged)) / 1000
        raise UserError(
            f"--abstain {rate:g}: found no confidence that keeps this promise on the {len(judged)} "
            "dev questions, wanted one",
            fix=f"allow a rate of {least:g}" if least < 1 else "train a model that knows more",
        )
    return threshold


def _answers(
    loaded: "Run", chunks: Iterable[Sequence[str]], options: argparse.Namespace
) -> Iterator[Answer]:
    done = 0
    for chunk in chunks:
        numbered = [(number, line) for number, line in enumerate(chunk, done + 1) if line.strip()]
        predictions = iter(_predicted(loaded, numbered, options))
        for number, line in enumerate(chunk, done + 1):
            yield Answer(number, line, next(predictions) if line.strip() else None)
        done += len(chunk)
        sys.stdout.flush()


def _predicted(
    loaded: "Run", numbered: Sequence[tuple[int, str]], options: argparse.Namespace
) -> Iterable["Prediction"]:
    """Samples depend on the number of a line, not on the lines that arrive with it."""
    lines = [line for _, line in numbered]
    indices = [number - 1 for number, _ in numbered]
    if options.times:
        return loaded.predict_times(lines, indices)
    return loaded.predict(lines, options.nbest or 1, indices) if lines else ()


def _lines(answer: Answer, options: argparse.Namespace, threshold: float | None) -> Iterator[str]:
    """What is printed for a line of input."""
    prediction = answer.prediction
    if options.nbest is not None:
        for output, log_probability in _hypotheses(prediction):
            yield f"{answer.number}\t{log_probability:.4f}\t{_printable(output)}"
    elif prediction is None:
        yield ""
    elif options.times:
        for word in prediction.words:
            yield f"{answer.line}\t{word.start:.2f}\t{word.end:.2f}\t{_printable(word.word)}"
    else:
        said = SILENCE if answer.abstained(threshold) else _printable(prediction.output)
        yield f"{said}\t{prediction.confidence:.4f}" if options.confidence else said


def _record(answer: Answer, options: argparse.Namespace, threshold: float | None) -> dict[str, Any]:
    prediction = answer.prediction
    record: dict[str, Any] = {
        "input": answer.line,
        "output": "" if prediction is None else prediction.output,
        "confidence": None if prediction is None else prediction.confidence,
    }
    if threshold is not None:
        record["abstained"] = answer.abstained(threshold)
    if prediction is not None and prediction.truncation is not None:
        record["truncation"] = asdict(prediction.truncation)
    if options.times and prediction is not None:
        record["words"] = [asdict(word) for word in prediction.words]
    if prediction is not None and prediction.tokens:
        record["tokens"] = [asdict(token) for token in prediction.tokens]
    if options.nbest is not None:
        record["nbest"] = [
            {"output": output, "log_probability": log_probability}
            for output, log_probability in _hypotheses(prediction)
        ]
    return record


def _hypotheses(prediction: "Prediction | None") -> list[tuple[str, float]]:
    """All that were found for a line; a prediction that lists none is its own only one."""
    if prediction is None:
        return []
    if prediction.nbest:
        return [(one.output, one.log_probability) for one in prediction.nbest]
    sure = prediction.confidence
    return [(prediction.output, math.log(sure) if sure > 0 else -math.inf)]


def _printable(output: str) -> str:
    return output if sys.stdout.isatty() else output.translate(ESCAPES)


def _chunks(name: str) -> Iterator[list[str]]:
    """The lines of a file, or of stdin, some at a time."""
    from harken.data.text import open_text, read_every_line

    if name == "-":
        yield from _arriving(_stdin())
        return
    with open_text(Path(name)) as file:
        lines = (line.text for line in read_every_line(file, Path(name)))
        while chunk := list(islice(lines, TOGETHER)):
            yield chunk


def _some(names: Sequence[str], count: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), count):
        yield names[start : start + count]


def _count(path: Path) -> int:
    from harken.data.text import open_text

    with open_text(path) as file:
        return sum(1 for _ in file)


def _stdin() -> BinaryIO:
    if sys.stdin is None:  # closed, as by `<&-`
        raise UserError("<stdin>: found it closed, wanted lines", fix="name a file, or use a pipe")
    try:
        number = sys.stdin.fileno()
    except io.UnsupportedOperation:
        return sys.stdin.buffer
    # A reader of our own: Python locks `sys.stdin.buffer` when it ends, and would abort where the
    # thread below still waits in it.
    return open(number, "rb", closefd=False)


def _arriving(file: BinaryIO) -> Iterator[list[str]]:
    """The next line of a stream as soon as it is there, with those that wait behind it."""
    from harken.data.text import STDIN, read_every_line, unpacked

    # Two simple queues, since a Ctrl-C inside `Queue(maxsize)` can leave its lock broken.
    lines: SimpleQueue[str | BaseException] = SimpleQueue()
    places: SimpleQueue[None] = SimpleQueue()  # as many as lines may wait

    def read() -> None:
        try:
            for line in read_every_line(unpacked(file, STDIN), STDIN):
                places.get()
                lines.put(line.text)
            lines.put(EOFError())
        except BaseException as error:  # it belongs to whoever waits for the lines
            lines.put(error)

    for _ in range(TOGETHER):
        places.put(None)
    # A daemon, since nothing can end a read that waits for a line.
    Thread(target=read, name="stdin", daemon=True).start()
    while True:
        taken = [lines.get()]
        with suppress(Empty):
            while len(taken) < TOGETHER:
                taken.append(lines.get_nowait())
        for _ in taken:
            places.put(None)
        if arrived := [one for one in taken if isinstance(one, str)]:
            yield arrived
        if isinstance(last := taken[-1], EOFError):
            return
        if isinstance(last, BaseException):
            raise last
