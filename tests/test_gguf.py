"""GGUF files: opened once, dequantised and kept; whatever is wrong with one is a sentence."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from decoders import Prompt, UserError, generate, load, load_target, record, save
from decoders.model.files import gguf as module
from decoders.model.files.gguf import convert, converted_folder, is_converted
from decoders.model.target_model.load import load_network
from decoders.model.target_model.target import Target

from .gguf_files import write_gguf
from .models import network, prompt_ids, tiny_tokenizer

TEXT = "the old lamp at the station, 1234 def total(items)"
pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def file(tmp_path) -> Path:
    write_gguf(tmp_path / "tiny.Q8_0.gguf")
    return tmp_path / "tiny.Q8_0.gguf"


def logits(model, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0]


def cache_folders() -> list[str]:
    """Folders that a crash must not leave: all of the cache but the hashes."""
    folder = converted_folder()
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name != "hashes")


@pytest.mark.parametrize(("kind", "most"), [("F32", 0.0), ("Q8_0", 0.2)])
def test_a_file_scores_as_the_model_in_it(tmp_path, kind, most):
    """Exactly as the model with dequantised weights, and near the original."""
    place = tmp_path / "tiny.gguf"
    stored = write_gguf(place, kind=kind)
    network_, tokenizer, name = load_network(place)
    assert name == "tiny" and network_.dtype == torch.float32
    ids = prompt_ids(1)
    torch.testing.assert_close(logits(network_, ids), logits(stored, ids), rtol=0, atol=1e-5)
    exact = logits(network("llama"), ids)
    assert (logits(network_, ids) - exact).abs().max() <= most * exact.std() + 1e-5
    own = tiny_tokenizer()
    assert tokenizer(TEXT)["input_ids"] == own(TEXT)["input_ids"]
    assert tokenizer.decode(tokenizer(TEXT)["input_ids"]) == TEXT
    turns = [{"role": "user", "content": "the old lamp"}]
    for each in (tokenizer, own):
        assert each.apply_chat_template(turns, tokenize=False, add_generation_prompt=True).endswith("<|assistant|>\n")


def test_what_was_dequantised_is_recorded(file, tmp_path):
    target = load_target(file)
    assert target.name == "tiny.Q8_0" and target.info["dtype"] == "float32" and target.stop_ids == (1,)
    told = target.info["dequantised"]
    assert told["file"] == "tiny.Q8_0.gguf" and len(told["sha256"]) == 64 and told["bytes"] == file.stat().st_size
    assert told["types"] == {"Q8_0": 23, "F32": 7}
    trace = record(target, Prompt.from_ids(prompt_ids(1)), "pld", max_new_tokens=6)
    save(trace, tmp_path / "run.spectrace")
    assert load(tmp_path / "run.spectrace").run["model"]["dequantised"] == told
    assert str(tmp_path) not in json.dumps(trace.run["model"])
    ids = Prompt.from_ids(prompt_ids(2))
    assert generate(target, ids, "pld+h", max_new_tokens=12) == generate(target, ids, "plain", max_new_tokens=12)


def test_it_is_converted_once_per_dtype(file, monkeypatch):
    assert not is_converted(file)
    folder = convert(file, torch.float32)
    assert is_converted(file) and cache_folders() == [folder.name]
    monkeypatch.setattr(module, "_convert", lambda *_: pytest.fail("converted twice"))
    assert convert(file, torch.float32) == convert(file, torch.float64) == convert(file, torch.bfloat16) == folder
    assert load_target(file, dtype="bf16").info["dtype"] == "bfloat16"
    assert load_target(folder).info["dequantised"]["file"] == file.name, "opened by its folder, it says so too"


def test_half_precision_is_kept_in_half_the_room(file):
    folder = convert(file, torch.bfloat16)
    half = (folder / "model.safetensors").stat().st_size
    assert load_target(file, dtype="bfloat16").info["dtype"] == "bfloat16"
    full = convert(file, torch.float32)
    assert full != folder and half < 0.6 * (full / "model.safetensors").stat().st_size
    keys = {load_target(file, dtype=dtype).key for dtype in ("bfloat16", "float32", "float64")}
    assert len(keys) == 1, "one fingerprint, so that trained parts are found whatever the dtype"


def test_the_hash_is_noted_by_path_size_and_time(file, monkeypatch):
    folder = convert(file, torch.float32)
    with monkeypatch.context() as patched:
        patched.setattr(module.hashlib, "file_digest", lambda *_: pytest.fail("read again"))
        assert convert(file, torch.float32) == folder
    write_gguf(file, network("llama", seed=2))
    os.utime(file, ns=(time.time_ns(), time.time_ns() + 5))
    assert convert(file, torch.float32) != folder, "another file under the same name"


def test_a_folder_with_one_file_opens(file, tmp_path):
    place = tmp_path / "model"
    place.mkdir()
    (place / "a.gguf").write_bytes(file.read_bytes())
    assert load_target(place).name == "a"
    (place / "b.gguf").touch()
    with pytest.raises(UserError, match=r"holds 2 GGUF files \(a.gguf, b.gguf\): name one"):
        load_target(place)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"architecture": "unheard-of"}, "of the architecture 'unheard-of', which transformers does not read"),
        ({"architecture": "mpt"}, "architecture 'mpt'"),
        ({"tokenizer": False}, "holds no tokenizer"),
        ({"tokens": [f"piece{i}" for i in range(319)]}, "319 tokens in its tokenizer and 320 rows"),
        ({"leave_out": "blk.1.ffn_up.weight"}, "lacks 1 of the model's weights"),
        ({"extra": {"llama.rope.scaling.type": "yarn"}}, "rotary positions scaled by 'yarn'"),
        ({"extra": {"llama.logit_scale": 0.25}}, "logit_scale = 0.25"),
        ({"extra": {"split.count": 3}}, "one of 3 parts"),
    ],
)
def test_files_that_cannot_be_opened_say_why(tmp_path, settings, said):
    write_gguf(tmp_path / "tiny.gguf", **settings)
    refuse(tmp_path / "tiny.gguf", said)


def refuse(file: Path, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        load_target(file)
    assert "\n" not in str(raised.value) and file.name in str(raised.value)
    assert not converted_folder().is_dir() or cache_folders() == []


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.3, 0.95])
def test_a_truncated_file_is_one_sentence(file, share):
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    refuse(file, "truncated or damaged")


def test_what_is_no_gguf_file_is_one_sentence(file, tmp_path):
    file.write_bytes(b"GIF89a" * 100)
    refuse(file, "is no GGUF file")
    refuse(tmp_path / "gone.gguf", "there is no GGUF file")


def test_a_full_disk_is_one_sentence_and_leaves_nothing(file, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    refuse(file, r"there is no room to convert tiny.Q8_0.gguf into .*: \d+ MB are needed and 0 MB free")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_disk_that_fills_up_is_one_sentence_and_leaves_nothing(file, monkeypatch, error):
    """It fails when the weights are written already."""

    def full(tokenizer, folder: Path, **_: object) -> None:
        assert any(Path(folder).iterdir())
        raise error

    monkeypatch.setattr(module.PreTrainedTokenizerFast, "save_pretrained", full)
    refuse(file, "there is no room to convert")
    assert cache_folders() == []


@pytest.mark.slow("processes that convert a model are killed")
def test_killed_midway_leaves_nothing_that_counts(file):
    """A process that dies while it writes: the next one starts anew and clears what was left."""
    code = (
        "import os, signal, sys\n"
        "from decoders.model.files import gguf\n"
        "gguf.PreTrainedTokenizerFast.save_pretrained = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "import torch\n"
        f"gguf.convert(gguf.Path({str(file)!r}), torch.float32)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=300, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = cache_folders()
    assert len(left) == 1 and ".new-" in left[0] and not is_converted(file)
    target = load_target(file)
    assert target.info["dequantised"]["file"] == file.name
    assert len(cache_folders()) == 1 and ".new-" not in cache_folders()[0]


def _convert_too(file: str, home: str, begun, answers) -> None:
    os.environ["SPECVIZ_HOME"] = home
    begun.wait()
    answers.put(str(convert(Path(file), torch.float32)))


@pytest.mark.slow("two processes convert a model")
def test_two_processes_at_once_are_fine(file):
    spawning = multiprocessing.get_context("spawn")
    begun, answers = spawning.Event(), spawning.Queue()
    arguments = str(file), os.environ["SPECVIZ_HOME"], begun, answers
    both = [spawning.Process(target=_convert_too, args=arguments) for _ in range(2)]
    for process in both:
        process.start()
    begun.set()
    folders = {answers.get(timeout=240) for _ in both}
    for process in both:
        process.join(60)
        assert process.exitcode == 0
    assert len(folders) == 1 and cache_folders() == [Path(folders.pop()).name]


def test_progress_is_told(file):
    heard: list[tuple[str, float]] = []
    load_target(file, progress=lambda words, share: heard.append((words, share)))
    shares = [share for _, share in heard]
    assert shares == sorted(shares) and any("weights" in words for words, _ in heard) and shares[-1] <= 1
    heard.clear()
    load_target(file, progress=lambda words, share: heard.append((words, share)))
    assert heard == [], "nothing is converted the second time"


def test_numbers_are_split_as_smollm_was_trained(tmp_path):
    write_gguf(tmp_path / "digits.gguf", split="smollm")
    _, tokenizer, _ = load_network(tmp_path / "digits.gguf")
    pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("in 12")
    assert [piece for piece, _ in pieces] == ["in", "Ġ", "1", "2"]


def test_a_way_to_split_text_that_is_not_known_is_said(tmp_path, caplog):
    write_gguf(tmp_path / "tiny.gguf", split="unheard-of")
    assert isinstance(load_target(tmp_path / "tiny.gguf"), Target)
    assert "the file's own way 'unheard-of' is not known here" in caplog.text
