import sys
from types import SimpleNamespace

import pytest
import torch

from harken.errors import UserError
from harken.training import runtime
from harken.training.runtime import (
    RuntimeConfig,
    check_precision,
    choose_device,
    configure_process,
    has_bfloat16,
    mixed_precision,
)

CPU = torch.device("cpu")


def present(monkeypatch: pytest.MonkeyPatch, *, cuda: bool, mps: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "best"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_takes_the_fastest(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, best: str
) -> None:
    present(monkeypatch, cuda=cuda, mps=mps)
    assert choose_device("auto") == torch.device(best)
    assert choose_device("cpu") == CPU


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    present(monkeypatch, cuda=False, mps=True)
    with pytest.raises(UserError, match=r"'cuda' is not available .*mps, cpu") as caught:
        choose_device("cuda")
    assert "device 'auto'" in caught.value.fix


def test_tiny_numbers_are_zero_once_prepared() -> None:
    try:
        torch.set_flush_denormal(False)  # another test may have prepared this process before
        tiny = torch.full((17,), 1e-38)
        assert (tiny * 0.01 > 0).all()
        for _ in range(2):
            configure_process(CPU)
            assert (tiny * 0.01 == 0).all()
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_the_blocks_of_a_step_are_kept() -> None:
    import resource

    def pages_fetched() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(3):
            blocks = [torch.ones(10 << 20) for _ in range(3)]  # 40 MiB: above every threshold
            del blocks
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    configure_process(CPU)
    torch.set_flush_denormal(False)
    pages_fetched()
    assert pages_fetched() < 30_000  # 90,000 if they go back to the system every time


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_no_block_is_mapped_and_none_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether the second one matters in a given process depends on what lies at its heap's end.
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(
        gnu_get_libc_version=None, mallopt=lambda *setting: asked.append(setting)
    )
    monkeypatch.setattr(runtime.ctypes, "CDLL", lambda name: library)
    configure_process(CPU)
    torch.set_flush_denormal(False)
    # By malloc.h: -4 is M_MMAP_MAX, how many blocks may be mapped, -1 is M_TRIM_THRESHOLD.
    assert asked == [(-4, 0), (-1, 2**30)]


def test_precision_of_products() -> None:
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    with mixed_precision(RuntimeConfig(), CPU):
        assert (a @ b).dtype == torch.float32
    with mixed_precision(RuntimeConfig(precision="bfloat16"), CPU):
        assert (a @ b).dtype == torch.bfloat16
    assert (a @ b).dtype == torch.float32


@pytest.mark.parametrize(
    ("machine", "onednn", "avx", "amx", "supported"),
    [
        ("x86_64", True, True, False, True),
        ("AMD64", True, False, True, True),
        ("x86_64", True, False, False, False),  # AVX-512 without its bfloat16 instructions
        ("x86_64", False, False, False, False),
        ("aarch64", True, False, False, True),
        ("aarch64", False, False, False, False),
    ],
)
def test_bfloat16_needs_hardware(
    monkeypatch: pytest.MonkeyPatch,
    machine: str,
    onednn: bool,
    avx: bool,
    amx: bool,
    supported: bool,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert has_bfloat16(CPU) == supported
    check_precision(RuntimeConfig(), CPU)
    if supported:
        check_precision(RuntimeConfig(precision="bfloat16"), CPU)
    else:
        with pytest.raises(UserError, match="this cpu device has no bfloat16 instructions"):
            check_precision(RuntimeConfig(precision="bfloat16"), CPU)
