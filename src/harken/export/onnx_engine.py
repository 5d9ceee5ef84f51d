"""Compute with ONNX graphs instead of the layers of a model.

The functions replace methods of the model (`replace_methods`), so that predictors, the search and
`parity.py` use the graphs without changes. The logits are an output of the graphs, so `logits`
returns its argument.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnxruntime
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from harken.export.format import M, replace_methods
from harken.export.onnx_graphs import NEXT, Axes
from harken.models.cloze import ClozeModel
from harken.models.inputs import select_rows
from harken.models.piece_tagger import PieceTagger
from harken.models.recognizer import RecognizerOutput, SpeechRecognizer
from harken.models.seq2seq import EncoderDecoder, EncoderOutput, Seq2Seq

ERRORS_ONLY = 3  # log level of ONNX Runtime


class Session:
    """An ONNX graph: tensors by name -> tensors by name."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = ERRORS_ONLY
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(path, options, providers=providers)
        self.inputs: dict[str, Axes] = {
            node.name: tuple(node.shape) for node in self._session.get_inputs()
        }
        self.outputs: dict[str, Axes] = {
            node.name: tuple(node.shape) for node in self._session.get_outputs()
        }
        self.state = [name for name in self.inputs if NEXT + name in self.outputs]

    def __call__(self, **tensors: Tensor) -> dict[str, Tensor]:
        feed = {name: tensors[name].detach().cpu().numpy() for name in self.inputs}
        return dict(
            zip(self.outputs, map(torch.from_numpy, self._session.run(None, feed)), strict=True)
        )

    def next_state(self, outputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return tuple(outputs[NEXT + name] for name in self.state)


def load_sessions(folder: Path) -> dict[str, Session]:
    """Return the graphs of an export by name."""
    return {path.stem: Session(path) for path in sorted(folder.glob("*.onnx"))}


def with_sessions(model: M, sessions: Mapping[str, Session]) -> M:
    """Return a copy of a model that computes with graphs."""
    if isinstance(model, Seq2Seq):
        return Seq2SeqEngine(model, sessions).replace(model)
    if "decoder" in sessions:
        return LanguageModelEngine(sessions["decoder"]).replace(model)
    session, original = sessions["model"], model

    def cloze_logits(tokens: Tensor, present: Tensor, blanks: Tensor) -> Tensor:
        return session(tokens=tokens, present=present, blanks=blanks)["logits"]

    def piece_logits(words: Tensor, *pieces: Tensor) -> Tensor:
        assert isinstance(original, PieceTagger)
        return session(words=words, **original.join_pieces(*pieces)._asdict())["logits"]

    def logits(*tensors: Tensor) -> Tensor:
        return session(**dict(zip(session.inputs, tensors, strict=True)))["logits"]

    if isinstance(model, ClozeModel):
        return replace_methods(
            model, forward=cloze_logits, states=cloze_logits, logits=return_logits
        )
    return replace_methods(
        model, forward=piece_logits if isinstance(model, PieceTagger) else logits
    )


def return_logits(logits: Tensor) -> Tensor:
    """Return the argument, since graphs compute logits."""
    return logits


class LanguageModelEngine:
    """The methods of a language model."""

    def __init__(self, decoder: Session) -> None:
        self.decoder = decoder

    def replace(self, model: M) -> M:
        return replace_methods(
            model,
            forward=self.forward,
            init_state=self.init_state,
            step=self.step,
            logits=return_logits,
        )

    def init_state(self, batch: int, device: torch.device) -> tuple[Tensor, ...]:
        return tuple(self._first(name, batch) for name in self.decoder.state)

    def step(
        self, tokens: Tensor, present: Tensor | None, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        if present is None:
            present = torch.ones_like(tokens, dtype=torch.bool)
        inputs = dict(zip(self.decoder.state, state, strict=True))
        outputs = self.decoder(tokens=tokens, present=present, **inputs)
        return outputs["logits"], self.decoder.next_state(outputs)

    def forward(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        assert positions is None and documents is None, "graphs read one text per row"
        logits, _ = self.step(tokens, None, self.init_state(tokens.shape[0], tokens.device))
        return logits if at is None else logits[at]

    def _first(self, name: str, batch: int) -> Tensor:
        sizes = [
            {"batch": batch, "past": 0}[axis] if isinstance(axis, str) else axis
            for axis in self.decoder.inputs[name]
        ]
        return torch.zeros(sizes, dtype=torch.bool if name == "past_present" else torch.float32)


class Seq2SeqState(NamedTuple):
    """The memory, which does not change, and the state of the decoder."""

    memory: tuple[Tensor, ...]
    present: Bool[Tensor, "B M"]
    past: tuple[Tensor, ...]


class Seq2SeqEngine:
    """The methods of an encoder-decoder, a captioner or a recognizer."""

    def __init__(self, model: Seq2Seq, sessions: Mapping[str, Session]) -> None:
        self.is_text = isinstance(model, EncoderDecoder)
        self.is_speech = isinstance(model, SpeechRecognizer)
        self.encoder = sessions["encoder" if "decoder" in sessions else "model"]
        self.decoder = sessions.get("decoder")
        inputs = {} if self.decoder is None else self.decoder.inputs
        state = [] if self.decoder is None else self.decoder.state
        given = {"tokens", "memory_present", *state}
        self.memory = [name for name in inputs if name not in given]
        self.packing = Packing(
            {
                name: inputs.get(name, ("batch", "memory", *axes[2:]))
                for name, axes in self.encoder.outputs.items()
                if name != "memory_present"
            }
        )

    def replace(self, model: M) -> M:
        methods: dict[str, Any] = {
            "forward": self.forward,
            "init_state": self.init_state,
            "step": self.step,
            "logits": return_logits,
            "reorder": self.reorder,
        }
        if not self.is_text:
            methods |= {"encode": self.encode}
        if self.is_speech:
            methods |= {"ctc_log_probs": self.ctc_log_probs}
        return replace_methods(model, **methods)

    def encode(self, *inputs: Tensor) -> EncoderOutput:
        """Return all outputs of the encoder as one tensor, and the mask of the memory."""
        outputs = self._encode(*inputs)
        present = outputs["memory_present"]
        return EncoderOutput(self.packing.pack(outputs, present.shape[1]), present)

    def ctc_log_probs(self, memory: Float[Tensor, "B M H"]) -> Float[Tensor, "B M V"]:
        return self.packing.unpack(memory)["ctc_logits"].log_softmax(dim=-1)

    def init_state(self, source: Tensor, present: Tensor) -> Seq2SeqState:
        if self.is_text:
            return self._state(self._encode(source, present))
        return self._state({**self.packing.unpack(source), "memory_present": present})

    def step(
        self, tokens: Tensor, present: Tensor | None, state: Seq2SeqState
    ) -> tuple[Tensor, Seq2SeqState]:
        assert self.decoder is not None
        memory = dict(zip(self.memory, state.memory, strict=True))
        one_token = self.decoder.inputs["tokens"][1] == 1
        parts, past = [], state.past
        size = 1 if one_token else max(1, tokens.shape[1])
        for part in torch.split(tokens, size, dim=1):
            outputs = self.decoder(
                tokens=part,
                memory_present=state.present,
                **memory,
                **dict(zip(self.decoder.state, past, strict=True)),
            )
            past = self.decoder.next_state(outputs)
            parts.append(outputs["logits"])
        return torch.cat(parts, dim=1), state._replace(past=past)

    def reorder(
        self, state: Seq2SeqState, rows: Tensor, *, beam: int, same_prompts: bool
    ) -> Seq2SeqState:
        if not same_prompts or len(rows) != len(state.present):
            selected: Seq2SeqState = select_rows(state, rows)
            return selected
        return state._replace(past=select_rows(state.past, rows))

    def forward(self, *arguments: Tensor, at: Tensor | None = None) -> Any:
        """Return the logits for a given target, the last argument (teacher forcing)."""
        *inputs, target = arguments
        encoded, logits = self._encode(*inputs), None
        if self.decoder is not None:
            logits = self.step(target, None, self._state(encoded))[0]
            logits = logits if at is None else logits[at]
        if not self.is_speech:
            return logits
        return RecognizerOutput(encoded.get("ctc_logits"), encoded["memory_present"], logits)

    def _encode(self, *inputs: Tensor) -> dict[str, Tensor]:
        return self.encoder(**dict(zip(self.encoder.inputs, inputs, strict=True)))

    def _state(self, encoded: Mapping[str, Tensor]) -> Seq2SeqState:
        assert self.decoder is not None
        batch = encoded["memory_present"].shape[0]
        return Seq2SeqState(
            memory=tuple(encoded[name] for name in self.memory),
            present=encoded["memory_present"],
            past=tuple(
                encoded[name] if name in encoded else self._empty(name, batch)
                for name in self.decoder.state
            ),
        )

    def _empty(self, name: str, batch: int) -> Tensor:
        """Return keys or values of no tokens."""
        assert self.decoder is not None
        _, heads, _, width = self.decoder.inputs[name]
        return torch.zeros(batch, int(heads), 0, int(width))


class Packing:
    """Join tensors with these axes to one, B M features, and separate them again.

    `encode` and `init_state` are two methods of a model, but one graph. So what the graph computes
    for `init_state` is passed on as the memory.
    """

    def __init__(self, axes: Mapping[str, Sequence[str | int]]) -> None:
        self.axes = axes

    def pack(self, tensors: Mapping[str, Tensor], length: int) -> Float[Tensor, "B M H"]:
        parts = []
        for name, axes in self.axes.items():
            if "memory" in axes:
                tensor = tensors[name].movedim(axes.index("memory"), 1)
                parts.append(tensor.reshape(*tensor.shape[:2], -1))
            else:
                parts.append(tensors[name].flatten(1)[:, None].expand(-1, length, -1))
        return torch.cat(parts, dim=-1)

    def unpack(self, packed: Float[Tensor, "B M H"]) -> dict[str, Tensor]:
        sizes = {
            name: [axis for axis in axes if isinstance(axis, int)]
            for name, axes in self.axes.items()
        }
        widths = [math.prod(size) for size in sizes.values()]
        tensors = {}
        for (name, axes), part in zip(
            self.axes.items(), torch.split(packed, widths, dim=-1), strict=True
        ):
            if "memory" in axes:
                tensor = part.reshape(*part.shape[:2], *sizes[name])
                tensors[name] = tensor.movedim(1, axes.index("memory"))
            else:
                tensors[name] = part[:, 0].reshape(part.shape[0], *sizes[name])
        return tensors
