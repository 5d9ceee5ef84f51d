"""Speech recognition that starts from Whisper."""

import json
import math
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import harken
from harken.encode.vocabulary import DecoderTokens, Vocabulary
from harken.errors import Failure, UserError
from harken.formats.sound import load_signal
from harken.models.huggingface import read_folder
from harken.pipeline import train
from harken.recipe import load_recipe
from harken.report.viewed_attention import view_attention
from harken.run_folder import read_log
from harken.start import read_origins
from harken.synthetic.recordings import write_wav
from harken.training.checkpoint import load_weights, model_state
from harken.training.loop import Event, StepDone
from harken.training.signals import Interrupted
from small_files import error_of
from small_huggingface import change, write_folder
from untrained import equal_weights

END, START, ENGLISH, GERMAN, TRANSCRIBE, PLAIN, TIME = range(256, 263)
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>"]
SPECIAL += ["<|notimestamps|>", "<|0.00|>"]
SUPPRESSED = [7, 11, START, PLAIN]
WORDS = ("one", "two", "three", "four")
RECIPE = """task = "transcribe"
[data]
train = "train.jsonl"
dev = "dev.jsonl"
[model]
start_from = "whisper"
[training.speech]
steps = 4
batch_frames = 250
save_every = 2
evaluate_every = 0
optimizer = { kind = "adamw", lr = 1e-3, layer_decay = 0.8 }
"""


def write_whisper(folder: Path) -> Path:
    """Write a small Whisper with a tokenizer of bytes; its weights are large enough to differ."""
    write_folder(folder, "whisper", eos_token_id=END, pad_token_id=END)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({byte: number for number, byte in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    space = alphabet.index("Ġ")
    settings = {"is_multilingual": True, "suppress_tokens": SUPPRESSED}
    settings["begin_suppress_tokens"] = [END, space, 200]
    (folder / "generation_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Recordings of noise, a folder of Whisper, and a recipe."""
    write_whisper(tmp_path / "whisper")
    random, lines = np.random.default_rng(0), []
    for number, word in enumerate(WORDS * 2):
        samples = 0.2 * random.standard_normal(3001 + 700 * number)
        write_wav(tmp_path / f"{number}.wav", samples, 8000)
        lines.append(json.dumps({"audio": f"{number}.wav", "text": word}))
    (tmp_path / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "dev.jsonl").write_text("\n".join(lines[:2]), encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return tmp_path


@torch.no_grad()
def test_the_search_is_that_of_whisper(desk: Path) -> None:
    """Greedy search with the prompt and the suppressed tokens, written as a loop."""
    transformers = pytest.importorskip("transformers")
    run = train(load_recipe(desk / "recipe.toml", ["training.speech.steps=0"]), desk / "run")
    assert {tensor.origin for tensor in read_origins(run.folder).tensors} == {"loaded"}  # type: ignore[union-attr]
    vocabulary: Any = run.vocabulary
    (tokens,) = vocabulary.encode(["one"])
    space = int(tokens[0])
    assert vocabulary.decode([tokens.tolist()]) == ["one"]
    assert vocabulary.token_texts([END, PLAIN]) == ["<end>", "<|notimestamps|>"]
    # The transcripts begin with a space, so it is not suppressed.
    suppressed = (7, 11, START, ENGLISH, GERMAN, TRANSCRIBE, PLAIN, TIME)
    expected = (START, ENGLISH, TRANSCRIBE, PLAIN), suppressed, (200, END)
    assert vocabulary.decoder == DecoderTokens(*expected)
    assert space not in vocabulary.decoder.suppressed_first
    reference = transformers.WhisperForConditionalGeneration.from_pretrained(
        desk / "whisper"
    ).eval()
    extract = transformers.WhisperFeatureExtractor(feature_size=7, chunk_length=1)
    name = str(desk / "3.wav")
    signal = load_signal(name, 16_000, 60)
    inputs = extract(signal, sampling_rate=16_000, return_tensors="pt").input_features[..., :94]
    written, total = [START, ENGLISH, TRANSCRIBE, PLAIN], 0.0
    while len(written) <= 31:  # with 31 inputs
        logits = reference(input_features=inputs, decoder_input_ids=torch.tensor([written])).logits
        logits = logits[0, -1].double()
        logits[[*expected[1], *(expected[2] if len(written) == 4 else ())]] = -torch.inf
        written.append(int(logits.argmax()))
        total += float(logits.log_softmax(dim=-1).max())
        if written[-1] == END:
            break
    (prediction,) = run.predict([name])
    assert prediction.output == vocabulary.decode([written[4:]])[0].strip()
    assert math.log(prediction.confidence) == pytest.approx(total, abs=1e-4)


def test_a_run_is_complete_and_shows_attention(desk: Path) -> None:
    run = train(load_recipe(desk / "recipe.toml"), desk / "run")
    name = str(desk / "2.wav")
    before = run.predict([name])
    shutil.rmtree(desk / "whisper")
    again = harken.load(run.folder)
    assert again.predict([name]) == before
    assert "wer" in again.evaluate("dev").metrics
    example = again.attention(name)
    cross, encoder, decoder = view_attention(again.model, example)
    assert [len(viewed.layers) for viewed in (cross, encoder, decoder)] == [3, 2, 3]
    assert list(cross.view.keys)[:2] == ["0.00 s", "0.02 s"] and len(cross.view.keys) == 47
    assert list(decoder.view.keys)[:4] == [*SPECIAL[1:3], "<|transcribe|>", "<|notimestamps|>"]
    (timed,) = again.predict([name], times=True)
    assert all(0 <= word.start <= word.end <= 0.6 for word in timed.words)


def test_a_stopped_run_resumes_exactly(desk: Path) -> None:
    recipe = load_recipe(desk / "recipe.toml", ["model.freeze=1", "model.decoder.dropout=0.1"])
    whole = train(recipe, desk / "whole").folder

    def listener(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == 3:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(recipe, desk / "stopped", listener=listener)
    train(recipe, desk / "stopped", resume=True)
    assert equal_weights(whole, desk / "stopped")
    losses = [
        [e["loss"] for e in read_log(desk / run / "log.jsonl")] for run in ("whole", "stopped")
    ]
    assert losses[0] == losses[1]
    start, end = (
        model_state(read_folder(desk / "whisper").model),
        load_weights(whole / "model.safetensors"),
    )
    frozen = {name for name, weight in start.items() if torch.equal(weight, end[name])}
    assert {"frontend.first.weight", "encoder.position.tables.0.weight"} <= frozen
    assert not any("encoder.stack.blocks.1." in name and name.endswith("weight") for name in frozen)


def test_shorter_padding_and_another_language(desk: Path) -> None:
    sets = ["model.frontend.min_frames=40", "encode.tokenizer.language=de"]
    recipe: Any = load_recipe(desk / "recipe.toml", sets)
    run = train(recipe, desk / "run")
    assert run.vocabulary.decoder.start == (START, GERMAN, TRANSCRIBE, PLAIN)  # type: ignore[attr-defined]
    # Sounds of different lengths do not depend on each other.
    names = [str(desk / f"{number}.wav") for number in range(8)]
    both = [math.log(prediction.confidence) for prediction in run.predict(names)]
    alone = [math.log(run.predict([name])[0].confidence) for name in names]
    assert both == pytest.approx(alone, abs=1e-3)
    longer = load_recipe(desk / "recipe.toml", [f"model.start_from={run.folder}"])
    assert longer.encode == recipe.encode and longer.model.frontend == recipe.model.frontend
    unknown = load_recipe(desk / "recipe.toml", ["encode.tokenizer.language=xx"])
    assert "no token '<|xx|>'" in error_of(train, unknown, desk / "other").message
    assert (
        "at most 94"
        in error_of(load_recipe, desk / "recipe.toml", ["model.frontend.min_frames=95"]).message
    )


def test_an_english_model_has_no_language(desk: Path) -> None:
    path = desk / "whisper" / "generation_config.json"
    path.write_text('{"is_multilingual": false}', encoding="utf-8")
    run = train(load_recipe(desk / "recipe.toml", ["training.speech.steps=0"]), desk / "run")
    assert run.vocabulary.decoder.start == (START, PLAIN)  # type: ignore[attr-defined]
    stored = run.folder / "tokenizer.json"
    content = json.loads(stored.read_text(encoding="utf-8"))
    for damaged in ({"start": []}, {"start": [999]}, {"suppressed": None}):
        tokens = {**content["decoder_tokens"], **damaged}
        stored.write_text(json.dumps({**content, "decoder_tokens": tokens}), encoding="utf-8")
        with pytest.raises(Failure, match="decoder_tokens"):
            Vocabulary.load(stored)


@pytest.mark.parametrize(
    ("change_folder", "words"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "expected the model's tokenizer"),
        (lambda folder: change(folder, scale_embedding=True), "'scale_embedding'"),
        (lambda folder: (folder / "generation_config.json").write_text("[]"), "got list"),
        (lambda folder: change(folder, vocab_size=100), "do not fit the model"),
    ],
)
def test_damaged_folders_are_refused(desk: Path, change_folder: Any, words: str) -> None:
    change_folder(desk / "whisper")
    with pytest.raises(UserError) as caught:
        train(load_recipe(desk / "recipe.toml"), desk / "run")
    assert words in str(caught.value)


def test_contradictions_are_named(desk: Path) -> None:
    for key in ("encode.filterbank.kind=kaldi", "model.ctc=true", "model.encoder.layers=3"):
        error = error_of(load_recipe, desk / "recipe.toml", [key])
        assert "model.start_from determines it" in error.message
    (desk / "tag.toml").write_text(
        'task = "tag"\n[data]\ntrain = "a.conllu"\n[model]\nstart_from = "whisper"\n'
    )
    assert (
        "cannot start from a model of 'whisper'" in error_of(load_recipe, desk / "tag.toml").message
    )
