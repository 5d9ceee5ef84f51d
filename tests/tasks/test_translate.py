"""Translation: batches, pieces of long sources, and that a small model learns a made language."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch

from harken.cli.main import main
from harken.decode.search import SearchConfig
from harken.encode.subwords import BytePairConfig
from harken.encode.vocabulary import END, PAD, Vocabulary
from harken.errors import DataWarning, UserError
from harken.formats.examples import Pair
from harken.inspection.record import record
from harken.recipe import load_recipe
from harken.report.viewed_attention import view_attention
from harken.run import Run, load
from harken.synthetic.sentences import SentencesConfig, SentencesFiles, write_sentences
from harken.tasks.seq2seq import search_outputs
from harken.tasks.translate import (
    TranslateRecipe,
    TranslateTask,
    cut_between_words,
    encode_pairs,
    translation_loss,
)
from untrained import batches, bound_run

TASK = TranslateTask()
RECIPE = Path(__file__).parents[2] / "recipes" / "translate.toml"
SMALL = (
    "encode.vocab_size=300",
    "model.encoder.layers=1",
    "model.decoder.layers=1",
    "model.decoder.width=24",
    "model.encoder.attention.heads=2",
    "model.decoder.attention.heads=2",
    "model.encoder.max_length=40",
    "model.decoder.max_length=50",
    "training.pairs.batch_tokens=600",
    "search.beam=2",
)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> SentencesFiles:
    return write_sentences(SentencesConfig(sentences=250), tmp_path_factory.mktemp("sentences"))


def files(sentences: SentencesFiles) -> list[str]:
    return [
        f"data.{split}.{side}={getattr(sentences, f'{split}_{side}')}"
        for split in ("train", "dev", "test")
        for side in ("source", "target")
    ]


def recipe_of(sentences: SentencesFiles, *sets: str) -> TranslateRecipe:
    recipe = load_recipe(RECIPE, [*files(sentences), *SMALL, *sets])
    assert isinstance(recipe, TranslateRecipe)
    return recipe


@pytest.fixture(scope="module")
def run(sentences: SentencesFiles, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A translator of 200 lines, through the same command as any other."""
    folder = tmp_path_factory.mktemp("runs") / "translate"
    sets = [*files(sentences), *SMALL, "training.pairs.steps=30"]
    arguments = [part for one in sets for part in ("--set", one)]
    assert main(["train", str(RECIPE), "--run", str(folder), *arguments]) == 0
    return load(folder)


def test_the_commands_of_a_translator(
    run: Run, sentences: SentencesFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(run.folder)
    assert main(["evaluate", folder, "--split", "test", "--json"]) == 0
    named = json.loads(capsys.readouterr().out)
    assert named["metrics"].keys() == {"bleu", "chrf", "bleu_moses"}
    pair = ["--source", str(sentences.test_source), "--target", str(sentences.test_target)]
    assert main(["evaluate", folder, *pair, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == named
    assert main(["predict", folder, str(sentences.test_source)]) == 0
    said = capsys.readouterr().out.splitlines()
    wanted = sentences.test_target.read_text().splitlines()
    assert len(said) == len(wanted)
    theirs = sacrebleu.corpus_bleu(said, [wanted]).score
    assert named["metrics"]["bleu"]["value"] == pytest.approx(theirs, abs=1e-9)
    page = (run.folder / "report.html").read_text()
    assert "Cross-attention: target tokens to source tokens" in page


def test_nbest_is_sorted_and_truly_scored(run: Run) -> None:
    search = SearchConfig(beam=4, length_penalty=0.0)
    sources = ["the duck swims .", "they see a river ."]
    for prediction in run.searching(search).predict(sources, nbest=4):
        scores = [each.log_probability for each in prediction.nbest]
        assert len(scores) == 4 and scores == sorted(scores, reverse=True)
        assert prediction.output == prediction.nbest[0].output
        assert prediction.confidence == pytest.approx(np.exp(scores[0]))


def test_one_by_one_and_together_are_the_same(run: Run, sentences: SentencesFiles) -> None:
    sources = sentences.test_source.read_text().splitlines()[:13]
    together = run.predict(sources)
    alone = [prediction for source in sources for prediction in run.predict([source])]
    assert [one.output for one in together] == [one.output for one in alone]


def test_text_never_seen_and_very_long_lines(run: Run) -> None:
    asked = ["the duck . " * 400, "שלום עולם", "é" * 300, "\U0001f986", "x"]
    assert len(run.predict(asked)) == len(asked)


def test_a_long_source_is_cut_before_words() -> None:
    vocabulary = BytePairConfig(vocab_size=300).fit(["one two three four five six seven"] * 9)
    (tokens,) = vocabulary.encode(["one two three four five six seven " * 20])
    pieces = cut_between_words(tokens, 17, vocabulary)
    assert np.concatenate(pieces).tolist() == tokens.tolist()
    assert all(0 < len(piece) <= 17 for piece in pieces)
    texts = vocabulary.decode([piece.tolist() for piece in pieces])
    assert set(" ".join(texts).split()) == {"one", "two", "three", "four", "five", "six", "seven"}
    unbroken = np.full(50, vocabulary.encode(["one"])[0][-1])
    assert sum(map(len, cut_between_words(unbroken, 17, vocabulary))) == 50


def test_pairs_that_do_not_fit_are_left_out(sentences: SentencesFiles) -> None:
    vocabulary = BytePairConfig(vocab_size=300).fit(["a b c d"])
    pairs = [Pair("a b", "c"), Pair("a " * 90, "c"), Pair("a", "c " * 90)]
    with pytest.warns(DataWarning, match="2 of 3 pairs do not fit the model"):
        assert len(encode_pairs(pairs, vocabulary, 20, 20).lengths) == 1
    with pytest.raises(UserError, match="no training pair has at most 20 source and 20"):
        encode_pairs(pairs[1:], vocabulary, 20, 20)


def test_the_loss_is_pytorchs_smoothed_one(sentences: SentencesFiles, tmp_path: Path) -> None:
    recipe = recipe_of(sentences)
    splits = TASK.read_splits(recipe)
    vocabulary = TASK.fit(recipe, splits["train"])
    model = TASK.build(recipe, vocabulary.sizes).eval()
    (stage,) = TASK.stages(recipe, splits, vocabulary, tmp_path)
    (batch,) = batches(stage, 2)
    assert batch.source.numel() <= 600 and batch.inputs.numel() <= 600
    theirs = torch.nn.CrossEntropyLoss(label_smoothing=0.1, reduction="sum")
    scores = model(batch.source, batch.present, batch.inputs)
    expected = theirs(scores.transpose(1, 2), batch.targets)
    assert translation_loss(0.1)(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.equal(batches(stage, 2)[0].source, batch.source)


def test_a_share_for_dev_is_split_by_source(sentences: SentencesFiles, tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("a\tx\na\ty\nb\tz\nc\tw\n\nd\tv\n")
    recipe = recipe_of(sentences)
    recipe = replace(recipe, data=replace(recipe.data, train=table, dev=0.5))
    splits = TASK.read_splits(recipe)
    sides = [{pair.source for pair in splits[name]} for name in ("train", "dev")]
    assert len(sides[0]) == len(sides[1]) == 2 and not sides[0] & sides[1]


def test_a_look_is_at_the_hypothesis_that_was_kept(run: Run) -> None:
    (asked,) = run.inputs(1)
    assert asked == TASK.read_splits(run.recipe)["dev"][0].source
    (said,) = run.predict([asked])
    glimpse = run.attention(asked)
    assert glimpse is not None and glimpse.title == f"{asked} → {said.output}"
    found = {one.view.title: one for one in view_attention(run.model, glimpse)}
    cross, read, written = found.values()
    assert "".join(read.view.keys).strip() == asked
    assert read.view.queries == read.view.keys == cross.view.keys
    assert cross.view.queries == written.view.queries
    assert list(written.view.keys) == ["<end>", *written.view.queries[:-1]]
    decided = [one for one in written.view.queries if one != "<end>"]
    assert "".join(decided).strip() == said.output
    for value in found.values():
        for weights in (layer.weights for layer in value.layers):
            assert weights.shape == (2, len(value.view.queries), len(value.view.keys))
            np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-5)
    assert not any(np.triu(layer.weights[0], 1).any() for layer in written.layers)


def test_rows_are_those_of_a_search_step_by_step(run: Run) -> None:
    """One token after the other, as a search tells them."""
    glimpse = run.attention("the duck swims .")
    assert glimpse is not None
    cross = view_attention(run.model, glimpse)[0]
    assert isinstance(run.vocabulary, Vocabulary)
    (source,) = run.vocabulary.encode(["the duck swims ."])
    ((found,),) = search_outputs(
        run.model,
        torch.tensor([source.tolist()]),
        torch.ones(1, len(source)).bool(),
        run.recipe.search,
    )
    one = torch.ones(1, 1, dtype=torch.bool)
    rows = []
    with torch.inference_mode():
        state = run.model.init_state(
            torch.tensor([source.tolist()]), torch.ones(1, len(source)).bool()
        )
        for token in [END, *found.tokens][: len(cross.view.queries)]:
            with record(run.model) as seen:
                _, state = run.model.step(torch.tensor([[token]]), one, state)
            rows += [call.weights[0, :, 0] for call in seen if call.name.endswith("cross")]
    np.testing.assert_allclose(cross.layers[0].weights, torch.stack(rows, dim=1).numpy(), atol=1e-5)


def test_what_is_too_long_or_empty_to_be_looked_at(run: Run) -> None:
    glimpse = run.attention("the duck . " * 400)
    assert glimpse is not None
    cross, *_ = view_attention(run.model, glimpse)
    assert len(cross.view.keys) <= 40 and len(cross.view.queries) <= 50
    assert run.attention("") is None


def test_a_model_without_attention_to_show_still_reports(run: Run) -> None:
    silent = run.predictor.evaluate([Pair(" ", "nothing")])
    assert silent.example is not None and run.attention(silent.example) is None


@pytest.mark.parametrize(
    "sets",
    [
        ("model.decoder.kind=rnn", "model.decoder.hidden=24", "model.encoder.kind=gru"),
        ("model.encoder.kind=gated",),
    ],
    ids=["rnn", "cnn"],
)
def test_other_bodies_by_one_line_learn(
    sets: tuple[str, ...], sentences: SentencesFiles, tmp_path: Path
) -> None:
    """A table that changes kind starts from that kind's defaults."""
    text = RECIPE.read_text()
    for kind in ("encoder", "decoder"):
        if any(one.startswith(f"model.{kind}.kind") for one in sets):
            head, rest = text.split(f"[model.{kind}]\n")
            text = head + rest[rest.index("\n[") :] if "\n[" in rest else head
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    small = [one for one in SMALL if not one.startswith("model.")]
    recipe = load_recipe(path, [*files(sentences), *small, *sets, "model.decoder.width=24"])
    assert isinstance(recipe, TranslateRecipe)
    splits = TASK.read_splits(recipe)
    vocabulary = TASK.fit(recipe, splits["train"])
    model = TASK.build(recipe, vocabulary.sizes)
    (stage,) = TASK.stages(recipe, splits, vocabulary, tmp_path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(25):
        (batch,) = stage.batch(step)
        loss = batch.loss(model, torch.device("cpu")) / batch.counted
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    (prediction,) = bound_run(recipe, vocabulary, model).predict(["the duck swims ."])
    assert prediction.output and 0 <= prediction.confidence < 1


def test_special_tokens_are_where_the_model_expects_them(run: Run) -> None:
    assert isinstance(run.vocabulary, Vocabulary)
    assert run.vocabulary.pieces([PAD, END]) == ["<pad>", "<end>"]
