"""Answer the lines of files or of stdin, in order; or tell what is in files of sound or pictures.

Lines of stdin are answered as they come: whatever waits goes through the model together, so a slow
pipe has its answers at once and a fast one is batched.
"""

import argparse
import io
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harken.cli.inputs import Unreadable, count_lines, file_chunks, line_chunks
from harken.cli.searching import add_search_options
from harken.errors import OptionError, UserError, error_text

if TYPE_CHECKING:
    from harken.run import Run
    from harken.tasks.prediction import Prediction

EPILOG = """output:
  One line for each line of input; a blank line stays blank. With --confidence, a tab and the
  probability follow. With --nbest, each hypothesis is a line of three columns, the best first:
  `number<TAB>log-probability<TAB>output`, where number counts the lines of input from 1, through
  all files, and a blank line has no hypothesis.
  With --max-error, `?` stands for an output whose confidence is below a threshold. It is chosen on
  the dev examples of the run such that, with probability at least 90 % over the dev set, the error
  rate among answered questions is at most RATE. Where the dev set cannot support this, the command
  is refused. --json keeps the withheld output, beside "abstained".
  Line ends and tabs inside an output are written as \\n, \\r and \\t, unless stdout is a terminal;
  --json gives every output as it is.
  A sample depends on the seed, the line and its number, not on the lines before or after it.
  An input that is longer than the model reads is truncated. A line on stderr says how much of it
  was read, and --json adds "truncation": {"kept", "total", "part", "unit"} to the prediction.

  A recogniser takes each FILE as a sound, and stdin as one; talk.wav#t=1.5,3 is a stretch of it.
  With --times, each word is a line of `file<TAB>start<TAB>end<TAB>word`, in seconds.
  A captioner takes each FILE as a picture; test.npz#7 is row 7 of an array.
  Both print `file<TAB>output`, and with --nbest `file<TAB>log-probability<TAB>output`.

  An input that cannot be read is reported on stderr, and with --json in its field "error"; the
  other inputs are still predicted. The exit code is then 1, or 2 if no input could be read.

examples:
  harken predict runs/demo questions.txt
  echo "Where was … born?" | harken predict runs/demo --confidence
  harken predict runs/demo questions.txt --max-error 0.1
  harken predict runs/demo questions.txt --beam 8 --nbest 3
  harken predict runs/demo questions.txt --temperature 0.8 --top-p 0.9 --seed 1 --json
  harken predict runs/speech one.wav two.flac --times
  sox in.mp3 -t wav - | harken predict runs/speech
  harken predict runs/captions beach.jpg test.npz#7
"""

SILENCE = "?"  # in place of an output that is not sure enough
ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


class PredictedInput(NamedTuple):
    """An input with its number, from 1; a blank line has no prediction."""

    number: int
    line: str
    prediction: "Prediction | None"
    error: UserError | OSError | None = None
    is_file: bool = False  # whether the input is a file rather than a line of one

    def abstained(self, threshold: float | None) -> bool:
        """Whether the output is to be kept back, for which NaN is not sure enough either."""
        if threshold is None or self.prediction is None:
            return False
        return not self.prediction.confidence >= threshold


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken predict`."""
    parser.add_argument("folder", type=Path, metavar="RUN")
    parser.add_argument(
        "files", nargs="*", default=[], metavar="FILE", help="`-`, or nothing, is stdin"
    )
    parser.add_argument("--confidence", action="store_true", help="add a tab and the probability")
    parser.add_argument("--nbest", type=int, metavar="N", help="print N hypotheses of each line")
    parser.add_argument(
        "--max-error", type=float, metavar="RATE", help="print ? where confidence is too low for it"
    )
    parser.add_argument("--times", action="store_true", help="of words, where inputs are sounds")
    add_search_options(parser)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Stream predictions, or collect them into one object."""
    from harken.cli.output import counting_progress, remark, result, result_json
    from harken.cli.searching import searched
    from harken.run import load

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as the input is, whatever the locale says
    names: list[str] = options.files or ["-"]
    paths = [Path(name) for name in names if name != "-"]
    _check_max_error(options)
    loaded = searched(load(options.folder, options.device), options)
    threshold = None if options.max_error is None else _threshold(loaded, options.max_error)
    of_files = loaded.task.inputs != "lines"
    if options.times and loaded.task.inputs != "sounds":
        raise UserError(
            f"--times: found a run of task {loaded.recipe.task!r}, wanted a recogniser",
            fix="leave out --times",
        )
    chunks = file_chunks(names) if of_files else chain.from_iterable(map(line_chunks, names))
    collected = []
    answered, failed = False, False
    known = len(paths) == len(names)
    total = (lambda: len(names) if of_files else sum(map(count_lines, paths))) if known else None
    with counting_progress(loaded.task.inputs, total) as advance:
        for answer in _answers(loaded, chunks, options, are_files=of_files):
            if answer.prediction is not None:
                answered = True
                if answer.prediction.truncation is not None:
                    where = answer.line if of_files else f"line {answer.number}"
                    remark(f"{where}: {answer.prediction.truncation}")
            if answer.error is not None:
                failed = True
                where = "" if answer.is_file else f"line {answer.number}: "
                remark(f"harken: {where}{error_text(answer.error)}")
            if options.json:
                collected.append(_record(answer, options, threshold))
            else:
                for line in _lines(answer, options, threshold):
                    result(line)
            advance()
    if options.json:
        guarantee = {} if threshold is None else _guarantee(options.max_error, threshold)
        result_json({"task": loaded.recipe.task, **guarantee, "predictions": collected})
    if not failed:
        return 0
    return 1 if answered else UserError.exit_code


def _check_max_error(options: argparse.Namespace) -> None:
    rate: float | None = options.max_error
    if rate is None:
        return
    if not 0 < rate < 1:
        raise UserError(
            f"--max-error: expected a number above 0 and below 1, got {rate}",
            fix="give the error rate that you allow, such as 0.1",
        )
    if options.nbest is not None:
        raise UserError(
            f"--max-error: expected one output for each input, got --nbest {options.nbest}",
            fix="leave out --nbest",
        )


def _threshold(loaded: "Run", max_error: float) -> float:
    """The confidence from which on to answer, chosen on the dev split of the run."""
    from harken.cli.output import remark
    from harken.measure.abstention import lowest_max_error, statement, threshold_for

    scored = loaded.scored_answers()
    if scored is None:
        raise UserError(
            f"--max-error: expected a run whose outputs are right or wrong as a whole, as those of "
            f"task 'answer' are, got one of task {loaded.recipe.task!r}",
            fix="leave out --max-error",
        )
    threshold = threshold_for(scored, max_error)
    if threshold is None:
        lowest = math.ceil(1000 * lowest_max_error(scored)) / 1000
        raise UserError(
            f"--max-error {max_error:g}: the {len(scored)} dev examples do not support this error "
            "rate at any confidence",
            fix=f"allow {lowest:g}, or add dev examples"
            if lowest < 1
            else "add dev examples, or train a better model",
        )
    share = float((scored.confidences >= threshold).mean())
    remark(
        f"--max-error {max_error:g}: answering from confidence {threshold:.4g} on "
        f"({100 * share:.0f} % of {len(scored)} dev examples): {statement(max_error)}"
    )
    return threshold


def _guarantee(max_error: float, threshold: float) -> dict[str, object]:
    from harken.measure.abstention import PROBABILITY

    fields = {"max_error": max_error, "probability": PROBABILITY, "threshold": threshold}
    return {"guarantee": fields}


def _answers(
    loaded: "Run",
    chunks: Iterable[Sequence[str] | Unreadable],
    options: argparse.Namespace,
    *,
    are_files: bool,
) -> Iterator[PredictedInput]:
    done = 0
    for chunk in chunks:
        if isinstance(chunk, Unreadable):
            yield PredictedInput(done, chunk.name, None, chunk.error, is_file=True)
            continue
        numbered = [(number, line) for number, line in enumerate(chunk, done + 1) if line.strip()]
        outcomes = _outcomes(loaded, numbered, options)
        for number, line in enumerate(chunk, done + 1):
            outcome = next(outcomes) if line.strip() else None
            if isinstance(outcome, UserError | OSError):
                yield PredictedInput(number, line, None, outcome, are_files)
            else:
                yield PredictedInput(number, line, outcome, None, are_files)
        done += len(chunk)
        sys.stdout.flush()


def _outcomes(
    loaded: "Run", numbered: Sequence[tuple[int, str]], options: argparse.Namespace
) -> Iterator["Prediction | UserError | OSError"]:
    """A prediction or an error for each input; a bad input does not spoil the others."""
    done = 0
    try:
        for prediction in _predicted(loaded, numbered, options):
            yield prediction
            done += 1
    except OptionError:
        raise
    except (UserError, OSError) as error:
        rest = numbered[done:]
        if len(rest) == 1:
            yield error
            return
        half = len(rest) // 2
        yield from _outcomes(loaded, rest[:half], options)
        yield from _outcomes(loaded, rest[half:], options)


def _predicted(
    loaded: "Run", numbered: Sequence[tuple[int, str]], options: argparse.Namespace
) -> Iterable["Prediction"]:
    """Samples depend on the number of a line, not on the lines that arrive with it."""
    lines = [line for _, line in numbered]
    indices = [number - 1 for number, _ in numbered]
    if not lines:
        return ()
    return loaded.predict(lines, options.nbest or 1, indices, times=options.times)


def _lines(
    answer: PredictedInput, options: argparse.Namespace, threshold: float | None
) -> Iterator[str]:
    """What is printed for an input."""
    prediction = answer.prediction
    if answer.error is not None and answer.is_file:
        return
    if options.nbest is not None:
        label = answer.line if answer.is_file else answer.number
        for output, log_probability in _hypotheses(prediction):
            yield f"{label}\t{log_probability:.4f}\t{_printable(output)}"
    elif prediction is None:
        yield ""
    elif options.times:
        for word in prediction.words:
            yield f"{answer.line}\t{word.start:.2f}\t{word.end:.2f}\t{_printable(word.word)}"
    else:
        said = SILENCE if answer.abstained(threshold) else _printable(prediction.output)
        line = f"{said}\t{prediction.confidence:.4f}" if options.confidence else said
        yield f"{answer.line}\t{line}" if answer.is_file else line


def _record(
    answer: PredictedInput, options: argparse.Namespace, threshold: float | None
) -> dict[str, Any]:
    prediction = answer.prediction
    record: dict[str, Any] = {
        "input": answer.line,
        "output": "" if prediction is None else prediction.output,
        "confidence": None if prediction is None else prediction.confidence,
    }
    if answer.error is not None:
        record["error"] = error_text(answer.error)
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
