"""Incompatible choices are refused with the reason, and the docs have the same table."""

import re
from pathlib import Path
from typing import get_args

import pytest

from choices import EVERY_POSITION, EVERY_SCORE, name
from harken.attention.compatibility import COMPATIBLE, compatibility_table, conflict
from harken.attention.multihead import MultiHeadConfig
from harken.attention.positions import (
    FourierConfig,
    LearnedConfig,
    PositionConfig,
    SinusoidConfig,
)
from harken.attention.relative import RotaryConfig
from harken.attention.scores import MergedConfig, ScoreConfig
from harken.models.gpt import GPTConfig

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
HEADING = "Supported pairs:\n\n"


def as_markdown(table: list[list[str]]) -> str:
    """Return a table with `no (1)` at incompatible pairs, and the reasons below it."""
    header, *rows = table
    reasons: list[str] = []
    lines = [header, ["---"] * len(header)]
    for row in rows:
        cells = row[:1]
        for cell in row[1:]:
            if cell != COMPATIBLE and cell not in reasons:
                reasons.append(cell)
            cells.append(cell if cell == COMPATIBLE else f"no ({reasons.index(cell) + 1})")
        lines.append(cells)
    drawn = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    notes = "".join(f"\n({number}) {reason}.\n" for number, reason in enumerate(reasons, start=1))
    return drawn + notes


def test_the_table_has_every_member() -> None:
    header, *rows = compatibility_table()
    assert header == ["score", *(kind().kind for kind in get_args(PositionConfig))]
    assert [row[0] for row in rows] == [kind().kind for kind in get_args(ScoreConfig)]


def test_the_docs_have_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    after = page.split(HEADING)
    assert len(after) == 2
    assert after[1].startswith(as_markdown(compatibility_table()))


def test_forms_of_a_kind_have_the_same_conflicts() -> None:
    """The table lists kinds only."""
    reasons: dict[tuple[str, str], set[str | None]] = {}
    for score in EVERY_SCORE:
        for position in EVERY_POSITION:
            pair = score.kind, position.kind
            reasons.setdefault(pair, set()).add(conflict(score, position))
    assert all(len(found) == 1 for found in reasons.values())
    refused = {pair for pair, found in reasons.items() if found != {None}}
    assert refused == {
        ("synthesizer", "rotary"),
        ("additive", "rotary"),
        ("transformer_xl", "rotary"),
    }


def gpt(score: ScoreConfig, position: PositionConfig) -> GPTConfig:
    concat = getattr(position, "combine", "add") == "concat"
    return GPTConfig(
        width=12,
        attention=MultiHeadConfig(heads=3, score=score),
        position=position,
        tie_embeddings=not concat,
    )


@pytest.mark.parametrize("position", EVERY_POSITION, ids=name)
@pytest.mark.parametrize("score", EVERY_SCORE, ids=name)
def test_models_accept_compatible_pairs_only(score: ScoreConfig, position: PositionConfig) -> None:
    reason = conflict(score, position)
    if reason is None:
        assert gpt(score, position).position == position
        return
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}; choose another"):
        gpt(score, position)


@pytest.mark.parametrize("kind", [LearnedConfig, SinusoidConfig, FourierConfig])
def test_concat_cannot_be_tied(kind: type[LearnedConfig | SinusoidConfig | FourierConfig]) -> None:
    with pytest.raises(ValueError, match=r"doubles the width.*set tie_embeddings = false"):
        GPTConfig(position=kind(combine="concat"))
    model = GPTConfig(
        layers=1,
        width=6,
        max_length=8,
        attention=MultiHeadConfig(heads=4),  # 12 divides, 6 does not
        position=kind(combine="concat"),
        tie_embeddings=False,
    ).build(19, seed=0)
    assert model.lm_head.weight.shape == (19, 12)
    assert model.embedding.weight.shape == (19, 6)
    assert model.stack.blocks[0].attention.out_proj.weight.shape == (12, 12)


MERGED = MergedConfig()
SPAN = {"max_length": 128, "position": FourierConfig(span=127)}


@pytest.mark.parametrize(
    ("attention", "model", "message"),
    [
        ({"heads": 4, "head_width": 5, "out_proj": False}, {"width": 12}, "give 20, but .* 12"),
        ({"heads": 4, "out_proj": False, "v_proj": False}, {"width": 12}, "give 48, but .* 12"),
        ({"heads": 4, "out_proj": False}, {"width": 12}, None),
        ({"heads": 1, "out_proj": False, "v_proj": False}, {"width": 12}, None),
        *(
            ({"heads": 5, "kv_heads": count}, {}, rf"multiple of kv_heads \({count}\), got 5")
            for count in (2, 3, 7, 10)
        ),
        ({"heads": 5, "kv_heads": 1}, {"width": 20}, None),
        ({"score": MERGED, "key_width": 4}, {}, "compares unprojected tokens; leave out key_width"),
        (
            {"heads": 5, "score": MERGED},
            {"width": 15, "position": RotaryConfig()},
            r"got 15\); make width even",
        ),
        (
            {"heads": 5},
            {"width": 15, "position": RotaryConfig()},
            r"got 3\); make attention\.key_w",
        ),
        ({"heads": 4, "key_width": 3, "v_proj": False}, {"width": 11}, None),
        ({"heads": 4, "score": MERGED, "v_proj": False}, {"width": 11}, None),
        ({"heads": 4, "score": MERGED, "head_width": 3}, {"width": 11}, None),
        ({"heads": 4, "key_width": 3, "head_width": 2}, {"width": 11}, None),
        *(
            ({"heads": 4} | sizes, {"width": 11}, "width 11 does not divide into 4 heads")
            for sizes in ({"v_proj": False}, {"score": MERGED}, {"key_width": 3}, {"head_width": 3})
        ),
        ({}, SPAN, r"span 127 is shorter than the model's length 128"),
        ({}, SPAN | {"max_length": 127}, None),
    ],
)
def test_sizes_must_fit(attention: dict, model: dict, message: str | None) -> None:
    if message is None:
        GPTConfig(attention=MultiHeadConfig(**attention), **model)
        return
    with pytest.raises(ValueError, match=message):
        GPTConfig(attention=MultiHeadConfig(**attention), **model)


def test_head_widths() -> None:
    assert MultiHeadConfig(heads=3).head_widths(15) == (5, 5)
    assert MultiHeadConfig(heads=3, head_width=7).head_widths(15) == (7, 5)
    assert MultiHeadConfig(heads=3, key_width=2).head_widths(15) == (5, 2)
    assert MultiHeadConfig(heads=3, score=MERGED).head_widths(15) == (5, 15)
