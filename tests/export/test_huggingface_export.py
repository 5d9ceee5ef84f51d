"""Exported folders in `transformers`, and back in Harken."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import harken
from exportable import CASES, SUPPORTED, small_run
from harken.decode.search import SearchConfig
from harken.export.folder import export_run
from harken.export.format import export_format
from harken.export.parity import compare_outputs, logit_difference
from harken.export.synthetic_lines import synthetic_lines
from harken.models.huggingface import read_folder
from harken.recipe import task_of
from harken.run import Run
from harken.start import fit_vocabulary, load_starting_weights
from small_files import write_files
from small_huggingface import write_bert
from small_models import add_noise
from untrained import bound_run, task_recipe

GENERATING = ["lm gpt2", "answer neox", "answer llama", "translate marian", "translate pegasus"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def exported(name: str, runs: Path) -> tuple[Run, Path]:
    run, folder = small_run(name, runs), runs / f"hf {name}"
    if not folder.exists():
        export_run(run, "hf", folder, "float32")
    return run, folder


def load_auto(folder: Path) -> tuple[Any, Any]:
    """Load with the Auto classes that the model card names."""
    lines = (folder / "README.md").read_text("utf-8").splitlines()
    (line,) = (line for line in lines if "import AutoModel" in line)
    name = line.partition("import ")[2].partition(",")[0]
    model = getattr(transformers, name).from_pretrained(folder)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", GENERATING)
@torch.inference_mode()
def test_transformers_generates_the_same_text(name: str, runs: Path) -> None:
    run, folder = exported(name, runs)
    model, tokenizer = load_auto(folder)
    texts = [" ".join(text.split()[:5]) for text in synthetic_lines(run, 20)]
    for beam in (1, 4):
        searched = run.with_search(SearchConfig(beam=beam, max_tokens=7))
        expected = [prediction.output for prediction in searched.predict(texts)]
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        batch.pop("token_type_ids", None)
        options = {"num_beams": beam, "max_new_tokens": 7, "do_sample": False}
        options["early_stopping"] = beam > 1
        outputs = model.generate(**batch, **options)
        start = batch["input_ids"].shape[1] if "answer" in name else 0
        generated = tokenizer.batch_decode(outputs[:, start:], skip_special_tokens=True)
        if run.recipe.task == "lm":  # the continuation is decoded together with the text
            prompts = tokenizer.batch_decode(batch["input_ids"], skip_special_tokens=True)
            generated = [
                whole[len(prompt) :] for whole, prompt in zip(generated, prompts, strict=True)
            ]
        equal = sum(
            text.strip() == output.strip() for text, output in zip(generated, expected, strict=True)
        )
        assert equal >= 19, list(zip(generated, expected, strict=True))


@torch.inference_mode()
def test_a_classifier_predicts_the_same_labels(runs: Path) -> None:
    run, folder = exported("classify bert", runs)
    model, tokenizer = load_auto(folder)
    texts = [" ".join(text.split()[:3]) for text in synthetic_lines(run, 30)]
    logits = model(**tokenizer(texts, return_tensors="pt", padding=True)).logits
    names = [model.config.id2label[index] for index in logits.argmax(dim=-1).tolist()]
    predictions = run.predict(texts)
    assert names == [prediction.output for prediction in predictions]
    assert len(set(names)) > 2
    confidences = torch.tensor([prediction.confidence for prediction in predictions])
    torch.testing.assert_close(logits.softmax(-1).amax(-1), confidences.float(), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    "name", [name for name in SUPPORTED["hf"] if CASES[name][0] in ("lm", "answer")]
)
@torch.inference_mode()
def test_read_back_with_the_same_bits(name: str, runs: Path) -> None:
    run, folder = exported(name, runs)
    loaded: Any = read_folder(folder).model.eval()
    tokens = torch.arange(3 * 17).view(3, 17) % run.vocabulary.sizes.entries
    assert torch.equal(loaded(tokens), run.model(tokens))
    tokenizer = harken.load_huggingface(folder).tokenizer
    text = "They swim 日本"
    expected = run.vocabulary.encode([text])[0].tolist()
    # The language model over characters does not read the space before a text.
    first = 1 if name == "lm gpt2" else 0
    assert tokenizer.encode(text, add_special_tokens=False).ids == expected[first:]


@torch.inference_mode()
def test_training_starts_from_an_export_with_its_vocabulary(runs: Path) -> None:
    run, folder = exported("answer neox", runs)
    overrides = [f"model={{start_from='{folder}'}}", "encode={kind='pretrained'}"]
    recipe = task_recipe("answer", runs, overrides)
    vocabulary: Any = fit_vocabulary(recipe, [])
    assert vocabulary.special == run.vocabulary.special
    text = "Where do they swim? 日本"
    assert list(vocabulary.encode([text])[0]) == list(run.vocabulary.encode([text])[0])
    model: Any = task_of(recipe).build(recipe, vocabulary.sizes).eval()
    load_starting_weights(model, folder)
    tokens = torch.arange(3 * 17).view(3, 17)
    assert torch.equal(model(tokens), run.model(tokens))


@torch.inference_mode()
def test_a_tagger_predicts_the_same_tags(tmp_path: Path) -> None:
    """The segment of a piece is the case pattern of its word."""
    write_files(tmp_path)
    write_bert(tmp_path / "bert")
    recipe = task_recipe("tag", tmp_path, [f"model={{kind='pieces',start_from='{tmp_path}/bert'}}"])
    task = task_of(recipe)
    vocabulary: Any = fit_vocabulary(recipe, task.read_splits(recipe)["train"])
    model: Any = task.build(recipe, vocabulary.sizes).eval()
    add_noise(model, seed=3, strength=2.0)
    run, chosen = bound_run(recipe, vocabulary, model), export_format("hf")
    chosen.write(run, tmp_path, "float32")
    loaded = chosen.load(tmp_path, run)
    texts = ["they DUCK and Swim here", "1 Duck", "swim " * 17, "They"]
    assert logit_difference(run, loaded, texts) <= 1e-4
    assert compare_outputs(run, loaded, [texts])["predict"].share == 1
    assert len({prediction.output for prediction in run.predict(texts)}) == 4
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    words = texts[0].split()
    pieces = [token for word in vocabulary.pieces.encode(words) for token in word.tolist()]
    ids = tokenizer(words, is_split_into_words=True)["input_ids"]
    assert ids == [vocabulary.pieces.cls, *pieces, vocabulary.pieces.sep]


def test_float16_halves_the_file(runs: Path) -> None:
    run, folder = exported("answer neox", runs)
    half = runs / "half"
    parity = export_run(run, "hf", half, "float16")
    sizes = [(path / "model.safetensors").stat().st_size for path in (folder, half)]
    assert sizes[1] < 0.55 * sizes[0]
    assert 1e-4 < parity.max_logit_difference < 0.1
