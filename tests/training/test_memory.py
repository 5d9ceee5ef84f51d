from pathlib import Path

import pytest
import torch
from torch import nn

from harken.cli.main import main
from harken.config import as_plain, dumps, loads
from harken.config.schema import key_specs, kind_named, types_of
from harken.encode.vocabulary import VocabularySizes
from harken.errors import UserError
from harken.recipe import Recipe, load_recipe, task_of
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
        monkeypatch.setattr(memory, "memory_bytes", lambda device, found=available: found)
        if available == 8 * count:
            model = check_model_size(build, "r", bytes_per_parameter=8, device=CPU)
            assert all(parameter.is_meta for parameter in model.parameters())
        else:
            with pytest.raises(UserError, match=rf"\[model\] has {count:,} parameters.*'weight'"):
                check_model_size(build, "r", bytes_per_parameter=8, device=CPU)
    assert not nn.Linear(2, 2).weight.is_meta


def test_a_model_of_too_many_numbers_for_any_tensor_is_refused() -> None:
    with pytest.raises(UserError, match="too large for any tensor"):
        check_model_size(lambda: nn.Linear(2**40, 2**40), "r", bytes_per_parameter=4, device=CPU)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.width=1000000000", "model.width: expected a number at least 1 and at most"),
        (
            "model.layers=100000",
            "at least 1 and at most 1000, got 100000",
        ),
        ("model.attention.heads=9223372036854775807", "model.attention.heads: expected a number"),
        ("training.pretrain.batch_tokens=1000000000000", "batch_tokens: expected a number"),
        (
            "training.finetune.steps=100000000000000000000",
            "steps: expected a whole number",
        ),
        ("model.width=1048576", "[model] has"),
    ],
)
def test_sizes_beyond_the_machine_leave_nothing_behind(
    recipe_file: Path,
    tmp_path: Path,
    setting: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sets = [word for one in (*SMALL, setting) for word in ("--set", one)]
    assert main(["train", str(recipe_file), *sets, "--run", str(tmp_path / "run")]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "harken: " in line]
    assert message in line
    assert not (tmp_path / "run").exists()


def integers(plain: dict[str, object], kinds: tuple[type, ...]) -> list[tuple[str, float]]:
    """The dotted key of every whole number of a recipe, with its largest value."""
    record = kind_named(plain.get("task", plain.get("kind")), kinds) if len(kinds) > 1 else kinds[0]
    assert record is not None
    found = []
    for name, slot in key_specs(record).items():
        value = plain.get(name)
        inner = tuple(kind for kind in slot.types if hasattr(kind, "__dataclass_fields__"))
        if isinstance(value, dict) and inner:
            found += [(f"{name}.{key}", most) for key, most in integers(value, inner)]
        elif int in slot.types:
            found.append((name, slot.limits["at_most"]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_whole_number_has_a_bound_up_to_which_nothing_overflows(path: Path) -> None:
    """Above its bound a key is refused by name; at its bound the model is sized, not built."""
    recipe = load_recipe(path)
    text, base = dumps(recipe), path.parent
    for key, most in integers(as_plain(recipe), types_of(Recipe)):
        for beyond in (int(most) + 1, 2**64):
            with pytest.raises(UserError, match=key):
                loads(Recipe, text, base=base, overrides=[f"{key}={beyond}"])
        try:
            largest = loads(Recipe, text, base=base, overrides=[f"{key}={int(most)}"])
            check_model_size(
                lambda: task_of(largest).build(largest, SIZES),  # noqa: B023
                "recipe",
                bytes_per_parameter=4,
                device=CPU,
            )
        except UserError:
            continue
