"""Search for the text of speech by CTC, by attention, or by both.

ctc          text of the best path where beam = 1, else the best texts of a prefix beam search
attention    the decoder alone, as any encoder-decoder
both         score(y) = (1 - w) log P_attention(y end) + w log P_ctc(y),  w = ctc_weight

For a prefix, P_ctc is the probability of all texts that begin with it (`ctc_prefix.py`), so scores
only fall, as beam search requires. The score of `both` is not normalized, so results have the
log-probability of the mixture (1 - w) P_attention + w P_ctc, which may rank them differently.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from harken.config import bounded
from harken.decode.ctc import LogProbs, best_paths, text_log_probs
from harken.decode.ctc_prefix import CTCPrefixScorer, search_prefixes
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import (
    Logits,
    Present,
    Prompts,
    Seq2SeqModel,
    Seq2SeqStepper,
    Stepper,
    TokenHypothesis,
    forced_log_probs,
)
from harken.errors import OptionError

DecodingMode = Literal["ctc", "attention", "both"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeechSearchConfig(SearchConfig):
    """Search of a speech recognizer."""

    mode: DecodingMode = "both"  # decode with CTC, with the attention decoder or with both
    ctc_weight: float = bounded(0.3, at_least=0.0, at_most=1.0)  # weight of CTC in mode "both"


class SpeechModel(Seq2SeqModel, Protocol):
    """A model with one or both of CTC and a decoder; `modes` names them."""

    @property
    def modes(self) -> frozenset[str]: ...

    def ctc_log_probs(self, memory: Float[Tensor, "B M H"]) -> Float[Tensor, "B M V"]: ...


class JointScorer:
    """`Stepper` of the weighted sum of two steppers; one with weight 0 is not run."""

    def __init__(self, attention: Stepper[Any], ctc: Stepper[Any], ctc_weight: float) -> None:
        weighted = ((attention, 1 - ctc_weight), (ctc, ctc_weight))
        self._parts = [(stepper, weight) for stepper, weight in weighted if weight > 0]

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Any]:
        return self._sum([stepper.prefill(tokens, present) for stepper, _ in self._parts])

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Logits, Any]:
        pairs = zip(self._parts, state, strict=True)
        return self._sum([stepper.step(tokens, part_state) for (stepper, _), part_state in pairs])

    def log_probs(self, logits: Logits) -> Logits:
        return logits

    def reorder(self, state: Any, rows: Int[Tensor, "rows"], *, same_prompts: bool) -> Any:
        return tuple(
            stepper.reorder(part_state, rows, same_prompts=same_prompts)
            for (stepper, _), part_state in zip(self._parts, state, strict=True)
        )

    def _sum(self, results: Sequence[tuple[Tensor, Any]]) -> tuple[Logits, Any]:
        log_probs = [
            weight * stepper.log_probs(logits)
            for (stepper, weight), (logits, _) in zip(self._parts, results, strict=True)
        ]
        return torch.stack(log_probs).sum(dim=0), tuple(state for _, state in results)


def decoding_mode(model: SpeechModel, requested: DecodingMode) -> DecodingMode:
    """Return the mode to use: the only one of the model if 'both' is requested."""
    if requested == "both":
        return "both" if len(model.modes) == 2 else "ctc" if "ctc" in model.modes else "attention"
    if requested not in model.modes:
        (other,) = model.modes
        raise OptionError(
            f"search.mode: the model has no {requested} (expected {other!r}, got {requested!r})",
            fix="set model.ctc = true and a model.decoder, then train again, to have both",
        )
    return requested


@torch.inference_mode()
def search_speech(
    model: SpeechModel,
    memory: Float[Tensor, "B M H"],
    present: Bool[Tensor, "B M"],
    *,
    search: SpeechSearchConfig,
    blank: int,
    end: int,
    max_tokens: int,
    nbest: int = 1,
    keys: Sequence[SampleKey] | None = None,
) -> list[list[TokenHypothesis]]:
    """Return the `nbest` texts for each row of encoder states, the best first."""
    mode = decoding_mode(model, search.mode)
    if mode == "ctc":
        if search.temperature is not None:
            raise OptionError(
                f"search.temperature: ctc does not sample (expected none, got "
                f"{search.temperature:g})",
                fix="leave it out, or set search.mode = 'attention'",
            )
        beam = max(search.beam, nbest)
        return search_ctc(model.ctc_log_probs(memory), present, blank=blank, beam=beam, nbest=nbest)
    stepper: Stepper[object] = Seq2SeqStepper(model, end)
    log_probs = None if mode == "attention" else model.ctc_log_probs(memory)
    if log_probs is not None:
        ctc = CTCPrefixScorer(log_probs, present, blank=blank, end=end)
        stepper = JointScorer(stepper, ctc, search.ctc_weight)
    limits = {"end": end, "max_tokens": max_tokens}
    beams = generate(stepper, memory, present, search=search, nbest=nbest, keys=keys, **limits)
    if log_probs is None:
        return beams
    weights = torch.tensor([1 - search.ctc_weight, search.ctc_weight], dtype=torch.float64)

    def mixture(rows: list[int], texts: list[Sequence[int]]) -> Tensor:
        by_attention = forced_log_probs(model, memory[rows], present[rows], texts, **limits)
        by_ctc = text_log_probs(log_probs[rows], present[rows], texts, blank=blank)
        both = torch.stack((by_attention.cpu(), by_ctc.cpu()), dim=1)
        return (both + weights.log()).logsumexp(dim=1)

    return rescore(beams, mixture)


def search_ctc(
    log_probs: LogProbs, present: Present, *, blank: int, beam: int, nbest: int
) -> list[list[TokenHypothesis]]:
    """Return the most probable texts of each row among those in the beam."""
    beams: Sequence[Sequence[TokenHypothesis]]
    if beam == 1:
        beams = [[path] for path in best_paths(log_probs, present, blank=blank)]
    else:
        beams = search_prefixes(log_probs, present, blank=blank, beam=beam, nbest=beam)

    def score(rows: list[int], texts: list[Sequence[int]]) -> Tensor:
        return text_log_probs(log_probs[rows], present[rows], texts, blank=blank)

    return [
        sorted(row, key=lambda hypothesis: -hypothesis.log_probability)[:nbest]
        for row in rescore(beams, score)
    ]


def rescore(
    beams: Sequence[Sequence[TokenHypothesis]],
    score: Callable[[list[int], list[Sequence[int]]], Float[Tensor, "rows"]],
) -> list[list[TokenHypothesis]]:
    """Replace log-probabilities by what `score` returns for one text per row."""
    scored: list[list[TokenHypothesis]] = [[] for _ in beams]
    for rank in range(max(map(len, beams), default=0)):
        rows = [row for row, beam in enumerate(beams) if rank < len(beam)]
        texts = [beams[row][rank].tokens for row in rows]
        for row, text, log_prob in zip(rows, texts, score(rows, texts).tolist(), strict=True):
            scored[row].append(TokenHypothesis(text, log_prob))
    return scored
