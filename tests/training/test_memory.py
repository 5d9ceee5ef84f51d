from pathlib import Path

import pytest
import torch
from torch import nn

from harken.cli.main import main
from harken.config import as_plain, dumps, loads
from harken.config.schema import config_types, find_class, key_specs, types_of
from harken.encode.vocabulary import VocabularySizes
from harken.errors import UserError
from harken.recipe import load_recipe, recipe_type, task_of
from harken.training import memory
from harken.training.memory import check_model_size
from small_recipe import SMALL

CPU = torch.device("cpu")
RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


SIZES = VocabularySizes(1000, characters=100, tags=2)


def test_parameters_and_buffers_are_counted_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> nn.Module:
        layer = nn.Linear(1009, 17)
        layer.register_buffer("mask", torch.zeros(31))
        return layer

    count = 1009 * 17 + 17 + 31
    for available in (8 * count, 8 * count - 1):
        monkeypatch.setattr(memory, "memory_bytes", lambda device, limit=available: limit)
        if available == 8 * count:
            model = check_model_size(build, "r", bytes_per_parameter=8, device=CPU)
            assert all(parameter.is_meta for parameter in model.parameters())
        else:
            with pytest.raises(UserError, match=rf"\[model\] has {count:,} parameters.*'weight'"):
                check_model_size(build, "r", bytes_per_parameter=8, device=CPU)
    assert not nn.Linear(2, 2).weight.is_meta


def test_a_model_beyond_the_size_of_tensors_is_refused() -> None:
    with pytest.raises(UserError, match="too large for any tensor"):
        check_model_size(lambda: nn.Linear(2**40, 2**40), "r", bytes_per_parameter=4, device=CPU)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.width=1000000000", "model.width: expected a number at least 1 and at most"),
        ("model.layers=100000", "at least 1 and at most 1000, got 100000"),
        ("model.attention.heads=9223372036854775807", "model.attention.heads: expected a number"),
        ("training.pretrain.batch_tokens=1000000000000", "batch_tokens: expected a number"),
        ("training.finetune.steps=100000000000000000000", "steps: expected a whole number"),
        ("model.width=1048576", "[model] has"),
    ],
)
def test_too_large_models_leave_no_run_folder(
    recipe_file: Path,
    tmp_path: Path,
    setting: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sets = [word for value in (*SMALL, setting) for word in ("--set", value)]
    assert main(["train", str(recipe_file), *sets, "--run", str(tmp_path / "run")]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "harken: " in line]
    assert message in line
    assert not (tmp_path / "run").exists()


def integers(plain: dict[str, object], kinds: tuple[type, ...]) -> list[tuple[str, float]]:
    """Return the dotted key of every integer of a recipe, with its maximum."""
    tags = [plain[key] for key in ("task", "kind", "input") if key in plain]
    kind = find_class(tags[0], kinds) if len(kinds) > 1 else kinds[0]
    assert kind is not None
    keys = []
    for name, spec in key_specs(kind).items():
        value = plain.get(name)
        if isinstance(value, dict) and (inner := config_types(spec.types)):
            keys += [(f"{name}.{key}", maximum) for key, maximum in integers(value, inner)]
        elif int in spec.types:
            keys.append((name, spec.bounds["at_most"]))
    return keys


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_integer_has_a_maximum_up_to_which_nothing_overflows(path: Path) -> None:
    """A larger value is refused by name; at the maximum the size of the model is checked."""
    recipe = load_recipe(path)
    text, base = dumps(recipe), path.parent
    for key, maximum in integers(as_plain(recipe), types_of(recipe_type())):
        for beyond in (int(maximum) + 1, 2**64):
            with pytest.raises(UserError, match=key):
                loads(recipe_type(), text, base=base, overrides=[f"{key}={beyond}"])
        try:
            largest = loads(recipe_type(), text, base=base, overrides=[f"{key}={int(maximum)}"])
            check_model_size(
                lambda: task_of(largest).build(largest, SIZES),  # noqa: B023
                "recipe",
                bytes_per_parameter=4,
                device=CPU,
            )
        except UserError:
            continue
