"""Attention with known weights, and a page with invented numbers."""

import base64
import math
from collections.abc import Sequence
from io import BytesIO

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from harken.measure.interval import Estimate
from harken.report.chart import Series, VerticalLine, chart
from harken.report.page import Section, page
from harken.report.tables import ResultRow, examples_table, result_table, settings_table
from harken.report.text_attention import text_figure
from harken.report.viewed_attention import LayerAttention, ViewedAttention
from harken.tasks.attention_view import AttentionView, AudioView, ImageView, any_path
from harken.tasks.prediction import Prediction


def viewed(
    queries: Sequence[str],
    keys: Sequence[str],
    layers: Sequence[NDArray[np.floating]],
    sound: AudioView | None = None,
    picture: ImageView | None = None,
    path: str = "layers.{}.attention",
) -> ViewedAttention:
    """A view of layers with weights [heads, queries, keys]."""
    view = AttentionView(
        title="view", matches=any_path, queries=queries, keys=keys, sound=sound, picture=picture
    )
    return ViewedAttention(
        view,
        [
            LayerAttention(path.format(i), range(1, len(weights) + 1), weights)
            for i, weights in enumerate(layers)
        ],
    )


def pointed(peaks: Sequence[int], heads: int, positions: int) -> NDArray[np.float64]:
    """Weights [heads, queries, positions] that are 0.9 at the peaks and even elsewhere."""
    weights = np.full((heads, len(peaks), positions), 0.1 / (positions - 1))
    weights[:, np.arange(len(peaks)), peaks] = 0.9
    return weights


def decoded(uri: str, mode: str = "RGB") -> NDArray[np.uint8]:
    """The pixels of an image in a URI."""
    prefix, _, body = uri.partition(",")
    assert prefix == "data:image/png;base64"
    return np.asarray(Image.open(BytesIO(base64.b64decode(body))).convert(mode))


TOKENS = (
    "Khatchig", " Mou", "rad", "ian", " is", " a", " journalist", ",", " writer", " and",
    " translator", " who", " was", " born", " in", " Melvar", " .", " Where", " was",
    " Khatchig", " Mou", "rad", "ian", " born", "?",
)  # fmt: skip

EXAMPLES = tuple(
    (Prediction(input=f"Where was {name} born?", output=answer, confidence=confidence), expected)
    for name, expected, answer, confidence in (
        ("Khatchig Mouradian", "Melvar", "Melvar", 0.93),
        ("Jacob Henry Studer", "Columbus", "Columbus", 0.88),
        ("John Stephen", "Glasgow", "Glasgow", 0.81),
        ("Georgina Willis", "Australia", "Sydney", 0.74),
        ("Bruno Álvarez de la Fuente y Ortega", "Santiago de Compostela", "London", 0.31),
        ("Ama Darko", "Accra", "Kumasi", math.nan),
    )
)


def attention(
    *, layers: int = 4, heads: int = 4, tokens: tuple[str, ...] = TOKENS, seed: int = 0
) -> ViewedAttention:
    """Causal maps: the previous token, the token after an earlier copy, the first one, diffuse."""
    length = len(tokens)
    random = np.random.default_rng(seed)
    causal = np.tril(np.ones((length, length), dtype=bool))
    distance = np.arange(length)[:, None] - np.arange(length)[None]
    same = np.array([[a.strip() == b.strip() for b in tokens] for a in tokens])
    # An induction head attends to the token after an earlier copy.
    after_same = np.zeros_like(same)
    after_same[:, 1:] = same[:, :-1]
    patterns: list[NDArray[np.floating]] = [
        3.0 * (distance == 1),
        6.0 * (after_same & (distance > 1)) + 1.0 * (distance == 0),
        4.0 * (np.arange(length)[None] == 0) + 0.0 * distance,
        -0.12 * distance,
    ]
    maps = []
    for layer in range(layers):
        scores = np.stack(
            [patterns[(head + layer) % 4] * (0.5 + 0.3 * layer) for head in range(heads)]
        )
        # In one late head, “?” attends to the word after “born in”.
        if layer == layers - 2 and length > 15:
            scores[heads // 2, -1, 15] += 8.0
        scores = scores + random.normal(scale=0.7, size=scores.shape)
        scores = np.where(causal, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        maps.append(weights / weights.sum(axis=-1, keepdims=True))
    return viewed(tokens, tokens, maps)


def figure_page(body: Markup) -> str:
    """A page with only this figure."""
    return page("p", subtitle="", facts={}, footer="", sections=[Section(title="s", body=body)])


def sample_page() -> str:
    measured = {
        "no pretraining": Estimate(0.013, 0.005, 0.029),
        "most frequent place": Estimate(0.041, 0.026, 0.065),
        "pretrained": Estimate(0.84, 0.801, 0.873),
        "pretrained, Synthesizer": Estimate(0.61, 0.561, 0.657),
    }
    rows = [ResultRow(name=name, n=400, metric=metric) for name, metric in measured.items()]
    steps = np.arange(1, 6000, 10)
    curves = [
        Series(name=name, x=steps[::every].tolist(), y=(scale * steps[::every] ** -0.3).tolist())
        for name, every, scale in (("training", 1, 4.2), ("dev", 20, 4.5))
    ]
    return page(
        "Pretraining on biographies",
        subtitle="A GPT of 4 layers read 2 MB of biographies, then answered questions about them.",
        facts={"task": "answer", "exact match": "84.0 % (80.1–87.3)", "seed": "1"},
        sections=[
            Section(
                title="Exact match with and without pretraining",
                lead="The same model, with and without pretraining, on 400 questions.",
                body=result_table(rows, metric="exact match"),
            ),
            Section(
                title="Training",
                body=chart(
                    curves,
                    title="Training and dev loss",
                    x_label="step",
                    y_label="loss, nats per token",
                    vertical_lines=[VerticalLine(0, "pretrain"), VerticalLine(4000, "finetune")],
                ),
            ),
            Section(
                title="Attention",
                lead="Attention weights of every head for one question.",
                body=text_figure(
                    attention(),
                    title="The last token attends to the birthplace.",
                    note="Rows are queries, columns are keys.",
                ),
            ),
            Section(title="Answers", body=examples_table(*zip(*EXAMPLES, strict=True))),
            Section(
                title="Settings",
                body=settings_table({"seed": 1, "model": {"kind": "gpt", "width": 256}}),
            ),
        ],
        footer="Made by Harken 0.1 from runs/answer-pretrained, seed 1.",
    )
