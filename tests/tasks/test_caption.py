"""Image captioning: every front end and decoder, arrays and files, boxes, errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from command_line import Cli
from harken import config
from harken.decode.stepper import TokenHypothesis
from harken.errors import UserError
from harken.formats.arrays import read_image_array
from harken.formats.captions import read_captions
from harken.inspection.record import record
from harken.pipeline import train
from harken.recipe import TASKS, recipe_type
from harken.report.viewed_attention import view_attention
from harken.synthetic.scenes import ScenesConfig, write_scenes
from harken.tasks.caption import CaptionPredictor
from untrained import trained_once

SMALL = (
    "model.width=12",
    "training.captions.steps=3",
    "training.captions.batch_captions=7",
    "search.beam=2",
    "search.max_tokens=9",
    "encode.images={kind='pixels',columns=32,rows=32,channels=3}",
)
CONVOLUTION = "model.frontend={kind='convolution',channels=[5,7]}"
PATCHES = "model.frontend={kind='patch',patch=8}"
TRANSFORMER_DECODER = (
    "model.decoder={kind='transformer',layers=1,width=12,max_length=17,attention={heads=2}}"
)
RNN_DECODER = "model.decoder={kind='rnn',width=12,hidden=11}"
SELF_ATTENTION = "model.encoder={layers=1,attention={heads=2}}"
MODELS = {
    "rnn over a map of a CNN": (CONVOLUTION, RNN_DECODER),
    "attention over a map of a CNN": (CONVOLUTION, SELF_ATTENTION, TRANSFORMER_DECODER),
    "attention over squares": (PATCHES, SELF_ATTENTION, TRANSFORMER_DECODER),
}
METRICS = {"attention_in_box", "attention_mass_in_box", "chance_in_box"}


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    write_scenes(ScenesConfig(scenes=50, size=32, min_shapes=1, max_shapes=2, seed=3), folder)
    return folder


def recipe(folder: Path, *sets: str) -> Any:
    text = f'task="caption"\n[data]\ntrain="{folder}/train.jsonl"\ndev="{folder}/dev.jsonl"\n'
    return config.loads(recipe_type(), text, base=folder, overrides=[*SMALL, *sets])


@pytest.fixture(scope="session")
def run_of(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of each model, trained once."""
    return trained_once(recipe, MODELS, drawn, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_and_is_measured(name: str, run_of: Any, drawn: Path) -> None:
    run = run_of(name)
    evaluation = run.evaluate("dev")
    assert evaluation.n == len(read_captions(drawn / "dev.jsonl"))
    assert set(evaluation.metrics) >= METRICS
    assert 0 < evaluation.metrics["chance_in_box"].value < 0.5 or not any(
        prediction.output for prediction in evaluation.predictions
    )
    for prediction in evaluation.predictions[:3]:
        assert run.predict([prediction.input])[0].output == prediction.output
    assert evaluation.predictions[1].input == f"{drawn / 'dev.npz'}#1"


def test_files_and_rows_of_arrays_give_the_same_output(run_of: Any, drawn: Path) -> None:
    run = run_of("attention over squares")
    rows = run.predict([f"{drawn / 'test.npz'}#{at}" for at in range(3)])
    files = run.predict([str(drawn / "examples" / f"{at}.png") for at in range(3)])
    assert [row.output for row in rows] == [file.output for file in files]
    assert [row.confidence for row in rows] == pytest.approx([file.confidence for file in files])


def test_training_on_files_equals_training_on_an_array(drawn: Path, tmp_path: Path) -> None:
    examples = read_captions(drawn / "test.jsonl")
    lines = [f"examples/{at}.png\t{examples[at].captions[0]}" for at in range(len(examples))]
    (drawn / "files.tsv").write_text("\n".join(lines) + "\n")
    (drawn / "rows.jsonl").write_text((drawn / "test.jsonl").read_text())
    (drawn / "rows.npz").write_bytes((drawn / "test.npz").read_bytes())
    sets = (*MODELS["rnn over a map of a CNN"], f"data.dev={drawn}/dev.jsonl")
    by_file = train(recipe(drawn, *sets, f"data.train={drawn}/files.tsv"), tmp_path / "files")
    by_row = train(recipe(drawn, *sets, f"data.train={drawn}/rows.jsonl"), tmp_path / "rows")
    names = [f"{drawn / 'dev.npz'}#{row}" for row in range(4)]
    confidences = [[item.confidence for item in run.predict(names)] for run in (by_file, by_row)]
    assert confidences[0] == confidences[1]
    stored = read_image_array(next((tmp_path / "files").rglob("pixels.npy")))
    np.testing.assert_array_equal(stored.array, read_image_array(drawn / "test.npz").array)


def test_feature_maps_with_names_and_lists(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    maps = random.integers(-127, 128, size=(23, 5, 3, 7)).astype(np.int8)
    np.save(tmp_path / "maps.npy", maps)
    np.save(tmp_path / "scale.npy", np.linspace(0.01, 0.02, 7, dtype=np.float32))
    names = [f"{at}.jpg" for at in range(23)]
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n")
    captions = [f"{name}#{at}\ta {('big', 'old')[at]} dog" for name in names for at in range(2)]
    (tmp_path / "captions.txt").write_text("\n".join(captions) + "\n")
    (tmp_path / "train.txt").write_text("\n".join(names[3:]) + "\n")
    (tmp_path / "dev.txt").write_text("\n".join(names[:3]) + "\n")
    text = (
        'task="caption"\n[data]\nfeatures="maps.npy"\nfeature_scale="scale.npy"\narray_names="names.txt"\n'
        'train={captions="captions.txt",image_list="train.txt"}\n'
        'dev={captions="captions.txt",image_list="dev.txt"}\n'
    )
    sets = [
        *SMALL[:-1],
        "encode.images={kind='features',columns=5,rows=3,channels=7}",
        "model.frontend.kind=features",
        RNN_DECODER,
    ]
    made = config.loads(recipe_type(), text, base=tmp_path, overrides=sets)
    run = train(made, tmp_path / "run")
    evaluation = run.evaluate("dev")
    inputs = [Path(prediction.input).name for prediction in evaluation.predictions]
    assert inputs == [f"maps.npy#{row}" for row in range(3)]
    assert not METRICS & set(evaluation.metrics)
    with pytest.raises(UserError, match="expected a row of an array, such as"):
        run.predict(["dog.jpg"])


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (["model.frontend.kind=features"], "require each other"),
        (["data.features=maps.npy"], "require each other"),
        (["encode.images.columns=48"], "train with encode.images.columns=32"),
        (["data.dev=2.5"], "is not a share"),
        (["data.images=a.npz", "data.features=b.npy"], "are alternatives"),
    ],
)
def test_wrong_recipes(drawn: Path, sets: list[str], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        made = recipe(drawn, *sets)
        dict(TASKS["caption"].read_splits(made))
    assert sentence in f"{caught.value}; {caught.value.fix}"


def test_inspect_writes_pages_and_images(
    run_of: Any, drawn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of("attention over a map of a CNN")
    name = f"{drawn / 'test.npz'}#1"
    assert run.predict([name])[0].output, "the output is empty"
    printed = Cli(capsys)("inspect", run.folder, name, "--out", tmp_path).out.split()
    views = [f"-view-{number}.{kind}" for number in (1, 2, 3) for kind in ("svg", "png")]
    assert printed == [str(tmp_path / f"test-1-1{ending}") for ending in (".html", *views)]
    assert (tmp_path / "test-1-1-view-1.png").read_bytes().startswith(b"\x89PNG")
    page = (run.folder / "report.html").read_text()
    assert "Cross-attention: target tokens to image positions" in page
    example = run.attention(name)
    pixels = read_image_array(drawn / "test.npz").take([1])[0]
    np.testing.assert_array_equal(example.views[0].picture.image, pixels)
    assert run.inputs(3) == [f"{drawn / 'dev.npz'}#{row}" for row in range(3)]


@pytest.mark.parametrize("name", MODELS)
def test_views_cover_all_attention_layers(
    name: str, run_of: Any, drawn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, tokens = run_of(name), [4, 6, 5]  # the model's own output may be empty
    monkeypatch.setattr(CaptionPredictor, "_search", lambda *_: [[TokenHypothesis(tokens, -1.0)]])
    example = run.attention(f"{drawn / 'test.npz'}#1")
    views = view_attention(run.model, example)
    attentions = [layer.module for view in views for layer in view.layers]
    with torch.inference_mode(), record(run.model) as calls:
        example.run()
    assert sorted(attentions) == sorted({call.name for call in calls})  # each in one view
    for view in views:
        for layer in view.layers:
            assert layer.weights.shape[1:] == (len(view.view.queries), len(view.view.keys))
    words = [word.strip() for word in run.vocabulary.token_texts(tokens)]
    assert list(views[0].view.queries) == words
    if len(views) == 3:
        assert list(views[2].view.keys) == ["<end>", *words[:-1]]
