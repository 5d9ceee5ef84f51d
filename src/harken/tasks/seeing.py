"""Pictures through a captioner: numbers -> memory -> texts and where each word looked.

What is learnt and measured is in `caption.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from harken.decode.found import Found
from harken.decode.sampling import SampleKey
from harken.decode.search import SearchConfig
from harken.decode.seek import seek
from harken.decode.step import WritingSteps
from harken.encode.pixels import MapsConfig, PixelsConfig
from harken.encode.vocabulary import END, Vocabulary
from harken.formats.images.gallery import Gallery, Numbers
from harken.inspection.forced import forced_cross_attention
from harken.inspection.refs import is_cross_attention, is_encoder_attention
from harken.measure.boxes import Centres, Looks, grid_centres
from harken.models.captioner import Captioner
from harken.tasks.looking import output_title, reading, writing
from harken.tasks.task import AttentionExample, AttentionView, ImageView

TOGETHER = 64  # pictures in one batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewer:
    """A trained captioner with what stands before and behind it."""

    model: Captioner
    vocabulary: Vocabulary
    pictures: PixelsConfig | MapsConfig
    search: SearchConfig

    def captions(self, gallery: Gallery, nbest: int = 1) -> list[list[Found]]:
        """The best captions of each picture of a set."""
        found: list[list[Found]] = []
        for start in range(0, len(gallery), TOGETHER):
            some = range(start, min(start + TOGETHER, len(gallery)))
            found += self.caption(gallery.take(some), nbest, [(index,) for index in some])
        return found

    @torch.inference_mode()
    def caption(
        self, pictures: Numbers, nbest: int = 1, keys: Sequence[SampleKey] | None = None
    ) -> list[list[Found]]:
        """The best captions of each picture, searched in one batch."""
        model = self.model.eval()
        return seek(
            WritingSteps(model, END),
            *model.look(self.encoded(pictures)),
            search=self.search,
            end=END,
            most=min(self.search.most or model.longest_output, model.longest_output),
            nbest=nbest,
            keys=keys,
        )

    def looks(self, gallery: Gallery, said: Sequence[Sequence[int]]) -> list[Looks]:
        """Where each word of these captions looked: the mean of the last layer's heads."""
        model, centres, looks = self.model.eval(), self.centres, []
        for start in range(0, len(gallery), TOGETHER):
            texts = said[start : start + TOGETHER]
            with torch.inference_mode():
                seen = model.look(self.encoded(gallery.take(range(start, start + len(texts)))))
            for text, weights in zip(
                texts, forced_cross_attention(model, *seen, texts, END), strict=True
            ):
                words = np.array(self.vocabulary.word_numbers(text), dtype=np.int64)
                mean = weights.mean(dim=0).cpu().numpy().astype(np.float64)
                looks.append(Looks(weights=mean, words=words, centres=centres))
        return looks

    @property
    def centres(self) -> Centres:
        """Of the places that are looked at, in pixels."""
        front = self.model.front
        return grid_centres(front.columns, front.rows, front.stride, front.offset)

    def glimpse(self, picture: Numbers, name: str) -> AttentionExample:
        """What the decoder looks at as it writes about one picture, or decides to write nothing."""
        ((found,),) = self.caption(picture)
        tokens = found.tokens or [END]
        seen, front = self.encoded(picture), self.model.front
        told = [END, *tokens[:-1]]
        inputs = torch.tensor([told], device=seen.device)
        decided, before = (
            [word.strip() for word in self.vocabulary.pieces(one)] for one in (tokens, told)
        )
        numbers = range(front.columns * front.rows)
        places = [f"{at % front.columns}, {at // front.columns}" for at in numbers]
        return AttentionExample(
            title=f"{name}: {output_title(self.vocabulary.decode([found.tokens])[0])}",
            run=lambda: self.model.states(seen, inputs),
            views=[
                AttentionView(
                    title="Words written, looking at the picture",
                    matches=is_cross_attention,
                    queries=decided,
                    keys=places,
                    picture=ImageView(
                        image=picture[0] if isinstance(self.pictures, PixelsConfig) else None,
                        columns=front.columns,
                        rows=front.rows,
                        offset=float(front.offset),
                        stride=float(front.stride),
                    ),
                ),
                reading("Places x, y of the picture", places, is_encoder_attention),
                writing("Words", decided, before),
            ],
        )

    def encoded(self, pictures: Numbers) -> Float[Tensor, "B first second third"]:
        """As the model reads them, where it is."""
        return self.pictures.encode(pictures).to(next(self.model.parameters()).device)
