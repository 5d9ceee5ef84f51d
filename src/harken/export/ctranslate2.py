"""Export to CTranslate2, an inference engine for Transformers on CPUs."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from harken.decode.beam import check_nbest
from harken.decode.search import SearchConfig, search_steps
from harken.decode.stepper import NonEmptyStepper, TokenHypothesis
from harken.export.ctranslate2_spec import (
    check_encoder_decoder,
    check_gpt,
    encoder_decoder_spec,
    gpt_spec,
)
from harken.export.format import ExportFormat, FormatName, Precision, replace_methods
from harken.export.requirements import Requirements
from harken.export.tokenizer_json import write_tokenizer
from harken.inputs import read_json
from harken.models.gpt import GPT
from harken.models.seq2seq import EncoderDecoder
from harken.run import Run

CONFIG, MAX_BYTES = "config.json", 2**24
Beams = list[list[TokenHypothesis]]


class CTranslate2Format(ExportFormat):
    """Folders that `ctranslate2.Translator` and `ctranslate2.Generator` load."""

    name: ClassVar[FormatName] = "ctranslate2"
    precisions: ClassVar[tuple[Precision, ...]] = ("float32", "float16", "int8")
    packages: ClassVar[tuple[str, ...]] = ("ctranslate2",)

    def check(self, run: Run, precision: Precision) -> None:
        if isinstance(run.model, GPT):
            check_gpt(run.recipe.model)
        elif isinstance(run.model, EncoderDecoder):
            check_encoder_decoder(run.recipe.model)
        else:
            choice = f"task = {run.recipe.task!r} with model.kind = {run.recipe.model.kind!r}"
            raise Requirements("ctranslate2").refuse(choice)

    def write(self, run: Run, folder: Path, precision: Precision) -> None:
        model: Any = run.model
        vocabulary: Any = run.vocabulary
        tokens = vocabulary.names()
        end, unknown = tokens[vocabulary.special.end], tokens[vocabulary.special.unknown]
        if isinstance(model, GPT):
            spec = gpt_spec(model, run.recipe.model)
            spec.register_vocabulary(tokens)
            max_length = model.max_length
        else:
            spec = encoder_decoder_spec(model, run.recipe.model)
            spec.register_source_vocabulary(tokens)
            spec.register_target_vocabulary(tokens)
            spec.config.decoder_start_token = end
            max_length = model.max_source
        spec.config.bos_token = spec.config.eos_token = end
        spec.config.unk_token = unknown
        spec.config.add_attribute("precision", precision)  # for `load`; CTranslate2 ignores it
        spec.validate()
        spec.optimize(quantization=precision)
        spec.save(str(folder))
        write_tokenizer(folder, vocabulary, before=[], after=[], max_length=max_length)

    def load(self, folder: Path, run: Run) -> nn.Module:
        import ctranslate2

        is_gpt = isinstance(run.model, GPT)
        loader = ctranslate2.Generator if is_gpt else ctranslate2.Translator
        stored = read_json(folder / CONFIG, "the config of an export", max_bytes=MAX_BYTES)
        # CPUs store float16 weights, but compute in float32.
        compute_type = "int8" if stored.get("precision") == "int8" else "float32"
        # Workers with one thread each: a second OpenMP runtime slows down small products sixfold.
        workers = torch.get_num_threads()
        model = loader(
            *(str(folder), "cpu"),
            compute_type=compute_type,
            inter_threads=workers,
            intra_threads=1,
        )
        engine = GeneratorEngine if is_gpt else TranslatorEngine
        vocabulary: Any = run.vocabulary
        loaded: Any = engine(model, vocabulary.names())
        return replace_methods(run.model, forward=loaded.forward, search=loaded.search)

    def usage(self, run: Run, name: str) -> str:
        loader = "Generator" if isinstance(run.model, GPT) else "Translator"
        method = "generate_batch" if isinstance(run.model, GPT) else "translate_batch"
        return f"""import ctranslate2
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("{name}/tokenizer.json")
model = ctranslate2.{loader}("{name}")
model.{method}([tokenizer.encode("…").tokens], beam_size=5)"""


class CTranslate2Engine:
    """A loaded export; tokens are passed to CTranslate2 by name."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        self.model, self.names = model, names
        self.ids = {name: index for index, name in enumerate(names)}

    def search(
        self,
        stepper: Any,
        prompts: Tensor,
        present: Tensor,
        *,
        search: SearchConfig,
        end: int,
        max_tokens: int,
        nbest: int,
        sample_keys: Any,
    ) -> Beams:
        """Search as `search_steps` does; PyTorch samples, and searches without early stopping."""
        beam = nbest if search.beam == 1 else search.beam
        limits = {"end": end, "max_tokens": max_tokens, "nbest": nbest}
        if search.temperature is not None or not (search.early_stopping or beam == 1):
            options = {**limits, "search": search, "sample_keys": sample_keys}
            return search_steps(stepper, prompts, present, **options)
        check_nbest(beam, nbest)
        options = {
            "beam_size": beam,
            "num_hypotheses": nbest,
            "length_penalty": search.length_penalty,
            "return_scores": True,
        }
        rows = [prompt[mask] for prompt, mask in zip(prompts, present, strict=True)]
        log_scales, min_tokens = [0.0] * len(rows), 0
        if isinstance(stepper, NonEmptyStepper):
            log_scales, min_tokens = self.log_share_without(end, rows), 1
        scored = self.generate(rows, max_tokens, min_tokens, options)

        def hypothesis(tokens: list[int], score: float, log_scale: float) -> TokenHypothesis:
            # CTranslate2 divides by the number of tokens, `end` included.
            length = len(tokens) + (len(tokens) < max_tokens)
            return TokenHypothesis(tokens, score * length**search.length_penalty + log_scale)

        return [
            [hypothesis(tokens, score, log_scale) for tokens, score in beams]
            for beams, log_scale in zip(scored, log_scales, strict=True)
        ]

    def generate(
        self, rows: list[Tensor], max_tokens: int, min_tokens: int, options: dict[str, Any]
    ) -> list[list[tuple[list[int], float]]]:
        """Return the tokens of the hypotheses of each row, with log P / length ** penalty."""
        raise NotImplementedError

    def log_share_without(self, token: int, rows: list[Tensor]) -> list[float]:
        """Return log(1 - P) of a token after each row.

        CTranslate2 sets P to 0 and normalizes the other probabilities; `NonEmptyStepper` does not.
        """
        raise NotImplementedError

    def tokens(self, row: Tensor) -> list[str]:
        """Return the names of tokens."""
        return [self.names[token] for token in row.tolist()]


class TranslatorEngine(CTranslate2Engine):
    """An encoder-decoder."""

    def generate(
        self, rows: list[Tensor], max_tokens: int, min_tokens: int, options: dict[str, Any]
    ) -> list[list[tuple[list[int], float]]]:
        results = self.model.translate_batch(
            list(map(self.tokens, rows)),
            max_decoding_length=max_tokens,
            min_decoding_length=min_tokens,
            max_input_length=0,
            max_batch_size=math.ceil(len(rows) / self.model.num_translators),
            **options,
        )
        return [
            [
                ([self.ids[name] for name in names], score)
                for names, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def forward(self, source: Tensor, present: Tensor, target: Tensor, **_: Any) -> Tensor:
        """Return the logits after each target token; no target may contain <end> after its start.

        They are those of a search that is forced to generate the targets.
        """
        results = self.model.translate_batch(
            [self.tokens(row[mask]) for row, mask in zip(source, present, strict=True)],
            [self.tokens(row[1:]) for row in target],
            beam_size=1,
            max_decoding_length=target.shape[1],
            min_decoding_length=0,
            max_input_length=0,
            return_logits_vocab=True,
        )
        logits = [np.stack([np.array(step) for step in result.logits[0]]) for result in results]
        return torch.from_numpy(np.stack(logits)).view(*target.shape, -1)


class GeneratorEngine(CTranslate2Engine):
    """A language model."""

    def generate(
        self, rows: list[Tensor], max_tokens: int, min_tokens: int, options: dict[str, Any]
    ) -> list[list[tuple[list[int], float]]]:
        """Generate for prompts of equal length together.

        In a batch of prompts of different lengths, CTranslate2 feeds the end of the longer ones
        token by token, and its beam search differs.
        """
        pending: list[Any] = [None] * len(rows)
        for length in sorted({len(row) for row in rows}):
            chosen = [index for index, row in enumerate(rows) if len(row) == length]
            results = self.model.generate_batch(
                [self.tokens(rows[index]) for index in chosen],
                max_length=max_tokens,
                min_length=min_tokens,
                include_prompt_in_result=False,
                asynchronous=True,
                max_batch_size=math.ceil(len(chosen) / self.model.num_generators),
                **options,
            )
            for index, result in zip(chosen, results, strict=True):
                pending[index] = result
        finished = [result.result() for result in pending]
        return [list(zip(result.sequences_ids, result.scores, strict=True)) for result in finished]

    def log_share_without(self, token: int, rows: list[Tensor]) -> list[float]:
        lengths = torch.tensor([len(row) for row in rows])
        tokens = pad_sequence(rows, batch_first=True)
        logits = self.forward(tokens)[torch.arange(len(rows)), lengths - 1]
        probability = logits.double().softmax(dim=-1)[:, token]
        shares: list[float] = torch.log1p(-probability).tolist()
        return shares

    def forward(self, tokens: Tensor, *, at: Tensor | None = None, **_: Any) -> Tensor:
        """Return the logits after each token; padding is on the right."""
        import ctranslate2

        ids = np.ascontiguousarray(tokens.numpy().astype(np.int32))
        lengths = np.full(len(ids), ids.shape[1], dtype=np.int32)
        view = ctranslate2.StorageView.from_array
        logits = torch.from_numpy(np.array(self.model.forward_batch(view(ids), view(lengths))))
        return logits if at is None else logits[at]
