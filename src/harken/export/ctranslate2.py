"""Export to CTranslate2, an inference engine for Transformers on CPUs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

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
from harken.models.gpt import GPT
from harken.models.seq2seq import EncoderDecoder
from harken.run import Run

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
        model, vocabulary = run.model, run.vocabulary
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
        spec.validate()
        spec.optimize(quantization=precision)
        spec.save(str(folder))
        write_tokenizer(folder, vocabulary, before=[], after=[], max_length=max_length)

    def load(self, folder: Path, run: Run) -> nn.Module:
        import ctranslate2

        is_gpt = isinstance(run.model, GPT)
        loader = ctranslate2.Generator if is_gpt else ctranslate2.Translator
        model = loader(str(folder), device="cpu", intra_threads=torch.get_num_threads())
        engine = GeneratorEngine if is_gpt else TranslatorEngine
        loaded = engine(model, run.vocabulary.names())
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
        if search.temperature is not None or not (search.early_stopping or beam == 1):
            options = {"search": search, "end": end, "max_tokens": max_tokens, "nbest": nbest}
            return search_steps(stepper, prompts, present, **options, sample_keys=sample_keys)
        rows = [prompt[mask].tolist() for prompt, mask in zip(prompts, present, strict=True)]
        options = {
            "beam_size": beam,
            "num_hypotheses": nbest,
            "length_penalty": search.length_penalty,
            "return_scores": True,
        }
        min_tokens = 1 if isinstance(stepper, NonEmptyStepper) else 0
        return self.generate(rows, max_tokens, min_tokens, options)

    def generate(
        self, rows: list[list[int]], max_tokens: int, min_tokens: int, options: dict[str, Any]
    ) -> Beams:
        raise NotImplementedError

    def tokens(self, row: Sequence[int]) -> list[str]:
        return [self.names[token] for token in row]


class TranslatorEngine(CTranslate2Engine):
    """An encoder-decoder."""

    def generate(
        self, rows: list[list[int]], max_tokens: int, min_tokens: int, options: dict[str, Any]
    ) -> Beams:
        results = self.model.translate_batch(
            list(map(self.tokens, rows)),
            max_decoding_length=max_tokens,
            min_decoding_length=min_tokens,
            max_input_length=0,
            **options,
        )
        penalty = options["length_penalty"]
        return [
            [
                self.hypothesis([self.ids[name] for name in tokens], score, max_tokens, penalty)
                for tokens, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def hypothesis(self, tokens: list[int], score: float, limit: int, penalty: float) -> TokenHypothesis:
        return TokenHypothesis(tokens, score)

    def forward(self, source: Tensor, present: Tensor, target: Tensor, **_: Any) -> Tensor:
        raise NotImplementedError


class GeneratorEngine(CTranslate2Engine):
    """A language model."""

    def generate(
        self, rows: list[list[int]], max_tokens: int, min_tokens: int, options: dict[str, Any]
    ) -> Beams:
        results = self.model.generate_batch(
            list(map(self.tokens, rows)),
            max_length=max_tokens,
            min_length=min_tokens,
            include_prompt_in_result=False,
            **options,
        )
        return [
            [TokenHypothesis(ids, score) for ids, score in zip(result.sequences_ids, result.scores, strict=True)]
            for result in results
        ]

    def forward(self, tokens: Tensor, *, at: Tensor | None = None, **_: Any) -> Tensor:
        """Return the logits after each token."""
        import ctranslate2

        ids = np.ascontiguousarray(tokens.numpy().astype(np.int32))
        lengths = np.full(len(ids), ids.shape[1], dtype=np.int32)
        view = ctranslate2.StorageView.from_array
        logits = torch.from_numpy(np.array(self.model.forward_batch(view(ids), view(lengths))))
        return logits if at is None else logits[at]
