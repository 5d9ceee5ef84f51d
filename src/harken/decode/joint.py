"""Decode speech with CTC, with the attention decoder, or with both.

ctc          best path if beam = 1, else prefix beam search
attention    the decoder alone, as in any encoder-decoder
both         score(y) = (1 - w) log P_attention(y end) + w log P_ctc(y),  w = ctc_weight

For a prefix, P_ctc is the probability of all texts that begin with it (`ctc_prefix.py`), so scores
never increase, as beam search requires. The score of `both` is not normalized. Results therefore
have the log-probability of the mixture (1 - w) P_attention + w P_ctc, which may rank differently.
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
    SuppressingStepper,
    TokenHypothesis,
    forced_log_probs,
)
from harken.errors import OptionError

DecodingMode = Literal["ctc", "attention", "both"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeechSearchConfig(SearchConfig):
    """Search with a speech recognizer."""

    # decode with CTC, the attention decoder or both; "both" falls back to the only one of a model
    mode: DecodingMode = "both"
    ctc_weight: float = bounded(0.3, at_least=0.0, at_most=1.0)  # weight of CTC in mode "both"


class SpeechModel(Seq2SeqModel, Protocol):
    """A model with a CTC head ("ctc" in `modes`), a decoder ("attention") or both."""

    @property
    def modes(self) -> frozenset[str]: ...

    def ctc_log_probs(self, memory: Float[Tensor, "B M H"]) -> Float[Tensor, "B M V"]: ...


class JointScorer:
    """A `Stepper` that adds the weighted log-probabilities of two; one of weight 0 is not run."""

    def __init__(self, attention: Stepper[Any], ctc: Stepper[Any], ctc_weight: float) -> None:
        pairs = ((attention, 1 - ctc_weight), (ctc, ctc_weight))
        self._weighted = [(stepper, weight) for stepper, weight in pairs if weight > 0]

    def prefill(self, tokens: Prompts, present: Present) -> tuple[Logits, Any]:
        return self._sum([stepper.prefill(tokens, present) for stepper, _ in self._weighted])

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> tuple[Logits, Any]:
        pairs = zip(self._weighted, state, strict=True)
        return self._sum([stepper.step(tokens, child_state) for (stepper, _), child_state in pairs])

    def log_probs(self, logits: Logits) -> Logits:
        return logits  # `_sum` has already converted them

    def reorder(
        self, state: Any, rows: Int[Tensor, "rows"], *, beam: int, same_prompts: bool
    ) -> Any:
        return tuple(
            stepper.reorder(child_state, rows, beam=beam, same_prompts=same_prompts)
            for (stepper, _), child_state in zip(self._weighted, state, strict=True)
        )

    def _sum(self, results: Sequence[tuple[Tensor, Any]]) -> tuple[Logits, Any]:
        log_probs = [
            weight * stepper.log_probs(logits)
            for (stepper, weight), (logits, _) in zip(self._weighted, results, strict=True)
        ]
        return torch.stack(log_probs).sum(dim=0), tuple(state for _, state in results)


def decoding_mode(model: SpeechModel, requested: DecodingMode) -> DecodingMode:
    """Return the mode to use; 'both' falls back to the only mode of a model with one."""
    if requested == "both":
        return "both" if len(model.modes) == 2 else "ctc" if "ctc" in model.modes else "attention"
    if requested not in model.modes:
        (other,) = model.modes
        raise OptionError(
            f"search.mode: the model does not support it (expected {other!r}, got {requested!r})",
            fix="to use both modes, set model.ctc = true and a model.decoder, and train again",
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
    sample_keys: Sequence[SampleKey] | None = None,
    start: Sequence[int] = (),
    suppressed: Sequence[Sequence[int]] = ((), ()),
) -> list[list[TokenHypothesis]]:
    """Return up to `nbest` texts for each row of encoder states, the best first.

    `start` are the first inputs of the decoder (default: `end`). `suppressed` are tokens that it
    never generates, and tokens that it does not generate first; CTC ignores both.
    """
    mode = decoding_mode(model, search.mode)
    if mode == "ctc":
        if search.temperature is not None:
            raise OptionError(
                f"search.temperature: CTC does not sample (expected no temperature, got "
                f"{search.temperature:g})",
                fix="leave it out, or set search.mode = 'attention'",
            )
        beam = max(search.beam, nbest)
        return search_ctc(model.ctc_log_probs(memory), present, blank=blank, beam=beam, nbest=nbest)
    stepper: Stepper[object] = Seq2SeqStepper(model, *(start or (end,)))
    if any(suppressed):
        stepper = SuppressingStepper(stepper, *suppressed)
    log_probs = None if mode == "attention" else model.ctc_log_probs(memory)
    if log_probs is not None:
        ctc_scorer = CTCPrefixScorer(log_probs, present, blank=blank, end=end)
        stepper = JointScorer(stepper, ctc_scorer, search.ctc_weight)
    stopping = {"end": end, "max_tokens": max_tokens}
    beams = generate(
        stepper, memory, present, search=search, nbest=nbest, sample_keys=sample_keys, **stopping
    )
    if log_probs is None:
        return beams
    weights = torch.tensor([1 - search.ctc_weight, search.ctc_weight], dtype=torch.float64)

    def score_mixture(rows: list[int], texts: list[Sequence[int]]) -> Tensor:
        attention = forced_log_probs(model, memory[rows], present[rows], texts, **stopping)
        ctc = text_log_probs(log_probs[rows], present[rows], texts, blank=blank)
        both = torch.stack((attention.cpu(), ctc.cpu()), dim=1)
        return (both + weights.log()).logsumexp(dim=1)

    return rescore(beams, score_mixture)


def search_ctc(
    log_probs: LogProbs, present: Present, *, blank: int, beam: int, nbest: int
) -> list[list[TokenHypothesis]]:
    """Return the `nbest` texts of the beam of each row, ranked by their exact probabilities."""
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
    """Replace the log-probabilities of hypotheses by `score(rows, texts)`, one text per row."""
    scored: list[list[TokenHypothesis]] = [[] for _ in beams]
    for rank in range(max(map(len, beams), default=0)):
        rows = [row for row, beam in enumerate(beams) if rank < len(beam)]
        texts = [beams[row][rank].tokens for row in rows]
        for row, text, log_prob in zip(rows, texts, score(rows, texts).tolist(), strict=True):
            scored[row].append(TokenHypothesis(text, log_prob))
    return scored
