"""Outputs, attention and effects of heads, compared with direct computations on the model."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from harken.files import write_text
from harken.inspection.ablation import Mean, Zero, ablated, mean_activations
from harken.inspection.record import record
from harken.inspection.refs import HeadRef
from harken.measure.ablation_study import ablation_study
from harken.run import load
from harken.run_folder import LOG
from harken.serve import examples
from harken.serve.words import word_indices

from .serving import LIMITS, TOKEN, Serving

TEXT = "they duck and swim"


def events(serving: Serving, path: str, **query: str) -> list[tuple[str, Any]]:
    """Return the events of a stream until it ends."""
    received = []
    with serving.client.stream("GET", path, params=query) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.read()
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                received.append((name, json.loads(line.removeprefix("data: "))))
    return received


@pytest.mark.parametrize("task", ["lm", "translate", "transcribe", "caption"])
def test_weights_are_those_of_the_model(serving: Serving, task: str) -> None:
    field = {"text": TEXT} if task in ("lm", "translate") else {"example": 2}
    answer: Any = serving.inspect(task, **field)
    names = []
    for view in answer["views"]:
        for layer in view["layers"]:
            for head in [*layer["heads"], {"head": "mean", "name": "mean"}]:
                path = f"/api/inspections/{answer['id']}/weights/{layer['name']}/{head['head']}"
                content = serving.client.get(path)
                weights = np.frombuffer(content.content, dtype="<f4")
                weights = weights.reshape(len(view["queries"]), len(view["keys"]))
                assert np.allclose(weights.sum(axis=1), 1, atol=1e-5)
                assert content.headers["X-Columns"] == str(len(view["keys"]))
                part = serving.client.get(path, params={"first": 1, "count": 2}).content
                assert part == weights[1:3].tobytes()
                names.append(head["name"])
        words = view["key_words"]
        assert len(words) == len(view["keys"]) and words == sorted(words)
    heads = [name for name in names if name != "mean"]
    assert len(heads) == len(set(heads)) > 0
    assert answer["focus"]["query"] < len(answer["views"][0]["queries"])
    run = load(serving.state.library.find(answer["run"]).folder)
    source = TEXT if "text" in field else run.task.input(run.examples("dev")[2])
    example = run.attention(source)
    assert example is not None
    with torch.inference_mode(), record(run.model) as records:
        example.run()
    first = answer["views"][0]["layers"][0]
    calls = [call.weights[0] for call in records if call.name == first["module"]]
    expected = torch.cat(calls, dim=1)[0]  # an RNN decoder calls its attention at each step
    path = f"/api/inspections/{answer['id']}/weights/{first['name']}/1"
    weights = np.frombuffer(serving.client.get(path).content, dtype="<f4")
    assert np.allclose(weights, expected.numpy().ravel(), atol=1e-6)


def test_the_log_probability_is_that_of_the_search(serving: Serving) -> None:
    answer: Any = serving.inspect("translate", text=TEXT, nbest=3)
    assert answer["nbest"][0]["output"] == answer["output"]["text"]
    best = answer["nbest"][0]["log_probability"]
    assert answer["output"]["log_probability"] == pytest.approx(best, abs=1e-5)
    steps = [step["log_probability"] for step in answer["steps"]]
    assert sum(steps) == pytest.approx(best, abs=1e-5)
    forced: Any = serving.inspect("translate", text=TEXT, output=answer["nbest"][1]["output"])
    assert forced["output"]["forced"]
    assert forced["output"]["text"] == answer["nbest"][1]["output"]


@pytest.mark.parametrize("task", ["lm", "translate", "transcribe", "caption"])
@pytest.mark.parametrize("method", ["zero", "mean"])
def test_effects_are_forced_passes_with_the_ablated_model(
    serving: Serving, task: str, method: str
) -> None:
    reads_text = task in ("lm", "translate")
    field: Any = {"text": TEXT, "output": " here 3"} if reads_text else {"example": 2}
    answer: Any = serving.inspect(task, **field)
    received = events(serving, f"/api/inspections/{answer['id']}/effects", method=method)
    assert received[0][0] == "start" and received[-1][0] == "done"
    whole = answer["output"]["log_probability"]
    assert received[0][1]["log_probability"] == pytest.approx(whole, abs=1e-5)
    measured = {event["head"]: event for name, event in received if name == "effect"}
    layers = [layer for view in answer["views"] for layer in view["layers"]]
    shown = [head for layer in layers for head in layer["heads"]]
    assert list(measured) == [head["name"] for head in shown]
    inspection = serving.state.store.inspection(answer["id"])
    example, model = inspection.example, inspection.run.model
    assert example is not None and example.output is not None
    for head in shown:
        with torch.inference_mode():
            means, _ = mean_activations(model, example.run)
            replacement = Zero() if method == "zero" else Mean(means)
            with ablated(model, [HeadRef(head["module"], head["head"])], replacement):
                log_probs: Any = example.run()
        rows = torch.arange(len(log_probs))
        total = float(log_probs.double()[rows, list(example.output.targets)].sum())
        assert measured[head["name"]]["log_probability"] == pytest.approx(total, abs=1e-5)
        if reads_text:
            off: Any = serving.inspect(task, **field, disabled=[head["name"]], method=method)
            assert off["output"]["log_probability"] == pytest.approx(total, abs=1e-5)


def test_effects_are_those_of_the_command_ablate(serving: Serving) -> None:
    """The metric `nats` of a text is its negative log-probability per token."""
    text = "they duck"
    run = load(serving.state.library.find(serving.run_id("lm")).folder)
    study = ablation_study(run.model, lambda: run.predictor.evaluate([text]), "heads", "zero")
    assert study.metric == "nats"
    answer: Any = serving.inspect("lm", text="", output=text)
    count = len(answer["steps"])
    assert count == len(run.predictor.stream.encode([text])[0])
    whole = study.whole.value
    assert whole is not None
    assert -answer["output"]["log_probability"] / count == pytest.approx(whole, abs=1e-5)
    received = events(serving, f"/api/inspections/{answer['id']}/effects")
    changes = {event["head"]: event["change"] for name, event in received if name == "effect"}
    assert len(changes) == len(study.parts) > 1
    for part in study.parts:
        assert -changes[part.part.label] / count == pytest.approx(part.difference.value, abs=1e-5)


def test_a_long_text_is_reported_as_truncated(serving: Serving) -> None:
    answer: Any = serving.inspect("lm", text="duck " * 90)
    truncation = answer["truncation"]
    assert truncation["kept"] == 32 == len(answer["views"][0]["keys"])
    assert truncation["text"] == f"read 32 of {truncation['total']} tokens"


def test_an_upload_is_read_like_its_file(serving: Serving, tmp_path: Path) -> None:
    example: Any = serving.inspect("transcribe", example=0)
    content = serving.client.get(example["input"]["url"])
    assert content.headers["content-type"] == "audio/wav"
    path = f"/api/runs/{example['run']}/inspect?alternatives=2"
    upload = serving.client.post(
        path, content=content.content, headers={"Content-Type": "audio/wav"}
    )
    assert upload.status_code == 200
    record = upload.json()
    again: Any = serving.inspect("transcribe", media=record["input"]["media"])
    assert again["output"] == record["output"]
    assert serving.client.get(record["input"]["url"]).content == content.content
    sound = record["views"][0]["sound"]
    spectrogram = serving.client.get(sound["url"]).content
    assert len(spectrogram) == 4 * sound["frames"] * sound["bins"]


def test_the_newest_request_of_a_client_wins(serving: Serving) -> None:
    """While the model is busy, ten requests of a client leave one; a full queue is 503."""
    path = f"/api/runs/{serving.run_id('lm')}/inspect"
    headers = {"Authorization": f"Bearer {TOKEN}"}

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=serving.base, headers=headers, timeout=60) as client:
            sleeping = serving.state.models.run(lambda job: time.sleep(1.5))
            blocked = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(sleeping, serving.loop))
            await asyncio.sleep(0.3)
            same = []
            for number in range(1, 11):
                tab, fields = {"X-Harken-Client": "tab"}, {"text": "a" * number}
                same.append(asyncio.create_task(client.post(path, json=fields, headers=tab)))
                await asyncio.sleep(0.02)
            others = [
                asyncio.create_task(client.post(path, json={"text": "b"}))
                for _ in range(LIMITS.queue + 3)
            ]
            answers = [await task for task in (*same, *others)]
            await blocked
            return answers

    answers = asyncio.run(ask())
    same, others = answers[:10], answers[10:]
    assert [answer.status_code for answer in same] == [409] * 9 + [200]
    assert same[-1].json()["input"]["text"] == "a" * 10
    refused = [answer for answer in others if answer.status_code == 503]
    assert len(refused) == 4 and all("retry-after" in answer.headers for answer in refused)
    assert serving.state.models.waiting == 0


def test_under_load_every_answer_is_correct_or_busy(serving: Serving) -> None:
    """Ten times more requests at once than the queue holds; afterwards everything is free."""
    expected: Any = serving.inspect("translate", text=TEXT)
    path = f"/api/runs/{serving.run_id('translate')}/inspect"

    def ask(number: int) -> tuple[int, str]:
        answer = serving.client.post(path, json={"text": TEXT})
        text = answer.json()["output"]["text"] if answer.status_code == 200 else ""
        return answer.status_code, text

    with ThreadPoolExecutor(4 * LIMITS.queue) as pool:
        answers = list(pool.map(ask, range(10 * LIMITS.queue)))
    assert set(answers) <= {(200, expected["output"]["text"]), (503, "")}
    assert answers.count((200, expected["output"]["text"])) >= LIMITS.queue
    assert serving.state.models.waiting == 0
    assert len(serving.state.store._inspections) <= LIMITS.inspections
    assert serving.inspect("translate", text=TEXT)["output"] == expected["output"]


def test_words_of_tokens() -> None:
    assert word_indices([" they", " du", "ck", "<end>", "x"]) == [0, 1, 1, 2, 3]
    assert word_indices(["[CLS]", "du", "##ck", "swims", "[SEP]"]) == [0, 1, 1, 2, 3]
    assert word_indices(["they", "duck"]) == [0, 1]


def test_examples_are_filtered_sorted_and_paged(serving: Serving) -> None:
    path = f"/api/runs/{serving.run_id('translate')}/examples"
    first = serving.client.get(path, params={"size": 3}).json()
    assert (first["total"], first["pages"], first["predicted"]) == (7, 3, 7)
    assert [example["number"] for example in first["examples"]] == [0, 1, 2]
    least = serving.client.get(path, params={"sort": "confidence"}).json()["examples"]
    confidences = [example["confidence"] for example in least]
    assert confidences == sorted(confidences)
    run = load(serving.state.library.find(serving.run_id("translate")).folder)
    assert [example["output"] for example in sorted(least, key=lambda item: item["number"])] == [
        prediction.output for prediction in run.predict([pair.source for pair in run.splits["dev"]])
    ]
    assert serving.client.get(path, params={"page": 99}).json()["examples"] == []
    assert serving.client.get(path, params={"sort": "x"}).status_code == 400
    images = serving.client.get(f"/api/runs/{serving.run_id('caption')}/examples").json()[
        "examples"
    ]
    picture = serving.client.get(images[0]["media"])
    assert picture.content.startswith(b"\x89PNG")


def test_slow_predictions_continue_in_the_next_request(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "PREDICTING_SECONDS", 0.0)
    monkeypatch.setattr(examples, "BATCH", 3)
    path = f"/api/runs/{serving.run_id('transcribe')}/examples"
    answers = [serving.client.get(path).json() for _ in range(4)]
    assert [answer["predicted"] for answer in answers] == [3, 6, 7, 7]
    assert [answer["complete"] for answer in answers] == [False, False, True, True]
    numbers = [example["number"] for example in answers[-1]["examples"]]
    assert numbers == list(range(7))


def test_curves_and_recipes(serving: Serving) -> None:
    run = serving.state.library.find(serving.run_id("lm"))
    lines = [
        {"event": "stepped", "stage": "training", "step": step, "loss": 1.5 + step, "steps": 9}
        for step in range(3)
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    write_text(run.folder / LOG, text[:-5])
    path = f"/api/runs/{run.id}/curves"
    curves = serving.client.get(path).json()
    assert [event["step"] for event in curves["events"]] == [0, 1]
    write_text(run.folder / LOG, text)
    with serving.client.stream("GET", f"{path}/events?position={curves['position']}") as answer:
        received = iter(answer.iter_lines())
        shown = [next(received) for _ in range(3)]
    assert shown[0] == f"id: {len(text)}" and shown[1] == "event: log"
    assert json.loads(shown[2].removeprefix("data: "))["step"] == 2
    (run.folder / LOG).unlink()
    other = serving.run_id("translate")
    rows = serving.client.get(f"/api/recipes/diff?first={run.id}&second={other}").json()["rows"]
    assert {"key": "task", "first": "lm", "second": "translate"} in rows
    same = serving.client.get(f"/api/recipes/diff?first={run.id}&second={run.id}").json()
    assert same["rows"] == []
