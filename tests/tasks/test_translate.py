"""Translation: batches, long sources, attention, and training on a synthetic language."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch

from command_line import Cli
from harken import config
from harken.cli.main import main
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import Seq2SeqStepper
from harken.encode.subwords import BytePairConfig
from harken.encode.vocabulary import END, Vocabulary
from harken.errors import DataWarning, UserError
from harken.formats.examples import Pair
from harken.inspection.record import record
from harken.recipe import Recipe, load_recipe
from harken.report.viewed_attention import view_attention
from harken.run import Run, load
from harken.synthetic.sentences import SentencesConfig, SentencesFiles, write_sentences
from harken.tasks.seq2seq import cross_entropy_loss
from harken.tasks.translate import TranslateRecipe, TranslateTask, cut_between_words, encode_pairs
from untrained import batches, initial_run, stages_of

TASK = TranslateTask()
RECIPE = Path(__file__).parents[2] / "recipes" / "translate.toml"
SMALL = (
    "encode.vocab_size=300",
    "model.encoder={layers=1,max_length=40,attention={heads=2}}",
    "model.decoder={layers=1,width=24,max_length=50,attention={heads=2}}",
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
    return load_recipe(RECIPE, [*files(sentences), *SMALL, *sets])


@pytest.fixture(scope="module")
def run(sentences: SentencesFiles, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A translator that was trained with the command."""
    folder = tmp_path_factory.mktemp("runs") / "translate"
    sets = [*files(sentences), *SMALL, "training.pairs.steps=30"]
    arguments = [part for setting in sets for part in ("--set", setting)]
    assert main(["train", str(RECIPE), "--run", str(folder), *arguments]) == 0
    return load(folder)


def test_the_commands_of_a_translator(
    run: Run, sentences: SentencesFiles, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(capsys)
    named = cli.json("evaluate", run.folder, "--split", "test")
    assert named["metrics"].keys() == {"bleu", "chrf", "bleu_moses"}
    pair = ["--source", sentences.test_source, "--target", sentences.test_target]
    assert cli.json("evaluate", run.folder, *pair) == named
    outputs = cli("predict", run.folder, sentences.test_source).out.splitlines()
    expected = sentences.test_target.read_text().splitlines()
    assert len(outputs) == len(expected)
    theirs = sacrebleu.corpus_bleu(outputs, [expected]).score
    assert named["metrics"]["bleu"]["value"] == pytest.approx(theirs, abs=1e-9)
    page = (run.folder / "report.html").read_text()
    assert "Cross-attention: target tokens to source tokens" in page


def test_nbest_is_sorted(run: Run) -> None:
    search = SearchConfig(beam=4, length_penalty=0.0)
    sources = ["the duck swims .", "they see a river ."]
    for prediction in run.with_search(search).predict(sources, nbest=4):
        scores = [each.log_probability for each in prediction.nbest]
        assert len(scores) == 4 and scores == sorted(scores, reverse=True)
        assert prediction.output == prediction.nbest[0].output
        assert prediction.confidence == pytest.approx(np.exp(scores[0]))


def test_a_long_source_is_cut_before_words() -> None:
    vocabulary = BytePairConfig(vocab_size=300).fit(["one two three four five six seven"] * 9)
    (tokens,) = vocabulary.encode(["one two three four five six seven " * 20])
    chunks = cut_between_words(tokens, 17, vocabulary)
    assert np.concatenate(chunks).tolist() == tokens.tolist()
    assert all(0 < len(chunk) <= 17 for chunk in chunks)
    texts = vocabulary.decode([chunk.tolist() for chunk in chunks])
    assert set(" ".join(texts).split()) == {"one", "two", "three", "four", "five", "six", "seven"}
    unbroken = np.full(50, vocabulary.encode(["one"])[0][-1])
    assert sum(map(len, cut_between_words(unbroken, 17, vocabulary))) == 50


def test_pairs_that_do_not_fit_are_left_out(sentences: SentencesFiles) -> None:
    vocabulary = BytePairConfig(vocab_size=300).fit(["a b c d"])
    pairs = [Pair("a b", "c"), Pair("a " * 90, "c"), Pair("a", "c " * 90)]
    with pytest.warns(DataWarning, match="2 of 3 pairs do not fit the model"):
        assert len(encode_pairs(pairs, vocabulary, 20, 20)[0].lengths) == 1
    with pytest.raises(UserError, match="no training pair has at most 20 source and 20"):
        encode_pairs(pairs[1:], vocabulary, 20, 20)


def test_the_loss_equals_pytorch(sentences: SentencesFiles, tmp_path: Path) -> None:
    untrained = initial_run(recipe_of(sentences))
    model, (stage,) = untrained.model, stages_of(untrained, tmp_path)
    (batch,) = batches(stage, 2)
    assert batch.source.numel() <= 600 and batch.inputs.numel() <= 600
    theirs = torch.nn.CrossEntropyLoss(label_smoothing=0.1, reduction="sum")
    scores = model(batch.source, batch.present, batch.inputs)
    expected = theirs(scores.transpose(1, 2), batch.targets)
    assert cross_entropy_loss(0.1)(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.equal(batches(stage, 2)[0].source, batch.source)


def test_a_share_for_dev_is_split_by_source(sentences: SentencesFiles, tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("a\tx\na\ty\nb\tz\nc\tw\n\nd\tv\n")
    recipe = recipe_of(sentences)
    recipe = replace(recipe, data=replace(recipe.data, train=table, dev=0.5))
    splits = TASK.read_splits(recipe)
    sides = [{pair.source for pair in splits[name]} for name in ("train", "dev")]
    assert len(sides[0]) == len(sides[1]) == 2 and not sides[0] & sides[1]


def test_attention_of_the_best_hypothesis(run: Run) -> None:
    (source,) = run.inputs(1)
    assert source == TASK.read_splits(run.recipe)["dev"][0].source
    (prediction,) = run.predict([source])
    example = run.attention(source)
    assert example is not None and example.title == f"{source} → {prediction.output}"
    views = view_attention(run.model, example)
    cross, encoder, decoder = views
    assert "".join(encoder.view.keys).strip() == source
    assert encoder.view.queries == encoder.view.keys == cross.view.keys
    assert cross.view.queries == decoder.view.queries
    assert list(decoder.view.keys) == ["<end>", *decoder.view.queries[:-1]]
    tokens = [token for token in decoder.view.queries if token != "<end>"]
    assert "".join(tokens).strip() == prediction.output
    for value in views:
        for weights in (layer.weights for layer in value.layers):
            assert weights.shape == (2, len(value.view.queries), len(value.view.keys))
            np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-5)
    assert not any(np.triu(layer.weights[0], 1).any() for layer in decoder.layers)


def test_attention_equals_that_of_single_steps(run: Run) -> None:
    example = run.attention("the duck swims .")
    cross = view_attention(run.model, example)[0]
    assert isinstance(run.vocabulary, Vocabulary)
    (source,) = run.vocabulary.encode(["the duck swims ."])
    inputs = torch.tensor([source.tolist()]), torch.ones(1, len(source)).bool()
    stepper, limit = Seq2SeqStepper(run.model, END), run.model.max_target
    search = run.recipe.search
    ((best,),) = generate(stepper, *inputs, search=search, end=END, max_tokens=limit)
    present = torch.ones(1, 1, dtype=torch.bool)
    rows = []
    with torch.inference_mode():
        state = run.model.init_state(*inputs)
        for token in [END, *best.tokens][: len(cross.view.queries)]:
            with record(run.model) as calls:
                _, state = run.model.step(torch.tensor([[token]]), present, state)
            rows += [call.weights[0, :, 0] for call in calls if call.name.endswith("cross")]
    np.testing.assert_allclose(cross.layers[0].weights, torch.stack(rows, dim=1).numpy(), atol=1e-5)


def test_unknown_long_and_empty_inputs(run: Run) -> None:
    inputs = ["the duck . " * 400, "שלום עולם", "é" * 300, "\U0001f986", "x"]
    assert len(run.predict(inputs)) == len(inputs)
    example = run.attention(inputs[0])
    cross, *_ = view_attention(run.model, example)
    assert len(cross.view.keys) <= 40 and len(cross.view.queries) <= 50
    assert run.attention("") is None
    evaluation = run.predictor.evaluate([Pair(" ", "nothing")])
    assert evaluation.example is not None and run.attention(evaluation.example) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    ["{encoder={kind='gru'},decoder={kind='rnn',hidden=24,width=24}}", "{encoder={kind='gated'}}"],
)
def test_other_encoders_and_decoders_learn(
    model: str, sentences: SentencesFiles, tmp_path: Path
) -> None:
    small = [setting for setting in SMALL if not setting.startswith("model.")]
    sets = ["task=translate", *files(sentences), *small, f"model={model}"]
    recipe = config.loads(Recipe, "", base=tmp_path, overrides=sets)
    untrained = initial_run(recipe)
    model, (stage,) = untrained.model.train(), stages_of(untrained, tmp_path)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(15):
        (batch,) = stage.batch(step)
        loss = batch.loss(model, torch.device("cpu")) / batch.num_targets
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    (prediction,) = untrained.predict(["the duck swims ."])
    assert prediction.output and 0 <= prediction.confidence < 1
