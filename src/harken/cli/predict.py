"""`harken predict`: print predictions for lines, sounds or images, in order."""

import argparse
import io
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from harken.cli.engine import load_run
from harken.cli.inputs import UnreadableFile, count_lines, file_chunks, line_chunks
from harken.cli.output import print_json, print_note, print_result, progress_bar
from harken.cli.search_options import speech_only_error
from harken.errors import OptionError, UserError, error_text
from harken.measure.abstention import PROBABILITY, guarantee_text, lowest_max_error, threshold_for
from harken.run import Run
from harken.tasks.prediction import Prediction, RankedOutput
from harken.training.distributed import agree, world

ABSTENTION = "?"  # replaces an output that is not confident enough
ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


class PredictedInput(NamedTuple):
    """An input and its number, from 1; a blank line has neither a prediction nor an error.

    A text file that cannot be read has the number of the line before it.
    """

    number: int
    text: str
    is_file: bool  # whether the input is a file instead of a line
    prediction: Prediction | None = None
    error: UserError | OSError | None = None

    def abstained(self, threshold: float | None) -> bool:
        """Return whether `?` replaces the output; a confidence of NaN is below every threshold."""
        if threshold is None or self.prediction is None:
            return False
        return not self.prediction.confidence >= threshold


def run(options: argparse.Namespace) -> int:
    """Stream predictions, or collect them into one JSON object."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # independent of the locale
    names: list[str] = options.files or ["-"]
    if options.max_error is not None and options.nbest is not None:
        problem = f"--max-error: expected one output for each input, got --nbest {options.nbest}"
        raise UserError(problem, fix="leave out --nbest")
    if world().size > 1 and "-" in names:
        problem = "torchrun: expected input files, got standard input, which only rank 0 can read"
        raise UserError(problem, fix="write the inputs to a file")
    # If loading fails on one rank, `agree` raises its error on all.
    loaded = agree(lambda: load_run(options))
    threshold = None if options.max_error is None else _threshold(loaded, options.max_error)
    takes_files = loaded.input_form != "lines"
    if options.times and not loaded.task.recognizes_speech:
        raise speech_only_error("--times", loaded)

    def count() -> int:
        return len(names) if takes_files else sum(count_lines(Path(name)) for name in names)

    records, succeeded, failed = [], False, False
    with progress_bar(loaded.input_form, None if "-" in names else count) as advance:
        for item in _predict(loaded, names, options):
            succeeded = succeeded or item.prediction is not None
            failed = failed or item.error is not None
            if item.prediction is not None and item.prediction.truncation is not None:
                where = item.text if item.is_file else f"line {item.number}"
                print_note(f"{where}: {item.prediction.truncation}")
            if item.error is not None:
                where = "" if item.is_file else f"line {item.number}: "
                print_note(f"harken: {where}{error_text(item.error)}")
            if options.json:
                records.append(_record(item, options, threshold))
            else:
                for line in _lines(item, options, threshold):
                    print_result(line)
            advance()
    if options.json:
        record: dict[str, Any] = {"task": loaded.recipe.task}
        if threshold is not None:
            guarantee = {"max_error": options.max_error, "probability": PROBABILITY}
            record["guarantee"] = {**guarantee, "threshold": threshold}
        print_json({**record, "predictions": records})
    if not failed:
        return 0
    return 1 if succeeded else UserError.exit_code


def _threshold(loaded: Run, max_error: float) -> float:
    """Return the minimum confidence of printed outputs, chosen on the dev split of the run."""
    scored = loaded.scored_answers()
    if scored is None:
        raise UserError(
            "--max-error: expected a task with one correct output per input (such as 'answer'), "
            f"got task {loaded.recipe.task!r}",
            fix="leave out --max-error",
        )
    threshold = threshold_for(scored, max_error)
    if threshold is None:
        lowest = math.ceil(1000 * lowest_max_error(scored)) / 1000
        fix = f"use --max-error {lowest:g}, or add dev examples"
        raise UserError(
            f"--max-error {max_error:g}: the {len(scored)} dev examples do not support this error "
            "rate at any confidence",
            fix=fix if lowest < 1 else "add dev examples, or train a better model",
        )
    share = float((scored.confidences >= threshold).mean())
    print_note(
        f"--max-error {max_error:g}: answering if the confidence is at least {threshold:.4g} "
        f"({100 * share:.0f} % of {len(scored)} dev examples): {guarantee_text(max_error)}"
    )
    return threshold


def _predict(
    loaded: Run, names: Sequence[str], options: argparse.Namespace
) -> Iterator[PredictedInput]:
    """Yield every line, sound or image in order, with its prediction or error."""
    takes_files, count = loaded.input_form != "lines", 0
    lines = chain.from_iterable(map(line_chunks, names))
    for chunk in file_chunks(names) if takes_files else lines:
        if isinstance(chunk, UnreadableFile):
            yield PredictedInput(count, chunk.name, is_file=True, error=chunk.error)
            continue
        inputs = [
            PredictedInput(number, text, takes_files)
            for number, text in enumerate(chunk, count + 1)
        ]
        predicted = _predict_each(loaded, [item for item in inputs if item.text.strip()], options)
        for item in inputs:
            yield next(predicted) if item.text.strip() else item
        count += len(chunk)
        sys.stdout.flush()


def _predict_each(
    loaded: Run, inputs: Sequence[PredictedInput], options: argparse.Namespace
) -> Iterator[PredictedInput]:
    """Yield inputs with a prediction or an error; a bad input does not affect the others."""
    if not inputs:
        return
    texts = [item.text for item in inputs]
    indices = [item.number - 1 for item in inputs]  # so that samples do not depend on the batch
    try:
        predictions = loaded.predict(texts, options.nbest or 1, indices, times=options.times)
    except OptionError:
        raise
    except (UserError, OSError) as error:
        if len(inputs) == 1:
            yield inputs[0]._replace(error=error)
            return
        half = len(inputs) // 2
        yield from _predict_each(loaded, inputs[:half], options)
        yield from _predict_each(loaded, inputs[half:], options)
    else:
        for item, prediction in zip(inputs, predictions, strict=True):
            yield item._replace(prediction=prediction)


def _lines(
    item: PredictedInput, options: argparse.Namespace, threshold: float | None
) -> Iterator[str]:
    """Yield the printed lines of an input."""
    prediction = item.prediction
    if item.error is not None and item.is_file:  # a line with an error is printed as a blank line
        return
    if options.nbest is not None:
        label = item.text if item.is_file else item.number
        for ranked in _ranked(prediction):
            yield f"{label}\t{ranked.log_probability:.4f}\t{_escape_separators(ranked.output)}"
    elif prediction is None:
        yield ""
    elif options.times:
        for word in prediction.words:
            seconds = f"{word.start:.2f}\t{word.end:.2f}"
            yield f"{item.text}\t{seconds}\t{_escape_separators(word.word)}"
    else:
        line = ABSTENTION if item.abstained(threshold) else _escape_separators(prediction.output)
        if options.confidence:
            line = f"{line}\t{prediction.confidence:.4f}"
        yield f"{item.text}\t{line}" if item.is_file else line


def _record(
    item: PredictedInput, options: argparse.Namespace, threshold: float | None
) -> dict[str, Any]:
    """Return the JSON object of an input."""
    prediction = item.prediction
    record: dict[str, Any] = {"input": item.text, "output": "", "confidence": None}
    if prediction is not None:
        record |= {"output": prediction.output, "confidence": prediction.confidence}
    if item.error is not None:
        record["error"] = error_text(item.error)
    if threshold is not None:
        record["abstained"] = item.abstained(threshold)
    if prediction is not None:
        if prediction.truncation is not None:
            record["truncation"] = asdict(prediction.truncation)
        if options.times:
            record["words"] = [asdict(word) for word in prediction.words]
        if prediction.tokens:
            record["tokens"] = [asdict(token) for token in prediction.tokens]
        if prediction.labels:
            record["labels"] = [asdict(label) for label in prediction.labels]
    if options.nbest is not None:
        record["nbest"] = list(map(asdict, _ranked(prediction)))
    return record


def _ranked(prediction: Prediction | None) -> Sequence[RankedOutput]:
    """Return all outputs with log-probabilities; without an n-best list, the only output."""
    if prediction is None:
        return []
    log = math.log(prediction.confidence) if prediction.confidence > 0 else -math.inf
    return prediction.nbest or [RankedOutput(output=prediction.output, log_probability=log)]


def _escape_separators(output: str) -> str:
    """Escape line ends and tabs, which separate the printed lines and columns."""
    return output if sys.stdout.isatty() else output.translate(ESCAPES)
