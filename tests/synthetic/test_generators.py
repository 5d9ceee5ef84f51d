"""Properties that all generators of synthetic data share."""

import pickle
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harken.errors import UserError
from harken.formats.split import SPLITS, Split
from harken.synthetic import people, scenes, sentences, speech
from harken.synthetic.joined import JoinedConfig
from harken.synthetic.lexicon import MAX_STEMS
from harken.synthetic.people import NAMES, PeopleConfig
from harken.synthetic.phrasings import PLACE_STEMS
from harken.synthetic.scenes import ScenesConfig
from harken.synthetic.sentences import SentencesConfig
from harken.synthetic.speech import MAX_WORDS, SpeechConfig
from small_files import contents


class Generator(NamedTuple):
    """A module, the names of its functions for one item and for all, its config and size."""

    module: Any
    item: str
    write: str
    config: Any
    size: str

    def __call__(self, folder: Path, items: int, seed: int = 0) -> None:
        getattr(self.module, self.write)(self.config(**{self.size: items}, seed=seed), folder)


GENERATORS = {
    "people": Generator(people, "draw_person", "write_people", PeopleConfig, "people"),
    "sentences": Generator(sentences, "sentence", "write_sentences", SentencesConfig, "sentences"),
    "scenes": Generator(scenes, "draw_scene", "write_scenes", ScenesConfig, "scenes"),
    "speech": Generator(speech, "draw_utterance", "write_speech", SpeechConfig, "utterances"),
}


@pytest.fixture(params=GENERATORS)
def write(request: pytest.FixtureRequest) -> Generator:
    return GENERATORS[request.param]


def test_a_seed_determines_all_bytes_and_old_files_are_replaced(
    write: Generator, tmp_path: Path
) -> None:
    write(tmp_path / "new" / "folder", 11)
    first = contents(tmp_path / "new" / "folder")
    write(tmp_path / "used", 110, seed=1)
    other = contents(tmp_path / "used")
    write(tmp_path / "used", 11)
    assert contents(tmp_path / "used") == first
    assert not set(first.values()) & set(other.values())


def test_an_interrupted_write_changes_nothing(
    write: Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "used", 7)
    before, original = contents(tmp_path / "used"), getattr(write.module, write.item)
    for folder in ("used", "fresh"):
        calls = count()

        def interrupted(*arguments: Any, calls: Any = calls) -> Any:
            if next(calls) == 9:
                raise KeyboardInterrupt
            return original(*arguments)

        monkeypatch.setattr(write.module, write.item, interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / folder, 11, seed=5)
    assert contents(tmp_path / "used") == before
    assert not [*(tmp_path / "fresh").iterdir()]


def test_a_folder_that_cannot_be_written_is_an_error(write: Generator, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written"):
        write(tmp_path / "file" / "folder", 3)


def draw(name: str, seed: int, split: Split, index: int, count: int = 3) -> Any:
    generator = GENERATORS[name]
    config = generator.config(seed=seed, **{generator.size: count})
    return getattr(generator.module, generator.item)(config, split, index)


@pytest.mark.parametrize("name", ["sentences", "scenes", "speech"])
@given(
    seed=st.integers(-(2**63), 2**63), split=st.sampled_from(SPLITS), index=st.integers(0, 10**6)
)
@settings(max_examples=10)
def test_an_item_does_not_depend_on_the_others(
    name: str, seed: int, split: Split, index: int
) -> None:
    item = draw(name, seed, split, index)
    draw(name, seed, split, index + 1, count=10**5)
    np.testing.assert_equal(draw(name, seed, split, index, count=10**5), item)


@pytest.mark.parametrize("name", ["sentences", "scenes", "speech"])
def test_seeds_parts_and_indices_draw_different_items(name: str) -> None:
    keys = product(range(3), SPLITS, range(5))
    items = {pickle.dumps(draw(name, *key)[-1]) for key in keys}  # without file names
    assert len(items) == 45


NAN = float("nan")


@pytest.mark.parametrize(
    ("config", "changed", "message"),
    [
        (PeopleConfig, {"people": 1}, f"people must be from 2 to {NAMES}, got 1"),
        (PeopleConfig, {"people": NAMES + 1}, "people must be .*got"),
        (PeopleConfig, {"train_share": 0.0}, "train_share must be .*got 0.0"),
        (PeopleConfig, {"train_share": 1.0}, "train_share must be .*got 1.0"),
        (PeopleConfig, {"train_share": NAN}, "train_share must be .*got nan"),
        (PeopleConfig, {"places": 1}, "places must be .*got 1"),
        (PeopleConfig, {"places": len(PLACE_STEMS) + 1}, "places must be .*got"),
        (PeopleConfig, {"facts": 0}, "facts must be from 1 to 6, got 0"),
        (PeopleConfig, {"facts": 7}, "facts must be .*got 7"),
        (PeopleConfig, {"biographies": 0}, "biographies must be at least 1, got 0"),
        (PeopleConfig, {"earlier": -1}, "earlier must be .*got -1"),
        (PeopleConfig, {"earlier": 6}, "earlier must be from 0 to 5, got 6"),
        (SentencesConfig, {"sentences": 2}, "sentences must be at least 3, got 2"),
        (SentencesConfig, {"words": 9}, "words must be .*got 9"),
        (SentencesConfig, {"words": MAX_STEMS + 1}, "words must be .*got"),
        (ScenesConfig, {"scenes": 2}, "scenes must be from 3 to 100000, got 2"),
        (ScenesConfig, {"scenes": 100_001}, "scenes must be .*got 100001"),
        (ScenesConfig, {"size": 31}, "size must be from 32 to 512, got 31"),
        (ScenesConfig, {"size": 513}, "size must be .*got 513"),
        (
            ScenesConfig,
            {"min_shapes": 0},
            "expected 1 <= min_shapes <= max_shapes <= 4, got 0 and 3",
        ),
        (ScenesConfig, {"min_shapes": 3, "max_shapes": 2}, "got 3 and 2"),
        (ScenesConfig, {"max_shapes": 5}, "max_shapes <= 4, got 1 and 5"),
        (ScenesConfig, {"noise": -1.0}, "noise must be from 0 to 64, got -1.0"),
        (ScenesConfig, {"noise": NAN}, "noise must be .*got nan"),
        (SpeechConfig, {"utterances": 2}, "utterances must be from 3 to 100000, got 2"),
        (SpeechConfig, {"min_words": 0}, "expected 1 <= min_words .*got 0 and 5"),
        (SpeechConfig, {"min_words": 4, "max_words": 3}, "got 4 and 3"),
        (SpeechConfig, {"max_words": MAX_WORDS + 1}, f"max_words <= {MAX_WORDS}, got"),
        (SpeechConfig, {"words": ("one", "uno")}, "words must be some of zero, .*got uno"),
        (SpeechConfig, {"words": ()}, "words must be .*got none"),
        (SpeechConfig, {"speakers": 2}, "speakers must be .*got 2"),
        (SpeechConfig, {"sample_rate": 3999}, "sample_rate must be from 4000 to 48000, got 3999"),
        (SpeechConfig, {"snr": -1.0}, "snr must be .*got -1.0"),
        (SpeechConfig, {"snr": NAN}, "snr must be .*got nan"),
        (JoinedConfig, {"sentences": 2}, "sentences must be from 3 to 100000, got 2"),
        (JoinedConfig, {"min_words": 8}, "expected 1 <= min_words.*got 8 and 7"),
        (JoinedConfig, {"max_words": 101}, "max_words <= 100, got 3 and 101"),
        (
            JoinedConfig,
            {"dev_speakers": ()},
            r"dev_speakers must be names or a fraction .*got \(\)",
        ),
        (JoinedConfig, {"test_speakers": 1.0}, "test_speakers must be .*got 1.0"),
        (JoinedConfig, {"sample_rate": 100}, "sample_rate must be .*got 100"),
    ],
)
def test_impossible_configs_are_rejected(
    config: type, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        config(**changed)
