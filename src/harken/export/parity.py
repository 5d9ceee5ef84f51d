"""Compare an exported model with the original, on inputs of the dev set.

    logits    of `model.forward` on the same tensors: largest absolute difference
    outputs   of `predict`, with greedy search and with a beam of 5: share of equal outputs

Inputs are predicted in batches of 1, 3 and 64, in turn. For a model that searches, the logits are
those after each token of the best hypothesis (teacher forcing).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import chain, cycle, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from harken.decode.search import search_steps
from harken.decode.stepper import TokenHypothesis
from harken.encode.vocabulary import END, UNKNOWN
from harken.errors import Failure, HarkenError
from harken.export.format import ExportFormat, Precision, replace_methods
from harken.export.synthetic_lines import synthetic_lines
from harken.models.cloze import ClozeModel
from harken.models.seq2seq import Seq2Seq
from harken.run import Run
from harken.tasks.prediction import Prediction
from harken.version import __version__

MAX_INPUTS = 200
BATCH_SIZES = (1, 3, 64)
MAX_DIFFERENCE = 1e-4  # of float32 logits
MIN_EQUAL = 0.99  # share of float32 outputs that are equal or tied
TIE = 1e-5  # hypotheses whose log-probabilities differ by less are tied
MAX_TOKENS = 64  # generated per input of a language model
SEARCHES = {"greedy": 1, "beam 5": 5}


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """The outputs of an export that are equal to those of the original."""

    inputs: int
    equal: int
    ties: int  # different outputs of equal probability

    @property
    def share(self) -> float:
        """The share of outputs that are equal or tied."""
        return (self.equal + self.ties) / max(1, self.inputs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parity:
    """The comparison of an export with the original."""

    format: str
    precision: Precision
    inputs: int
    generated_inputs: int  # because the dev set is small or cannot be read
    batch_sizes: tuple[int, ...]
    max_logit_difference: float
    outputs: Mapping[str, Agreement]  # by search, or "predict" for a task without search
    versions: Mapping[str, str]

    def to_plain(self) -> dict[str, Any]:
        """Return the content of parity.json."""
        outputs = {
            name: {"share": agreement.share, **asdict(agreement)}
            for name, agreement in self.outputs.items()
        }
        return {**asdict(self), "outputs": outputs}

    def require(self) -> None:
        """Raise `Failure` unless the export agrees; lower precisions are only measured."""
        is_finite = self.max_logit_difference < float("inf")
        if self.precision != "float32" and is_finite:
            return
        worst = min(outputs.share for outputs in self.outputs.values())
        if not self.max_logit_difference <= MAX_DIFFERENCE or worst < MIN_EQUAL:
            raise Failure(
                f"format {self.format}: the export disagrees with the original (expected logits "
                f"within {MAX_DIFFERENCE:g} and {MIN_EQUAL:.0%} equal outputs, got "
                f"{self.max_logit_difference:.2g} and {worst:.1%}), so it was not written",
                fix="report this as a bug of Harken, with the recipe of the run",
            )


def compare_export(
    run: Run, exported: nn.Module, export_format: ExportFormat, precision: Precision
) -> Parity:
    """Compare the model that `ExportFormat.load` returned with `run.model`."""
    inputs, generated = parity_inputs(run)
    batches = split_batches(inputs)
    packages = ("torch", *export_format.packages)
    return Parity(
        format=export_format.name,
        precision=precision,
        inputs=len(inputs),
        generated_inputs=generated,
        batch_sizes=BATCH_SIZES,
        max_logit_difference=max(logit_difference(run, exported, batch) for batch in batches),
        outputs=compare_outputs(run, exported, batches),
        versions={"harken": __version__, **{name: version(name) for name in packages}},
    )


def parity_inputs(run: Run) -> tuple[list[str], int]:
    """Return inputs of the dev set and how many generated ones follow them.

    Lines are generated if the dev set has too few or cannot be read; sounds and images are not.
    """
    if run.input_form != "lines":
        return run.inputs(MAX_INPUTS), 0
    texts: list[str] = []
    with suppress(HarkenError, OSError):
        texts = run.inputs(MAX_INPUTS)
    lines = filter(str.strip, chain.from_iterable(map(str.splitlines, texts)))
    inputs = list(islice(lines, MAX_INPUTS))
    missing = max(0, sum(BATCH_SIZES) - len(inputs))
    return [*inputs, *synthetic_lines(run, missing)], missing


def split_batches(inputs: Sequence[str]) -> list[list[str]]:
    """Split inputs into batches of 1, 3, 64, 1, 3, 64, …."""
    batches, sizes = [], cycle(BATCH_SIZES)
    remaining = list(inputs)
    while remaining:
        size = next(sizes)
        batches.append(remaining[:size])
        remaining = remaining[size:]
    return batches


def compare_outputs(
    run: Run, exported: nn.Module, batches: Sequence[Sequence[str]]
) -> dict[str, Agreement]:
    """Predict with both models, with each search."""
    runs = {"predict": run} if run.search is None else searches(run)
    agreements = {}
    for name, searched in runs.items():
        pairs = [
            pair
            for batch in batches
            for pair in zip(
                searched.predict(batch),
                replace(searched, model=exported).predict(batch),
                strict=True,
            )
        ]
        equal = sum(original.output == export.output for original, export in pairs)
        ties = sum(is_tie(*pair) for pair in pairs)
        agreements[name] = Agreement(inputs=len(pairs), equal=equal, ties=ties)
    return agreements


def searches(run: Run) -> dict[str, Run]:
    """Return the run with greedy search and with beam search."""
    assert run.search is not None
    limit = run.search.max_tokens
    if run.recipe.task == "lm":
        limit = min(limit or MAX_TOKENS, MAX_TOKENS)
    changed = replace(
        run.search, beam=1, temperature=None, top_k=None, top_p=None, max_tokens=limit
    )
    return {name: run.with_search(replace(changed, beam=beam)) for name, beam in SEARCHES.items()}


def is_tie(original: Prediction, exported: Prediction) -> bool:
    """Whether two different outputs have equal probability."""
    first, second = original.confidence, exported.confidence
    return original.output != exported.output and abs(first - second) <= TIE * max(first, second)


@torch.inference_mode()
def logit_difference(run: Run, exported: nn.Module, inputs: Sequence[str]) -> float:
    """Return the largest difference of the logits on a batch; infinity if one is not finite."""
    largest = 0.0
    for arguments in forward_arguments(run, inputs):
        expected, actual = run.model(*arguments), exported(*arguments)
        for first, second in zip(_logits(expected), _logits(actual), strict=True):
            mask = _mask(first, expected, arguments)
            difference = (first.double() - second.double()).abs()
            difference = difference if mask is None else difference[mask]
            if difference.numel() and not difference.isfinite().all():
                return float("inf")
            largest = max(largest, float(difference.max()) if difference.numel() else 0.0)
    return largest


def _logits(output: Any) -> list[Tensor]:
    parts = output if isinstance(output, tuple) else (output,)
    return [part for part in parts if isinstance(part, Tensor) and part.is_floating_point()]


def _mask(logits: Tensor, output: Any, arguments: Sequence[Any]) -> Tensor | None:
    """Return the mask of real positions, if the logits have an axis with padding."""
    candidates = [getattr(output, "present", None), *arguments]
    for mask in reversed(candidates):
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            continue
        if logits.dim() == 3 and logits.shape[:2] == mask.shape:
            return mask
    return None


def forward_arguments(run: Run, inputs: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the arguments of `forward` for a batch of inputs, as `predict` computes them.

    Predictors of tags and labels call `forward`, and those of words `states`. Other predictors
    encode the inputs and search; the best hypotheses are then the given targets.
    """
    model: Any = run.model
    calls: list[tuple[Any, ...]] = []
    encoded: list[tuple[Any, ...]] = []
    searched: list[tuple[Tensor, Tensor, list[TokenHypothesis]]] = []

    def forward(*arguments: Any) -> Any:
        calls.append(arguments)
        return model(*arguments)

    def encode(*arguments: Any) -> Any:
        encoded.append(arguments)
        return model.encode(*arguments)

    def search(stepper: Any, prompts: Tensor, present: Tensor, **options: Any) -> Any:
        beams = search_steps(stepper, prompts, present, **options)
        searched.append((prompts, present, [beam[0] for beam in beams]))
        return beams

    def states(*arguments: Any) -> Any:
        calls.append(arguments)
        return model.states(*arguments)

    methods: dict[str, Any] = {"forward": forward, "search": search}
    if isinstance(run.model, ClozeModel):
        methods["states"] = states
    if hasattr(model, "encode"):
        methods["encode"] = encode
    greedy = run if run.search is None else searches(run)["greedy"]
    replace(greedy, model=replace_methods(model, **methods)).predict(list(inputs))
    if calls:
        return calls
    if encoded and not searched:  # a recognizer that only has CTC
        return [
            (*arguments, arguments[0].new_full((len(arguments[0]), 1), END, dtype=torch.long))
            for arguments in encoded
        ]
    if encoded:
        pairs = zip(encoded, searched, strict=True)
        return [(*arguments, _targets(best, model.max_target)) for arguments, (_, _, best) in pairs]
    if isinstance(run.model, Seq2Seq):
        limit: int = model.max_target
        return [(prompts, present, _targets(best, limit)) for prompts, present, best in searched]
    return [(_continued(*call, model.max_length),) for call in searched]


def _targets(best: Sequence[TokenHypothesis], limit: int) -> Tensor:
    """Return <end> and the tokens of each hypothesis, padded with an ordinary token."""
    rows = [torch.tensor([END, *hypothesis.tokens][:limit]) for hypothesis in best]
    return pad_sequence(rows, batch_first=True, padding_value=UNKNOWN)


def _continued(
    prompts: Tensor, present: Tensor, best: Sequence[TokenHypothesis], limit: int | None
) -> Tensor:
    """Return the prompt and the tokens of each hypothesis, padded on the right."""
    rows = [
        torch.cat((prompt[mask], torch.tensor(hypothesis.tokens, dtype=torch.long)))[:limit]
        for prompt, mask, hypothesis in zip(prompts, present, best, strict=True)
    ]
    return pad_sequence(rows, batch_first=True, padding_value=END)
