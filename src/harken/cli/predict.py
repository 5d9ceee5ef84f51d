"""`harken predict`: print predictions for lines, sounds or images, in order."""

import argparse
import io
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from harken.cli.inputs import Unreadable, count_lines, file_chunks, line_chunks
from harken.cli.output import progress_bar, remark, result, result_json
from harken.cli.search_options import with_search_options
from harken.errors import OptionError, UserError, error_text
from harken.measure.abstention import PROBABILITY, lowest_max_error, statement, threshold_for
from harken.run import Run, load
from harken.tasks.prediction import Prediction

ABSTENTION = "?"  # replaces an output that is not confident enough
ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


class PredictedInput(NamedTuple):
    """An input with its number from 1; a blank line has no prediction."""

    number: int
    text: str
    prediction: Prediction | None
    error: UserError | OSError | None = None
    is_file: bool = False  # whether the input is a file instead of a line

    def abstained(self, threshold: float | None) -> bool:
        """Return whether the output is withheld; NaN is below every threshold."""
        if threshold is None or self.prediction is None:
            return False
        return not self.prediction.confidence >= threshold


def run(options: argparse.Namespace) -> int:
    """Stream predictions, or collect them into one JSON object."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # independent of the locale
    names: list[str] = options.files or ["-"]
    paths = [Path(name) for name in names if name != "-"]
    if options.max_error is not None and options.nbest is not None:
        raise UserError(
            f"--max-error: expected one output for each input, got --nbest {options.nbest}",
            fix="leave out --nbest",
        )
    loaded = with_search_options(load(options.folder, options.device), options)
    threshold = None if options.max_error is None else _threshold(loaded, options.max_error)
    takes_files = loaded.task.inputs != "lines"
    if options.times and loaded.task.inputs != "sounds":
        raise UserError(
            f"--times: expected a speech recognizer, got a run of task {loaded.recipe.task!r}",
            fix="leave out --times",
        )
    chunks = file_chunks(names) if takes_files else chain.from_iterable(map(line_chunks, names))
    records = []
    succeeded, failed = False, False
    is_countable = len(paths) == len(names)

    def count() -> int:
        return len(names) if takes_files else sum(map(count_lines, paths))

    with progress_bar(loaded.task.inputs, count if is_countable else None) as advance:
        for item in _predict(loaded, chunks, options, takes_files):
            if item.prediction is not None:
                succeeded = True
                if item.prediction.truncation is not None:
                    where = item.text if takes_files else f"line {item.number}"
                    remark(f"{where}: {item.prediction.truncation}")
            if item.error is not None:
                failed = True
                where = "" if item.is_file else f"line {item.number}: "
                remark(f"harken: {where}{error_text(item.error)}")
            if options.json:
                records.append(_record(item, options, threshold))
            else:
                for line in _lines(item, options, threshold):
                    result(line)
            advance()
    if options.json:
        record: dict[str, Any] = {"task": loaded.recipe.task}
        if threshold is not None:
            guarantee = {"max_error": options.max_error, "probability": PROBABILITY}
            record["guarantee"] = {**guarantee, "threshold": threshold}
        result_json({**record, "predictions": records})
    if not failed:
        return 0
    return 1 if succeeded else UserError.exit_code


def _threshold(loaded: Run, max_error: float) -> float:
    """Return the minimum confidence of an answer, chosen on the dev split of the run."""
    scored = loaded.scored_answers()
    if scored is None:
        raise UserError(
            "--max-error: expected a run whose outputs are right or wrong as a whole (such as task "
            f"'answer'), got task {loaded.recipe.task!r}",
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


def _predict(
    loaded: Run,
    chunks: Iterable[Sequence[str] | Unreadable],
    options: argparse.Namespace,
    are_files: bool,
) -> Iterator[PredictedInput]:
    done = 0
    for chunk in chunks:
        if isinstance(chunk, Unreadable):
            yield PredictedInput(done, chunk.name, None, chunk.error, is_file=True)
            continue
        numbered = list(enumerate(chunk, done + 1))
        filled = [(number, text) for number, text in numbered if text.strip()]
        outcomes = _outcomes(loaded, filled, options)
        for number, text in numbered:
            outcome = next(outcomes) if text.strip() else None
            if isinstance(outcome, UserError | OSError):
                yield PredictedInput(number, text, None, outcome, are_files)
            else:
                yield PredictedInput(number, text, outcome, None, are_files)
        done += len(chunk)
        sys.stdout.flush()


def _outcomes(
    loaded: Run, numbered: Sequence[tuple[int, str]], options: argparse.Namespace
) -> Iterator[Prediction | UserError | OSError]:
    """Yield a prediction or an error for each input; a bad one does not affect the others."""
    if not numbered:
        return
    indices, texts = [number - 1 for number, _ in numbered], [text for _, text in numbered]
    try:
        predictions = loaded.predict(texts, options.nbest or 1, indices, times=options.times)
    except OptionError:
        raise
    except (UserError, OSError) as error:
        if len(numbered) == 1:
            yield error
            return
        half = len(numbered) // 2
        yield from _outcomes(loaded, numbered[:half], options)
        yield from _outcomes(loaded, numbered[half:], options)
    else:
        yield from predictions


def _lines(
    item: PredictedInput, options: argparse.Namespace, threshold: float | None
) -> Iterator[str]:
    """Yield the printed lines of an input."""
    prediction = item.prediction
    if item.error is not None and item.is_file:
        return
    if options.nbest is not None:
        label = item.text if item.is_file else item.number
        for output, log_probability in _hypotheses(prediction):
            yield f"{label}\t{log_probability:.4f}\t{_escaped(output)}"
    elif prediction is None:
        yield ""
    elif options.times:
        for word in prediction.words:
            yield f"{item.text}\t{word.start:.2f}\t{word.end:.2f}\t{_escaped(word.word)}"
    else:
        line = ABSTENTION if item.abstained(threshold) else _escaped(prediction.output)
        if options.confidence:
            line = f"{line}\t{prediction.confidence:.4f}"
        yield f"{item.text}\t{line}" if item.is_file else line


def _record(
    item: PredictedInput, options: argparse.Namespace, threshold: float | None
) -> dict[str, Any]:
    """Return the JSON object of an input."""
    prediction = item.prediction
    record: dict[str, Any] = {
        "input": item.text,
        "output": "" if prediction is None else prediction.output,
        "confidence": None if prediction is None else prediction.confidence,
    }
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
    if options.nbest is not None:
        record["nbest"] = [
            {"output": output, "log_probability": log_probability}
            for output, log_probability in _hypotheses(prediction)
        ]
    return record


def _hypotheses(prediction: Prediction | None) -> list[tuple[str, float]]:
    """Return all outputs with log-probabilities."""
    if prediction is None:
        return []
    if prediction.nbest:
        return [(hypothesis.output, hypothesis.log_probability) for hypothesis in prediction.nbest]
    confidence = prediction.confidence
    return [(prediction.output, math.log(confidence) if confidence > 0 else -math.inf)]


def _escaped(output: str) -> str:
    return output if sys.stdout.isatty() else output.translate(ESCAPES)
