"""Training that starts from the weights of a run or of a Hugging Face folder."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import harken
from harken.errors import UserError
from harken.models.huggingface import read_folder
from harken.pipeline import train
from harken.recipe import TASKS, load_recipe
from harken.run_folder import read_log
from harken.start import fit_vocabulary, load_starting_weights, read_origins
from harken.training.checkpoint import load_weights, model_state
from harken.training.loop import Event, StepDone
from harken.training.signals import Interrupted
from small_files import error_of, write_files
from small_huggingface import write_bert, write_folder
from untrained import equal_weights

TAG = 'task = "tag"\n[data]\ntrain = "train.conllu"\ndev = "dev.conllu"\n'
TAG += '[model]\nstart_from = "bert"\n'
TAG += "[training.tags]\nsteps = 4\nbatch_tokens = 40\nsave_every = 2\n"
LM = 'task = "lm"\n[data]\ntrain = "text.txt"\n[model]\nstart_from = "gpt"\n'
LM += "[training]\nsteps = 3\nbatch_tokens = 64\nsave_every = 2\n[search]\nmax_tokens = 5\n"
ANSWER = 'task = "answer"\n[data]\npretrain = "texts.txt"\ntrain = "questions.tsv"\n'
ANSWER += '[model]\nstart_from = "gpt"\n[training.pretrain]\nsteps = 2\nbatch_tokens = 64\n'


CLASSIFY = 'task = "classify"\n[data]\ninput = "text"\ntrain = "labels.tsv"\ndev = 0.3\n[model]\n'
CLASSIFY += 'start_from = "bert"\npooling.kind = "first"\n'
CLASSIFY += "[training.labels]\nsteps = 4\nbatch_size = 5\nsave_every = 2\n"


def write_gpt(folder: Path, family: str = "gpt2") -> Path:
    """Write a small GPT with a byte-level tokenizer; `<|endoftext|>` and a spare row follow."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    length = "n_positions" if family == "gpt2" else "max_position_embeddings"
    write_folder(folder, family, vocab_size=258, eos_token_id=256, **{length: 24})
    vocabulary = {byte: number for number, byte in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Data files, folders of a BERT and a GPT-2, and recipes that start from them."""
    write_files(tmp_path)
    write_bert(tmp_path / "bert")
    write_gpt(tmp_path / "gpt")
    rows = (f"they duck {number} here\t{number % 2}\n" for number in range(30))
    (tmp_path / "labels.tsv").write_text("text\tlabel\n" + "".join(rows))
    for name, text in (("tag", TAG), ("lm", LM), ("answer", ANSWER), ("classify", CLASSIFY)):
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


def origins(run: Path) -> dict[str, str]:
    read = read_origins(run)
    assert read is not None
    return {tensor.name: tensor.origin for tensor in read.tensors}


def test_a_tagger_starts_from_bert_and_is_independent_of_it(desk: Path) -> None:
    recipe = load_recipe(desk / "tag.toml", ["training.tags.optimizer.lr=0"])
    run = train(recipe, desk / "run")
    read = read_folder(desk / "bert")
    for name, weight in model_state(read.model).items():
        assert torch.equal(weight, run.model.get_parameter(f"encoder.{name}").detach()), name
    assert {name for name, origin in origins(run.folder).items() if origin == "initialized"} == {
        "cases.weight",
        "classifier.weight",
        "classifier.bias",
    }
    page = (run.folder / "report.html").read_text()
    assert "Starting weights" in page and "classifier.bias" in page
    before = run.predict(["They duck and swim 12 times"])
    for name in ("bert", "train.conllu", "dev.conllu"):
        path = desk / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = harken.load(run.folder)
    assert again.predict(["They duck and swim 12 times"]) == before
    assert "start_from" in error_of(load_recipe, desk / "tag.toml").message


@torch.no_grad()
def test_the_state_of_the_first_piece_represents_a_word(desk: Path) -> None:
    transformers = pytest.importorskip("transformers")
    recipe = load_recipe(desk / "tag.toml", ["training.tags.steps=0"])
    run = train(recipe, desk / "run")
    reference = transformers.BertModel.from_pretrained(desk / "bert").eval()
    sentences = [["they", "duck", "12", "\u200b?"], ["swim"]]
    pieces = [[[5], [6, 7], [12, 23], [1, 1]], [[9]]]  # an unknown character, an unknown mark
    model: Any = run.model
    predictor: Any = run.predictor
    for words, ids in zip(sentences, pieces, strict=True):
        tokens = [2, *(piece for word in ids for piece in word), 3]
        assert [list(word) for word in run.vocabulary.pieces.encode(words)] == ids  # type: ignore[attr-defined]
        states = reference(input_ids=torch.tensor([tokens])).last_hidden_state[0]
        first = np.cumsum([1, *map(len, ids[:-1])])
        log_probs = model.classifier(states[first]).log_softmax(dim=-1).max(dim=-1).values
        (tagged,) = predictor.tag([words])
        np.testing.assert_allclose(tagged.log_probabilities, log_probs, atol=1e-5)
    both = [row.log_probabilities for row in predictor.tag(sentences)]  # padded to one batch
    alone = [row.log_probabilities for words in sentences for row in predictor.tag([words])]
    np.testing.assert_allclose(np.concatenate(both), np.concatenate(alone), atol=1e-5)


@torch.no_grad()
def test_a_classifier_reads_the_states_of_bert(desk: Path) -> None:
    transformers = pytest.importorskip("transformers")
    recipe = load_recipe(desk / "classify.toml", ["training.labels.steps=0"])
    run = train(recipe, desk / "run")
    reference = transformers.BertModel.from_pretrained(desk / "bert").eval()
    tokens = [2, 5, 6, 7, 11, 3]
    state = reference(input_ids=torch.tensor([tokens])).last_hidden_state[0, 0]
    model: Any = run.model
    expected = model.classifier(state).softmax(dim=-1)
    probabilities = {
        label.label: label.probability for label in run.predict(["they duck 0"])[0].labels
    }
    assert [probabilities["0"], probabilities["1"]] == pytest.approx(expected.tolist(), abs=1e-5)
    initialized = {name for name, origin in origins(run.folder).items() if origin != "loaded"}
    assert initialized == {"classifier.weight", "classifier.bias"}


def test_long_sentences_are_tagged_in_windows(desk: Path) -> None:
    run = train(load_recipe(desk / "tag.toml", ["training.tags.steps=1"]), desk / "run")
    words = ["duck"] * 50 + ["7" * 30] + ["swim"] * 50 + ["?" * 70]
    assert len(run.predict([" ".join(words)])[0].output.split()) == len(words)
    attention = run.attention(" ".join(words))
    assert attention is not None
    assert attention.truncation is not None


@pytest.mark.parametrize("name", ["tag", "lm", "classify"])
def test_a_killed_run_resumes_exactly(desk: Path, name: str) -> None:
    freeze = ["model.freeze=1", "model.dropout=0.1"]
    recipe = load_recipe(desk / f"{name}.toml", freeze)
    whole = train(recipe, desk / "whole").folder
    for stop in (1, 3):
        folder, done = desk / f"stop-{stop}", []

        def listener(event: Event, stop: int = stop, done: list[int] = done) -> None:
            if isinstance(event, StepDone):
                done.append(event.step)
                if len(done) == stop:
                    signal.raise_signal(signal.SIGTERM)

        with pytest.raises(Interrupted):
            train(recipe, folder, listener=listener)
        if stop == 1:  # as if it was killed before the first checkpoint
            shutil.rmtree(folder / "checkpoints")
        train(recipe, folder, resume=True)
        assert equal_weights(whole, folder)
        assert (folder / "start.json").read_text() == (whole / "start.json").read_text()
        losses = [[e["loss"] for e in read_log(run / "log.jsonl")] for run in (whole, folder)]
        assert losses[0] == losses[1]


def test_changed_starting_weights_are_not_resumed(desk: Path) -> None:
    recipe = load_recipe(desk / "tag.toml")

    def listener(event: Event) -> None:
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(recipe, desk / "run", listener=listener)
    recorded = json.loads((desk / "run" / "provenance.json").read_text())["data"]
    assert "sha256" in recorded["model.start_from (model.safetensors)"]
    write_folder(desk / "bert", "bert", vocab_size=34, max_position_embeddings=40, hidden_size=18)
    (desk / "bert" / "config.json").write_text((desk / "bert" / "config.json").read_text() + " ")
    error = error_of(train, recipe, desk / "run", resume=True)
    assert "model.start_from" in error.message and "changed" in error.message


def test_frozen_layers_keep_their_weights(desk: Path) -> None:
    run = train(load_recipe(desk / "tag.toml", ["model.freeze=1"]), desk / "run")
    before = model_state(read_folder(desk / "bert").model)
    after = {
        name.removeprefix("encoder."): weight for name, weight in model_state(run.model).items()
    }
    unchanged = {name for name, weight in before.items() if torch.equal(weight, after[name])}
    frozen = {name for name in before if "stack.blocks.1." not in name}
    assert unchanged == frozen | {"segment.weight"}
    too_many = load_recipe(desk / "tag.toml", ["model.freeze=3"])
    assert "model.freeze = 3" in error_of(train, too_many, desk / "other").message
    assert not (desk / "other").exists()


@pytest.mark.parametrize("family", ["gpt2", "llama", "gpt_neox"])
def test_a_language_model_starts_from_a_folder(desk: Path, family: str) -> None:
    write_gpt(desk / "gpt", family)
    recipe = load_recipe(
        desk / "lm.toml", ["training.optimizer.kind=sgd", "training.optimizer.lr=0"]
    )
    run = train(recipe, desk / "run")
    tokens = torch.randint(258, (2, 11), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(run.model(tokens), read_folder(desk / "gpt").model(tokens))
    assert set(origins(run.folder).values()) == {"loaded"}
    text = "Ducks swim, 1️⃣ and <|endoftext|>"
    vocabulary: Any = run.vocabulary
    (ids,) = vocabulary.encode([text])
    original = Tokenizer.from_file(str(desk / "gpt" / "tokenizer.json"))
    original.encode_special_tokens = True
    assert ids.tolist() == original.encode(f" {text}").ids
    assert vocabulary.decode([ids.tolist()]) == [text]
    assert (vocabulary.special.end, vocabulary.start) == (256, 256)
    before = run.predict(["they duck"])
    shutil.rmtree(desk / "gpt")
    assert harken.load(run.folder).predict(["they duck"]) == before


def test_answer_adds_a_mask_token(desk: Path) -> None:
    changes = ["training.pretrain.optimizer.lr=0", "training.pretrain.optimizer.fallback.lr=0"]
    recipe = load_recipe(desk / "answer.toml", [*changes, "training.finetune.steps=0"])
    run = train(recipe, desk / "run")
    stored = load_file(desk / "gpt" / "model.safetensors")["wte.weight"]
    weights = load_weights(run.folder / "model.safetensors")["embedding.weight"]
    vocabulary: Any = run.vocabulary
    assert len(weights) == 258 and vocabulary.special.mask == 257  # the spare row
    assert torch.equal(weights, stored)
    assert len(run.predict(["who is 3?"])) == 1


def test_a_run_is_trained_further(desk: Path) -> None:
    changes = ["model.width=16", "model.layers=2", "model.attention.heads=2", "model.max_length=24"]
    text = LM.replace('[model]\nstart_from = "gpt"\n', "")
    (desk / "scratch.toml").write_text(text)
    first = train(load_recipe(desk / "scratch.toml", changes), desk / "first")
    (desk / "more.toml").write_text(LM.replace('"gpt"', '"first"'))
    second = train(load_recipe(desk / "more.toml", ["seed=1"]), desk / "second")
    assert (second.folder / "tokenizer.json").read_bytes() == (
        first.folder / "tokenizer.json"
    ).read_bytes()
    assert set(origins(second.folder).values()) == {"loaded"}
    assert not equal_weights(first.folder, second.folder)
    still = load_recipe(desk / "more.toml", ["training.steps=0"])
    assert equal_weights(first.folder, train(still, desk / "third").folder)
    (desk / "answer.toml").write_text(ANSWER.replace('"gpt"', '"first"'))
    answer = train(load_recipe(desk / "answer.toml"), desk / "answer")
    assert set(origins(answer.folder).values()) == {"loaded"}


@pytest.mark.slow
def test_weights_do_not_depend_on_the_number_of_processes(desk: Path) -> None:
    """Frozen layers have no gradient in any process; a sharded run rounds differently."""
    sets = ["training.micro_batches=2", "model.freeze=1", "training.runtime.threads=1"]
    sets += ["training.optimizer={kind='adamw', lr=1e-3, layer_decay=0.5}"]
    alone = train(load_recipe(desk / "lm.toml", sets), desk / "one")
    for reduction in ("exact", "sharded"):
        given = [*sets, f"training.runtime.reduction={reduction}"]
        folder, words = desk / reduction, [word for item in given for word in ("--set", item)]
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m"]
        command += ["--", "harken", "train", str(desk / "lm.toml"), "--run", str(folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        assert equal_weights(alone.folder, folder) == (reduction == "exact")
        weights, expected = (
            load_weights(run / "model.safetensors") for run in (folder, alone.folder)
        )
        for name, weight in expected.items():
            torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("task", "file"), [("tag", "train.conllu"), ("classify", "labels.tsv")])
def test_unknown_outputs_are_named(desk: Path, task: str, file: str) -> None:
    changes = ["training.tags.steps=0"] if task == "tag" else ["training.labels.steps=0"]
    run = train(load_recipe(desk / f"{task}.toml", changes), desk / "run")
    data = (desk / file).read_text()
    (desk / file).write_text(data.replace("VERB", "NEW").replace("\t1\n", "\tNEW\n"))
    recipe = load_recipe(desk / f"{task}.toml", [f"model.start_from={run.folder}"])
    assert "'NEW' is not among the" in error_of(train, recipe, desk / "other").message


@pytest.mark.parametrize("task", TASKS)
def test_every_task_starts_from_a_run_of_its_own(
    task: str, untrained_run: Callable[[str], Path]
) -> None:
    run = untrained_run(task)
    recipe = load_recipe(run / "recipe.toml", [f"model.start_from={run}", "seed=7"])
    vocabulary = fit_vocabulary(recipe, ())
    model = TASKS[task].build(recipe, vocabulary.sizes)
    loaded = load_starting_weights(model, run)
    assert {tensor.origin for tensor in loaded.tensors} == {"loaded"} and loaded.unused == ()
    for name, weight in load_weights(run / "model.safetensors").items():
        assert torch.equal(model_state(model)[name], weight)


@pytest.mark.parametrize(
    ("task", "change", "words"),
    [
        ("tag", "model.encoder.layers=3", ("model.encoder.layers", "number 2", "config.json")),
        ("tag", "model.kind=tagger", ("model.kind", "'pieces'")),
        ("tag", "encode.kind=words", ("encode.kind", "'pretrained'")),
        ("lm", "model.position.kind=rotary", ("model.position.kind", "'learned'")),
        ("lm", "model.window=5", ("model.window", "no value")),
        ("tag", "model.start_from=gpt", ("cannot start from a model of 'gpt2'",)),
        ("lm", "model.start_from=train.en", ("neither a run folder nor a Hugging Face folder",)),
        ("tag", "training.vectors.steps=3", ("training.vectors.steps",)),
    ],
)
def test_contradictions_are_named(
    desk: Path, task: str, change: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk)
    with pytest.raises(UserError) as caught:
        train(load_recipe(desk / f"{task}.toml", [change]), desk / "run")
    for word in words:
        assert word in str(caught.value)
    assert not (desk / "run").exists()


def test_a_tokenizer_that_does_not_fit_is_rejected(desk: Path) -> None:
    recipe = load_recipe(desk / "tag.toml")
    shutil.copy(desk / "gpt" / "tokenizer.json", desk / "bert" / "tokenizer.json")
    assert "do not fit the model" in error_of(train, recipe, desk / "run").message
    (desk / "bert" / "tokenizer.json").unlink()
    assert "expected the model's tokenizer" in error_of(train, recipe, desk / "run").message
