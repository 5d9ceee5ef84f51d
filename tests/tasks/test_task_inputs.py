"""Inputs of all tasks: samples, blank inputs, inputs that are too long."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harken import config
from harken.decode.search import SearchConfig
from harken.encode.vocabulary import END
from harken.errors import UserError
from harken.formats.examples import Pair
from harken.recipe import TASKS, recipe_type
from harken.run import Run
from harken.synthetic.scenes import ScenesConfig, write_scenes
from harken.synthetic.speech import SpeechConfig, write_speech
from untrained import initial_run

LINES = [f"the {color} {animal} sees a river ." for color in ["red", "blue"] for animal in "abc"]
TAGGED = "".join(f"{line.split()[1]}\tADJ\n{line.split()[2]}\tNOUN\n\n" for line in LINES)
CHARACTERS = "encode.kind=characters"
GPT = ("model.layers=1", "model.width=12", "model.attention.heads=2")
ENCODER = "model.encoder={kind='transformer',layers=1,max_length=20,attention={heads=2}}"
DECODER = (
    "model.decoder={kind='transformer',layers=1,width=12,max_length=21,attention={heads=2},"
    "position={kind='learned'}}"
)
SPOKEN = (
    "encode.filterbank.sample_rate=8000",
    "encode.filterbank.mel_bins=23",
    "model.width=12",
    "model.frontend.channels=3",
    ENCODER,
)
RECIPES = {
    "answer": ("task=answer", CHARACTERS, *GPT, "model.max_length=32"),
    "tag": ("task=tag", ENCODER, "model.encoder.max_length=7"),
    "fill": ("task=fill", "model={kind='masked',encoder={layers=1,max_length=7}}"),
    "fill, rnn": ("task=fill", "model={width=16,cell={hidden=16}}"),
    "lm": ("task=lm", CHARACTERS, *GPT, "model.max_length=32", "search.max_tokens=9"),
    "translate": ("task=translate", CHARACTERS, ENCODER, DECODER),
    "translate, rnn": (
        "task=translate",
        CHARACTERS,
        "model.encoder={kind='gru',direction='both',hidden=6}",
        "model.decoder={kind='rnn',width=12,hidden=12}",
        "search.max_tokens=21",
    ),
    "caption": (
        "task=caption",
        "model.width=12",
        "encode.images={columns=32,rows=32}",
        "model.frontend={kind='patch',patch=8}",
        DECODER,
    ),
    "transcribe": ("task=transcribe", *SPOKEN, DECODER, "model.ctc=false"),
    "transcribe, ctc": ("task=transcribe", *SPOKEN),
}
SAMPLING = ["answer", "lm", "translate", "translate, rnn", "caption", "transcribe"]
OF_TEXT = ["answer", "tag", "lm", "translate", "translate, rnn"]
Build = Callable[..., Run]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few examples for every task."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "lines.txt").write_text("\n".join(LINES))
    (folder / "train.conllu").write_text(TAGGED)
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in LINES))
    write_scenes(ScenesConfig(scenes=30, size=32, min_shapes=1, max_shapes=1), folder / "drawn")
    write_speech(
        SpeechConfig(utterances=20, min_words=1, max_words=1, speakers=4), folder / "spoken"
    )
    return folder


@pytest.fixture(scope="module")
def untrained(corpus: Path) -> Build:
    """A model of each task with large random weights, so that outputs differ."""
    data = {
        "answer": f"{{pretrain='{corpus}/lines.txt',train='{corpus}/pairs.tsv',dev=0.3}}",
        "tag": f"{{train='{corpus}/train.conllu',dev=0.3}}",
        "fill": f"{{train='{corpus}/lines.txt',dev=0.3}}",
        "lm": f"{{train='{corpus}/lines.txt',dev=0.3}}",
        "translate": f"{{train='{corpus}/pairs.tsv',dev=0.3}}",
        "caption": f"{{train='{corpus}/drawn/train.jsonl',dev=0.3}}",
        "transcribe": f"{{train='{corpus}/spoken/train.jsonl',dev=0.3}}",
    }

    def build(name: str, search: SearchConfig | None = None) -> Run:
        task, *sets = RECIPES[name]
        table = f"data={data[task.removeprefix('task=')]}"
        recipe: Any = config.loads(recipe_type(), "", base=corpus, overrides=[task, table, *sets])
        if search is not None:
            changes = {name: getattr(search, name) for name in ("temperature", "beam", "seed")}
            limit = search.max_tokens or recipe.search.max_tokens
            recipe = replace(recipe, search=replace(recipe.search, **changes, max_tokens=limit))
        return initial_run(recipe, std=0.3, all_weights=False)

    return build


def example_inputs(name: str, corpus: Path) -> list[str]:
    """Inputs of different lengths, some of them too long for the model."""
    if name.startswith("transcribe"):
        return sorted(str(path) for path in (corpus / "spoken").rglob("*.wav"))[:5]
    if name == "caption":
        return [f"{corpus}/drawn/train.npz#{row}" for row in range(5)]
    if name.startswith("fill"):
        return ["___ sees a river .", "the ___ a ___ (river", "__", "the blue ___ ."]
    return [*LINES[:3], "river", " ".join(LINES)]


@pytest.mark.parametrize("name", SAMPLING)
def test_a_sample_depends_on_the_seed_and_the_index(
    name: str, untrained: Build, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("translate", "caption_data", "transcribe_predictor"):
        monkeypatch.setattr(f"harken.tasks.{module}.BATCH_SIZE", 3)
    for task in ("answer", "lm"):
        monkeypatch.setattr(TASKS[task].predictor_type, "batch_size", 3)
    trained = untrained(name, SearchConfig(temperature=1.5, seed=4))
    first, *others = example_inputs(name, corpus)
    repeated = trained.predict([first] * 8)
    distinct = {f"{prediction.confidence:.3e}" for prediction in repeated}
    assert len(distinct) == 8, "samples of one input repeat each other"
    mixed = [first, *others, first, first]
    whole = trained.predict(mixed)
    outputs = [prediction.output for prediction in whole]
    assert [outputs[at] for at in (0, 5, 6)] == [repeated[at].output for at in (0, 5, 6)]
    chosen = [6, 2, 4, 0]
    some = trained.predict([mixed[at] for at in chosen], indices=chosen)
    assert [prediction.output for prediction in some] == [outputs[at] for at in chosen]
    other = untrained(name, SearchConfig(temperature=1.5, seed=5))
    assert other.predict(mixed)[0].confidence != whole[0].confidence


@pytest.mark.parametrize("name", RECIPES)
def test_a_prediction_does_not_depend_on_its_batch(
    name: str, untrained: Build, corpus: Path
) -> None:
    trained = untrained(name, SearchConfig() if name == "lm" else None)
    inputs = example_inputs(name, corpus)
    predictions = trained.predict(inputs)
    assert [prediction.input for prediction in predictions] == inputs
    for prediction in predictions:
        (alone,) = trained.predict([prediction.input])
        assert prediction.output == alone.output
        assert prediction.confidence == pytest.approx(alone.confidence, rel=1e-3)
    assert trained.predict([]) == []


@pytest.mark.parametrize("name", SAMPLING)
@pytest.mark.parametrize(
    ("in_file", "overrides", "expected"),
    [
        ("beam = 4", (), (4, None)),
        ("beam = 1", (), (1, None)),
        ("temperature = 0.5", (), (1, 0.5)),
        ("temperature = 0.5", ("search.beam=3",), (3, None)),
        ("beam = 4", ("search.temperature=0.7",), (1, 0.7)),
        ("", ("search.beam=3",), (3, None)),
    ],
)
def test_a_recipe_sets_a_beam_or_a_temperature(
    name: str,
    in_file: str,
    overrides: tuple[str, ...],
    expected: tuple[int, float | None],
    corpus: Path,
) -> None:
    """For any default of the task; an override replaces the key of the file."""
    data = "data={train='x.tsv',pretrain='x.txt'}" if name == "answer" else "data={train='x.tsv'}"
    sets = [*RECIPES[name], data, *overrides]
    recipe = config.loads(recipe_type(), f"[search]\n{in_file}", base=corpus, overrides=sets)
    assert (recipe.search.beam, recipe.search.temperature) == expected
    assert config.loads(recipe_type(), config.dumps(recipe), base=corpus) == recipe


def test_a_language_model_is_searched_with_the_beam_of_its_recipe(untrained: Build) -> None:
    trained = untrained("lm")
    data = config.dumps(trained.recipe).replace("temperature = 0.8\n", "")
    recipe = config.loads(recipe_type(), data, base=Path(), overrides=["search.beam=4"])
    (prediction,) = replace(trained, recipe=recipe).predict(["to be"], nbest=4)
    assert len({hypothesis.output for hypothesis in prediction.nbest}) == 4
    assert prediction.output == prediction.nbest[0].output
    assert prediction.confidence == pytest.approx(math.exp(prediction.nbest[0].log_probability))


@pytest.mark.parametrize("name", OF_TEXT)
def test_blank_inputs_alone_and_among_others(name: str, untrained: Build) -> None:
    trained = untrained(name, SearchConfig() if name == "lm" else None)
    full = trained.predict(LINES[:2])
    blanks = [*trained.predict([""]), *trained.predict([" \t"])]
    (first, empty, last) = trained.predict([LINES[0], "", LINES[1]])
    assert [first.output, last.output] == [prediction.output for prediction in full]
    assert empty.output == blanks[0].output
    assert all(0 <= prediction.confidence <= 1 for prediction in (*full, *blanks))
    if name not in ("answer", "lm"):  # which continue an empty prompt
        assert [(blank.output, blank.confidence) for blank in blanks] == [("", 1.0)] * 2


@pytest.mark.parametrize("name", ["translate", "translate, rnn"])
def test_blank_sources_are_measured_as_they_are_predicted(name: str, untrained: Build) -> None:
    trained = untrained(name)
    sources = [*(LINES * 11)[:64], ""]  # the blank source is alone in its batch
    evaluation = trained.predictor.evaluate([Pair(source, "a river") for source in sources])
    assert list(evaluation.predictions) == trained.predict(sources)
    assert evaluation.predictions[-1].output == ""


@pytest.mark.parametrize(
    ("name", "long", "kept", "total"),
    [
        ("answer", "is it so? " * 9, 15, 90),
        ("lm", "to be or not " * 9, 23, 117),
        ("fill", "a river . " * 9 + "a ___ .", 5, 30),
    ],
)
def test_a_truncated_input_is_reported(
    name: str, long: str, kept: int, total: int, untrained: Build
) -> None:
    trained = untrained(name)
    short, truncated = trained.predict(["a ___ .", long])
    assert short.truncation is None
    assert (truncated.truncation.kept, truncated.truncation.total) == (kept, total)
    assert f"truncated to {kept} of {total}" in str(truncated.truncation)
    assert truncated.output


@pytest.mark.parametrize("name", ["translate", "caption", "transcribe"])
def test_an_output_stops_at_the_length_of_the_decoder(
    name: str, untrained: Build, corpus: Path
) -> None:
    trained = untrained(name, SearchConfig(temperature=1.0, max_tokens=1000))
    inputs = example_inputs(name, corpus)[:2]
    assert [prediction.input for prediction in trained.predict(inputs)] == inputs


@pytest.mark.parametrize("name", ["translate", "caption", "transcribe"])
def test_a_decoder_with_too_few_memory_positions_is_a_wrong_recipe(name: str, corpus: Path) -> None:
    score = "model.decoder.attention.score={kind='synthesizer'}"
    data = f"data={{train='{corpus}/pairs.tsv'}}"
    length = 3 if name == "caption" else 19
    sets = [*RECIPES[name], data, score, f"model.decoder.max_length={length}"]
    with pytest.raises(UserError, match=f"for {length} positions"):
        config.loads(recipe_type(), "", base=corpus, overrides=sets)


def test_an_answer_is_never_empty(untrained: Build) -> None:
    """White space around a question changes nothing."""
    trained = untrained("answer")
    with torch.no_grad():
        trained.model.lm_head.weight = torch.nn.Parameter(trained.model.lm_head.weight.clone())
        states = trained.predictor.states(["is it so?"])
        trained.model.lm_head.weight[END] = torch.from_numpy(states[0])
    for nbest in (1, 3):
        plain, spaced = trained.predict(["is it so?", "  is it so?\t"], nbest=nbest)
        assert plain.output and 0 < plain.confidence < 0.5
        assert plain.output == spaced.output
        assert all(prediction.output for prediction in plain.nbest)


@pytest.mark.parametrize("name", ["tag", "translate", "transcribe, ctc"])
def test_inputs_read_in_parts_are_not_truncated(
    name: str, untrained: Build, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a long input is used; only what is shown of its attention is a part of it."""
    trained = untrained(name)
    long = " ".join(LINES)
    if name.startswith("transcribe"):
        long = example_inputs(name, corpus)[0]
        monkeypatch.setattr(trained.model, "max_frames", 8)
    (prediction,) = trained.predict([long])
    assert prediction.truncation is None and prediction.output
    example = trained.attention(long)
    assert example.truncation.kept < example.truncation.total
