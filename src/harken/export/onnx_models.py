"""The graphs of each kind of model."""

from typing import Any

from torch import Tensor, nn

from harken.export.onnx_generators import fixed_state_graph, gpt_graph, seq2seq_graphs
from harken.export.onnx_graphs import Graph, TensorSpec, mask_spec, token_spec
from harken.export.onnx_prepare import prepared
from harken.layers.frontends import FeatureProjection, ImageSizes
from harken.models.captioner import Captioner
from harken.models.classifier import (
    ImageClassifier,
    SoundClassifier,
    TokenClassifier,
    WordClassifier,
)
from harken.models.cloze import ClozeModel
from harken.models.gpt import GPT
from harken.models.piece_tagger import PieceRows, PieceTagger
from harken.models.recognizer import SpeechRecognizer
from harken.models.recurrent_lm import FixedStateLM
from harken.models.seq2seq import EncoderDecoder
from harken.models.tagger import Tagger

FRAMES = ("batch", "frames")


def model_graphs(model: nn.Module, images: ImageSizes | None = None) -> list[Graph]:
    """Return the graphs of a copy of a model, for images of this size."""
    changed: Any = prepared(model)
    match changed:
        case GPT():
            return [gpt_graph(changed)]
        case FixedStateLM():
            return [fixed_state_graph(changed)]
        case EncoderDecoder():
            embedding = changed.embedding or changed.decoder.embedding
            tokens = token_spec(embedding.num_embeddings)
            return seq2seq_graphs(changed, [tokens, mask_spec("present")])
        case SpeechRecognizer():
            return seq2seq_graphs(changed, frame_specs(changed.features))
        case Captioner():
            return seq2seq_graphs(changed, [image_spec(changed, images)])
        case Tagger() | WordClassifier():
            return [single(changed, word_specs(changed))]
        case PieceTagger():
            return [single(PieceTaggerGraph(changed), piece_specs(changed))]
        case TokenClassifier():
            tokens = token_spec(changed.embedding.num_embeddings)
            return [single(changed, [tokens, mask_spec("present")])]
        case SoundClassifier():
            return [single(changed, frame_specs(changed.features))]
        case ImageClassifier():
            return [single(changed, [image_spec(changed, images)])]
        case ClozeModel():
            tokens = token_spec(changed.embedding.num_embeddings)
            inputs = [tokens, mask_spec("present"), mask_spec("blanks")]
            return [single(ClozeGraph(changed), inputs)]
    raise TypeError(f"no graphs for {type(model).__name__}")


def single(module: nn.Module, inputs: list[TensorSpec]) -> Graph:
    """Return the only graph of a model."""
    return Graph(name="model", module=module, inputs=inputs, outputs=["logits"])


def frame_specs(features: int) -> list[TensorSpec]:
    """Return the specs of log-mel frames and their mask."""
    return [TensorSpec(name="frames", axes=(*FRAMES, features)), mask_spec("present", FRAMES)]


def image_spec(model: Captioner | ImageClassifier, sizes: ImageSizes | None) -> TensorSpec:
    """Return the spec of images, which all have the same size."""
    assert sizes is not None
    axes = (sizes.channels, sizes.rows, sizes.columns)
    if isinstance(model.frontend, FeatureProjection):
        axes = axes[::-1]
    return TensorSpec(name="images", axes=("batch", *axes))


def word_specs(model: Tagger | WordClassifier) -> list[TensorSpec]:
    """Return the specs of words and of their characters."""
    words, spellings = token_spec(model.words.num_embeddings, "words"), ("spellings", "characters")
    forms = token_spec(2, "forms")
    characters = 2 if model.characters is None else model.characters.embedding.num_embeddings
    return [
        words,
        forms,
        token_spec(characters, "spellings", spellings),
        mask_spec("spellings_present", spellings),
        mask_spec("present"),
    ]


def piece_specs(model: PieceTagger) -> list[TensorSpec]:
    """Return the specs of `PieceRows` and of the case patterns."""
    pieces = ("batch", "pieces")
    return [
        token_spec(model.cases.num_embeddings, "words"),
        token_spec(model.encoder.embedding.num_embeddings, "tokens", pieces),
        mask_spec("present", pieces),
        token_spec(2, "first"),
        token_spec(2, "word_of", pieces),
    ]


class PieceTaggerGraph(nn.Module):
    """A tagger over rows of pieces, which `PieceTagger.join_pieces` computes."""

    def __init__(self, model: PieceTagger) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, words: Tensor, tokens: Tensor, present: Tensor, first: Tensor, word_of: Tensor
    ) -> Tensor:
        return self.model.tag_pieces(words, PieceRows(tokens, present, first, word_of))


class ClozeGraph(nn.Module):
    """The logits at each blank, row by row."""

    def __init__(self, model: ClozeModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, present: Tensor, blanks: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens, present, blanks)
        return logits
