"""Every name of `import harken`, on a run, a Hugging Face folder and a user's own module."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import GPT2Config, GPT2LMHeadModel

import harken
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import LMStepper
from huggingface_folder import save_gpt2

TOKENS = torch.arange(1, 15).reshape(2, 7)
VOCABULARY = 19


class Own(nn.Module):
    """A user's language model, of PyTorch's layers only."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 12)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(12, 3, 16, batch_first=True, dropout=0.0) for _ in range(2)
        )
        self.head = nn.Linear(12, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embedding(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.layers:
            states = layer(states, src_mask=mask, is_causal=True)
        return self.head(states)


Subject = tuple[str, nn.Module, str]


@pytest.fixture(scope="module", params=["run", "folder", "transformers", "own"])
def subject(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Subject:
    """(kind, model, the path of its first attention)."""
    torch.manual_seed(0)
    if request.param == "run":
        small_run: Path = request.getfixturevalue("small_run")
        return "run", harken.load(small_run).model, "stack.blocks.0.attention"
    if request.param == "own":
        return "own", Own().eval(), "layers.0.self_attn"
    folder = save_gpt2(tmp_path_factory.mktemp("gpt2"))
    if request.param == "folder":
        return "folder", harken.load_huggingface(folder).model, "stack.blocks.0.attention"
    model = GPT2LMHeadModel.from_pretrained(folder).eval()
    return "transformers", model, "transformer.h.0.attn"


def logits(model: nn.Module, tokens: Tensor = TOKENS) -> Tensor:
    output = model(tokens)
    return getattr(output, "logits", output)


def test_record(subject: Subject) -> None:
    kind, model, name = subject
    pattern = {"own": "layers.*.linear2", "transformers": "*.mlp"}.get(kind, "*.feedforward")
    with torch.no_grad():
        plain = logits(model)
        with harken.record(model, outputs=pattern, residual=True) as records:
            assert_close(logits(model), plain)
    assert (records[0].name, records[0].layer, len(records)) == (name, 1, 2)
    heads = records[0].weights.shape[1]
    assert records[0].weights.shape == (2, heads, 7, 7)
    assert_close(records[0].weights.sum(dim=-1), torch.ones(2, heads, 7))
    assert len(records.outputs) == len(records.residual) == 2
    first, second = records.residual
    assert second.input is not None and torch.equal(first.output, second.input)


def test_ablate(subject: Subject) -> None:
    """A head is its slice of the input of the output projection."""
    kind, model, name = subject
    attention = model.get_submodule(name)
    assert isinstance(attention, nn.Module)
    with torch.no_grad(), harken.record(model) as records:
        plain = logits(model)
    heads = records[0].weights.shape[1]
    project: Any = getattr(attention, "out_proj", getattr(attention, "c_proj", None))
    if kind == "own":  # nn.MultiheadAttention does not call its projection: mask its columns
        width = 12 // heads
        stored = attention.out_proj.weight.detach().clone()
        with torch.no_grad():
            attention.out_proj.weight[:, :width] = 0
            expected = logits(model)
            attention.out_proj.weight.copy_(stored)
    else:

        def without(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
            joined = inputs[0].clone()
            joined[..., : joined.shape[-1] // heads] = 0
            return joined

        hook = project.register_forward_pre_hook(without)
        with torch.no_grad():
            expected = logits(model)
        hook.remove()
    with torch.no_grad(), harken.ablate(model, name, head=1):
        assert_close(logits(model), expected)
    assert (expected - plain).abs().max() > 1e-6
    layer = name.rpartition(".")[0]
    with torch.no_grad(), harken.ablate(model, layer), harken.record(model, residual=True) as seen:
        logits(model)
    (passed, *_) = [activation for activation in seen.residual if activation.name == layer]
    assert passed.input is not None
    with torch.no_grad(), harken.ablate(model, name):
        assert (logits(model) - plain).abs().max() > 1e-6
        with (
            pytest.raises(harken.UserError, match="does not exist"),
            harken.ablate(model, name, 99),
        ):
            logits(model)
    assert_close(logits(model), plain)


def test_heads(subject: Subject) -> None:
    kind, model, _ = subject
    with torch.inference_mode(), harken.record(model) as records:
        logits(model)
    results = harken.heads(model, TOKENS)
    per_layer = records[0].weights.shape[1]
    assert [(head.layer, head.head) for head in results] == [
        (layer, head) for layer in (1, 2) for head in range(1, per_layer + 1)
    ]
    for head in results[:per_layer]:
        weights = records[0].weights[:, head.head - 1]
        previous = weights.diagonal(offset=-1, dim1=1, dim2=2).mean()
        assert head.previous_token == pytest.approx(float(previous), abs=1e-6)
        entropy = -(weights * weights.clamp(min=1e-30).log()).sum(dim=-1).mean()
        assert head.entropy == pytest.approx(float(entropy), abs=1e-5)
        assert head.offset is not None and 0 <= head.offset <= 6
        assert (head.weights_offset is None) == (kind in ("own", "transformers"))
    twice = harken.heads(model, [TOKENS, TOKENS])
    assert [head.entropy for head in twice] == pytest.approx([head.entropy for head in results])


def test_heads_of_a_padded_batch_are_those_of_its_rows() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=19, n_layer=1, n_embd=12, n_head=3)).eval()
    rows = [{"input_ids": TOKENS[:1]}, {"input_ids": TOKENS[1:, :5]}]
    mask = torch.ones_like(TOKENS)
    mask[1, 5:] = 0
    padded = harken.heads(model, {"input_ids": TOKENS, "attention_mask": mask})
    for item, other in zip(harken.heads(model, rows), padded, strict=True):
        assert (item.queries, other.queries) == (12, 12)
        assert item.entropy == pytest.approx(other.entropy, abs=1e-5)
        assert item.previous_token == pytest.approx(other.previous_token, abs=1e-5)


def test_patch(subject: Subject) -> None:
    _, model, _ = subject
    corrupted = TOKENS.clone()
    corrupted[:, 2] = 3
    result = harken.patch(model, TOKENS, corrupted, parts="layers", by_position=True)
    assert [part.label for part in result.parts] == ["L1", "L2"]
    assert result.positions is not None and result.positions.shape == (2, 7)
    assert result.positions[:, :2].abs().max() < 1e-3  # a causal model: nothing differs before

    def last(output: Any) -> Tensor:
        return getattr(output, "logits", output)[:, -1, 5]

    heads = harken.patch(model, TOKENS, corrupted, metric=last)
    assert len(heads.parts) == len(harken.heads(model, TOKENS))
    with torch.inference_mode():
        above, below = (float(last(model(tokens)).mean()) for tokens in (TOKENS, corrupted))
        assert (heads.clean, heads.corrupted) == pytest.approx((above, below), abs=1e-5)
    assert heads.shares.abs().max() > 1e-4


@torch.no_grad()
def test_search(subject: Subject) -> None:
    """A function without a cache finds what a beam over the model's own steps finds."""
    kind, model, _ = subject
    prompts = [[4, 5, 6], [7, 8], [9, 3, 2]]
    options: dict[str, Any] = {"beam": 4, "nbest": 2, "end": 0, "max_tokens": 6}
    results = harken.search(lambda tokens: logits(model, tokens), prompts, **options)
    assert [len(row) for row in results] == [2, 2, 2]
    tensors = list(map(torch.tensor, prompts))  # rows may also be tensors
    attended = harken.search(model, tensors, attention=True, **options)
    for row, other, prompt in zip(results, attended, prompts, strict=True):
        assert [best.tokens for best in row] == [best.tokens for best in other]
        for best, with_attention in zip(row, other, strict=True):
            prefix = torch.tensor([[*prompt, *best.tokens]])
            log_probs = logits(model, prefix).double().log_softmax(dim=-1)[0, len(prompt) - 1 :]
            written = [*best.tokens, 0][:6]
            total = sum(float(log_probs[step, token]) for step, token in enumerate(written))
            assert best.log_probability == pytest.approx(total, abs=1e-4)
            assert with_attention.log_probability == pytest.approx(total, abs=1e-4)
            with torch.inference_mode(), harken.record(model) as records:
                logits(model, prefix[:, : len(prompt) + len(written) - 1])
            assert [call.name for call in records] == [
                step.name for step in with_attention.attention
            ]
            for call, step in zip(records, with_attention.attention, strict=True):
                assert_close(step.weights, call.weights[0, :, len(prompt) - 1 :], atol=1e-5, rtol=0)
    if kind in ("run", "folder"):
        tokens = torch.tensor([[4, 5, 6]])
        (expected,) = generate(
            LMStepper(model),  # type: ignore[arg-type]
            tokens,
            tokens > 0,
            search=SearchConfig(beam=4),
            end=0,
            max_tokens=6,
            nbest=2,
        )
        assert [best.tokens for best in expected] == [best.tokens for best in results[0]]


def test_samples_depend_on_the_seed_and_the_index_of_the_prompt_alone() -> None:
    model = harken.GPT(vocabulary=19, layers=1, width=12, heads=3, max_length=16)
    options: dict[str, Any] = {"end": 0, "max_tokens": 8, "temperature": 1.0}
    prompts = [[4, 5], [6], [4, 5]]

    def sampled(model: Callable[[Tensor], Tensor], seed: int) -> list[Any]:
        results = harken.search(model, prompts, seed=seed, **options)
        return [hypothesis.tokens for (hypothesis,) in results]

    first = sampled(model, 1)
    assert first == sampled(lambda tokens: model(tokens), 1) != sampled(model, 2)
    assert first[0] != first[2]


def test_models_and_layers() -> None:
    model = harken.GPT(vocabulary=256, layers=2, width=64, heads=4, max_length=32, seed=0)
    tokens = torch.randint(256, (2, 16))
    assert model(tokens).shape == (2, 16, 256)
    assert (
        sum(weight.numel() for weight in model.parameters())
        == harken.cost(model, tokens).parameters
    )
    layer = harken.MultiHead(width=12, heads=3, causal=True)
    inputs, reference = (
        torch.randn(2, 7, 12),
        nn.MultiheadAttention(12, 3, bias=False, batch_first=True),
    )
    score = layer.attention.score
    with torch.no_grad():
        projections = [score.q_proj, score.k_proj, layer.attention.v_proj]  # type: ignore[union-attr]
        reference.in_proj_weight.copy_(torch.cat([part.weight for part in projections]))
        reference.out_proj.weight.copy_(layer.attention.out_proj.weight)
    hidden = torch.ones(7, 7).triu(1).bool()
    expected, _ = reference(inputs, inputs, inputs, attn_mask=hidden)
    assert_close(layer(inputs), expected)
    present = torch.ones(2, 7).bool()
    present[1, 4:] = False
    expected, _ = reference(inputs, inputs, inputs, attn_mask=hidden, key_padding_mask=~present)
    assert_close(layer(inputs, present), expected)
    (head, *_) = harken.heads(layer, inputs)
    assert head.offset is not None and head.label == "L1.H1"


def test_costs(subject: Subject) -> None:
    _, model, _ = subject
    results = harken.cost(model, TOKENS)
    assert results.parameters == sum(weight.numel() for weight in model.parameters())
    assert results.flops > 0 and results.depth > 0 and results.peak > 0


small = harken.GPT(vocabulary=19, layers=1, width=12, heads=3, max_length=8)
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "width": (lambda: harken.GPT(vocabulary=9, width=10, heads=4), "harken.GPT: width 10 does not"),
    "layers": (lambda: harken.GPT(vocabulary=9, layers=0), "harken.GPT: layers: expected"),
    "vocabulary": (lambda: harken.GPT(vocabulary=True), "vocabulary: expected an integer"),
    "kind": (lambda: harken.GPT(vocabulary=9, position="rotry"), "unknown kind 'rotry'"),
    "heads": (lambda: harken.MultiHead(width=10, heads=4), "harken.MultiHead: width 10 does not"),
    "shape": (lambda: harken.MultiHead(width=4, heads=2)(TOKENS), "expected inputs of shape"),
    "no module": (lambda: harken.heads(3, TOKENS), "expected a torch.nn.Module, got int"),
    "empty": (lambda: harken.Selection(heads=()), "one or more different heads"),
    "inputs": (lambda: harken.heads(small, 3), "inputs: expected a tensor"),
    "input": (lambda: harken.heads(small, ["a"]), "inputs: expected a tensor"),
    "path": (lambda: harken.ablate(small, "h.0").__enter__(), "'h.0': no such module in GPT"),
    "no head": (lambda: harken.ablate(small, "stack", 1).__enter__(), "which has no heads"),
    "clean": (lambda: harken.patch(small, [1], TOKENS), "clean: expected tokens (batch, time)"),
    "lengths": (lambda: harken.patch(small, TOKENS, TOKENS[:, :3]), "expected equal shapes"),
    "parts": (lambda: harken.patch(small, TOKENS, TOKENS + 1, parts="head"), "parts: expected"),
    "prompts": (lambda: harken.search(small, [[]], end=0, max_tokens=2), "prompts: expected rows"),
    "token": (lambda: harken.search(small, [[19]], end=0, max_tokens=2), "tokens below 19"),
    "long": (lambda: harken.search(small, [[1]], end=0, max_tokens=9), "expected at most 8"),
    "beam": (lambda: harken.search(small, [[1]], end=0, max_tokens=2, beam=0), "beam: expected"),
    "both": (
        lambda: harken.search(small, [[1]], end=0, max_tokens=2, beam=2, temperature=1.0),
        "harken.search: ",
    ),
    "no logits": (lambda: harken.search(len, [[1]], end=0, max_tokens=2), "model: expected logits"),
    "no model": (lambda: harken.search(3, [[1]], end=0, max_tokens=2), "a module or a function"),
    "no weights": (
        lambda: harken.search(len, [[1]], end=0, max_tokens=2, attention=True),
        "expected a torch.nn.Module",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_one_sentence(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(harken.UserError, match=re.escape(message)):
        call()


def test_every_name_exists_and_has_an_example() -> None:
    assert 18 <= len(harken.__all__) <= 22
    for name in set(harken.__all__) - {"__version__"}:
        text = getattr(harken, name).__doc__
        assert text, name
        if name not in ("Failure", "UserError", "Run"):
            assert f"harken.{name}" in text, f"{name} shows no example"


def test_importing_harken_imports_no_pytorch() -> None:
    code = "import sys, harken; assert 'torch' not in sys.modules; assert 'record' in dir(harken)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        harken.nothing  # noqa: B018


def test_record_checks_its_arguments() -> None:
    """In a process without the type checks of the tests."""
    code = """
import harken
for arguments in (("runs/demo",), (harken.MultiHead(width=4, heads=2), "L1")):
    try:
        with harken.record(*arguments):
            raise AssertionError
    except harken.UserError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "expected a torch.nn.Module, got str" in done.stdout
    assert "expected a harken.Selection, got 'L1'" in done.stdout
