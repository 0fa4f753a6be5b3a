from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from soakd.config import WebConfig
from soakd.errors import SoakdError
from soakd.model import Kind, Labels, Metric, Sample, State, labels
from soakd.web.app import Health, SoakOrder, build_app
from soakd.web.auth import allowed, own_token
from soakd.web.exposition import Scrape, expose

USED = Metric("gpu_memory_used_bytes", "bytes", Kind.GAUGE, "VRAM in use.", "", ("gpu", "bdf"))
ERRORS = Metric("gpu_ecc_errors_total", "errors", Kind.COUNTER, "ECC errors.", "", ("gpu",))
HOST = labels(host="h1")


class FakeDaemon:
    constant_labels: Labels = HOST

    def __init__(self) -> None:
        self.problems: tuple[str, ...] = ()
        self.orders: list[SoakOrder] = []
        self.verbs: list[str] = []

    def health(self) -> Health:
        return Health(self.problems)

    def status(self) -> dict[str, object]:
        return {"version": "x"}

    def samples(self) -> tuple[Sample, ...]:
        return (Sample.ok(USED, 7.0, 1, labels(gpu="GPU-1", bdf="0000:01:00.0")),)

    async def runs(self) -> list[dict[str, object]]:
        return [{"run_id": "r1"}]

    async def soak(self, order: SoakOrder, tell: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        if order.profile == "taken":
            raise SoakdError("a soak is running already", hint="wait for it")
        self.orders.append(order)
        await tell({"progress": {"elapsed_s": 1}})
        await tell({"report": {"outcome": "PASS"}, "exit_code": 0})

    async def gpu(self, verb: str) -> None:
        self.verbs.append(verb)


@pytest.fixture
async def client() -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    daemon = FakeDaemon()
    client = TestClient(TestServer(build_app(daemon, "secret")))
    client.daemon = daemon  # type: ignore[attr-defined]
    await client.start_server()
    yield client
    await client.close()


GOOD = {"Authorization": "Bearer secret"}


async def test_health_is_red_with_its_reasons(client: TestClient) -> None:  # type: ignore[type-arg]
    assert (await client.get("/healthz")).status == 200
    client.daemon.problems = ("no reading for 90 s",)  # type: ignore[attr-defined]
    answer = await client.get("/healthz")
    assert answer.status == 503
    assert (await answer.json())["problems"] == ["no reading for 90 s"]


@pytest.mark.parametrize("path", ["/soaks", "/gpu/release", "/gpu/acquire"])
@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}])
async def test_nothing_changes_without_the_token(client: TestClient, path: str, header: dict[str, str]) -> None:  # type: ignore[type-arg]
    answer = await client.post(path, headers=header)
    assert answer.status == 401
    assert client.daemon.orders == client.daemon.verbs == []  # type: ignore[attr-defined]


async def test_an_order_streams_progress_and_then_the_report(client: TestClient) -> None:  # type: ignore[type-arg]
    answer = await client.post("/soaks", json={"profile": "smoke", "sets": {"load.seed": 3}}, headers=GOOD)
    lines = (await answer.text()).splitlines()
    assert [line.startswith('{"progress"') for line in lines] == [True, False]
    assert client.daemon.orders == [SoakOrder(None, "smoke", (("load.seed", 3),))]  # type: ignore[attr-defined]


async def test_an_order_that_cannot_be_taken_says_why(client: TestClient) -> None:  # type: ignore[type-arg]
    answer = await client.post("/soaks", json={"profile": "taken"}, headers=GOOD)
    assert answer.status == 409
    assert await answer.json() == {"error": "a soak is running already", "hint": "wait for it"}


@pytest.mark.parametrize("body", ["{", "[]", '{"cofig": 1}', '{"sets": 7}'])
async def test_a_body_that_is_no_order_is_refused(client: TestClient, body: str) -> None:  # type: ignore[type-arg]
    assert (await client.post("/soaks", data=body, headers=GOOD)).status == 409


async def test_the_cards_are_let_go_of_by_order(client: TestClient) -> None:  # type: ignore[type-arg]
    assert (await client.post("/gpu/release", headers=GOOD)).status == 200
    assert (await client.post("/gpu/reset", headers=GOOD)).status == 404
    assert client.daemon.verbs == ["release"]  # type: ignore[attr-defined]


async def test_metrics_parse_as_prometheus_text(client: TestClient) -> None:  # type: ignore[type-arg]
    text = await (await client.get("/metrics")).text()
    (family,) = [f for f in text_string_to_metric_families(text) if f.name == "gpu_memory_used_bytes"]
    (sample,) = family.samples
    assert (sample.value, sample.labels) == (7.0, {"host": "h1", "gpu": "GPU-1", "bdf": "0000:01:00.0"})


def test_an_unknown_reading_has_no_value_but_a_state() -> None:
    lost = Sample.unknown(ERRORS, State.LOST, 1, labels(gpu="GPU-1"))
    known = Sample.ok(ERRORS, 3, 1, labels(gpu="GPU-2"))
    families = {f.name: f.samples for f in text_string_to_metric_families(expose([lost, known], HOST).decode())}
    assert [(s.labels["gpu"], s.value) for s in families["gpu_ecc_errors"]] == [("GPU-2", 3.0)]
    (state,) = families["soakd_reading_state"]
    assert state.labels["metric"] == "gpu_ecc_errors_total"
    assert state.labels["state"] == "lost"


def test_the_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    first = own_token(WebConfig(), tmp_path)
    assert own_token(WebConfig(), tmp_path) == first
    assert len(first) >= 32
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_a_configured_token_wins(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("abc\n")
    assert own_token(WebConfig(token_file=tmp_path / "mine"), tmp_path) == "abc"
    assert not (tmp_path / "token").exists()


@pytest.mark.parametrize("text", ["", "\n", "  "])
def test_an_empty_token_is_no_token(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine").write_text(text)
    for config in (WebConfig(token_file=tmp_path / "mine"), WebConfig()):
        (tmp_path / "token").write_text(text)
        with pytest.raises(SoakdError, match="is empty"):
            own_token(config, tmp_path)


@pytest.mark.parametrize("header", [None, "", "Bearer ", "Bearer secret "])
def test_nobody_has_an_empty_token(header: str | None) -> None:
    assert not allowed(header, "")
    assert allowed(header, "secret") == (header == "Bearer secret ")


async def test_many_scrapes_at_once_are_made_once() -> None:
    reads: list[int] = []

    def read() -> tuple[Sample, ...]:
        reads.append(1)
        return (Sample.ok(ERRORS, 3, 1, labels(gpu="GPU-2")),)

    scrape = Scrape(read, lambda samples: expose(samples, HOST))
    bodies = await asyncio.gather(*(scrape.body() for _ in range(50)))
    assert len(set(bodies)) == len(reads) == 1
    assert b"gpu_ecc_errors_total" in bodies[0]


async def test_a_full_house_of_series_is_told() -> None:
    samples = [Sample.ok(USED, n, 1, labels(gpu=f"GPU-{n}", bdf="0000:01:00.0")) for n in range(20_000)]
    body = await Scrape(lambda: samples, lambda found: expose(found, HOST)).body()
    assert body.count(b"gpu_memory_used_bytes{") == 20_000
