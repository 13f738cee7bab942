"""Over HTTP an API key says whose a request is, and opens nothing else."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from autellix.client.stack import Stack
from tests.security.conftest import Secured

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
CHAT = "/v1/chat/completions"


@pytest.fixture
async def http(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client without a key."""
    async with httpx.AsyncClient(base_url=stack.http_url, timeout=20) as client:
        yield client


def bearer(key: str) -> dict[str, str]:
    """Return the header that sends a key."""
    return {"Authorization": f"Bearer {key}"}


WRONG = {
    "none": {},
    "empty": {"Authorization": "Bearer"},
    "unknown": {"Authorization": "Bearer ak_wrong"},
    "not ASCII": {"x-api-key": "\u00e9"},
    "no base64": {"Authorization": "Basic !!!"},
    "no scheme": {"Authorization": "x"},
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("path", [CHAT, "/v1/programs", "/v1/models", "/metrics", "/", "/page/stream"])
async def test_without_a_key(http: httpx.AsyncClient, headers: dict[str, str], path: str) -> None:
    """It is 401, in the API's shape, and says how a key is sent."""
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    answer = await http.request("POST" if path == CHAT else "GET", path, headers=encoded)

    assert 401 == answer.status_code
    assert "invalid_api_key" == answer.json()["error"]["code"]
    assert answer.headers["www-authenticate"].startswith("Basic" if path in ("/", "/page/stream") else "Bearer")


async def test_anthropics_shape(http: httpx.AsyncClient) -> None:
    """Its clients are told in their words."""
    answer = await http.post("/v1/messages", json={})

    assert (401, "authentication_error") == (answer.status_code, answer.json()["error"]["type"])


@pytest.mark.parametrize("path", ["/health", "/ready", "/version"])
async def test_what_is_open(http: httpx.AsyncClient, path: str) -> None:
    """Whether it lives anybody may ask."""
    assert 200 == (await http.get(path)).status_code


async def test_every_way_to_send_a_key(http: httpx.AsyncClient, keys: dict[str, str]) -> None:
    """As OpenAI's clients and Anthropic's do."""
    ways = [bearer(keys["acme"]), {"x-api-key": keys["acme"]}]

    answers = [await http.post(CHAT, json=BODY, headers=way) for way in ways]

    assert [200, 200] == [answer.status_code for answer in answers]
    assert all(answer.headers["x-autellix-program-id"].startswith("acme~") for answer in answers)


async def test_tenants_do_not_meet(http: httpx.AsyncClient, keys: dict[str, str]) -> None:
    """Another's program is none: not to be seen, joined by any name, or ended; the operator sees all."""
    acme, zen, operator = (bearer(keys[name]) for name in ("acme", "zen", "*"))
    started = (await http.post("/v1/programs", json={"name": "mine"}, headers=acme)).json()["id"]
    one = f"/v1/programs/{started}"
    seen = await http.get(one, headers=zen)
    joined = await http.post(CHAT, json=BODY, headers={**zen, "X-Autellix-Program-Id": started})
    within = await http.post(f"/programs/{started}{CHAT}", json=BODY, headers=zen)
    ended = await http.delete(one, headers=zen)
    listed = (await http.get("/v1/programs", headers=zen)).json()["data"]
    mine = await http.get(one, headers=acme)
    all_listed = (await http.get("/v1/programs", headers=operator)).json()["data"]

    assert [404, 404, 204] == [seen.status_code, joined.status_code, ended.status_code]
    assert within.headers["x-autellix-program-id"].startswith("zen~")
    assert {"zen"} == {each["tenant"] for each in listed}
    assert ("running", "acme") == (mine.json()["state"], mine.json()["tenant"])
    assert started in {each["id"] for each in all_listed}


async def test_the_same_name_is_two_programs(http: httpx.AsyncClient, keys: dict[str, str]) -> None:
    """A session's name means to each tenant its own."""
    ids = []
    for name in ("acme", "zen", "acme"):
        answer = await http.post(CHAT, json=BODY, headers={**bearer(keys[name]), "X-Session-ID": "s"})
        ids.append(answer.headers["x-autellix-program-id"])

    assert ids[0] == ids[2] != ids[1]


async def test_the_same_key_is_two_durable_calls(http: httpx.AsyncClient, keys: dict[str, str]) -> None:
    """What one tenant has kept under an id no other gets, or is in the way of."""
    ids = []
    for name in ("acme", "zen", "acme"):
        body = {**BODY, "messages": [{"role": "user", "content": name}]}
        answer = await http.post(CHAT, json=body, headers={**bearer(keys[name]), "Idempotency-Key": "k"})
        assert 200 == answer.status_code
        ids.append(answer.json()["id"])
    only_acme = {**bearer(keys["acme"]), "Idempotency-Key": "only"}
    await http.post(CHAT, json=BODY, headers=only_acme)
    got = [await http.get("/v1/calls/only", headers=bearer(keys[name])) for name in ("acme", "zen")]

    assert ids[0] == ids[2] != ids[1]
    assert [200, 404] == [answer.status_code for answer in got]


async def test_sub_agents_of_others(http: httpx.AsyncClient, keys: dict[str, str]) -> None:
    """What one tenant says of its sub-agents does not change whose those of another are."""
    child = {"X-Session-Affinity": "leaf", "X-Parent-Session-ID": "root-of-zen"}
    await http.post(CHAT, json=BODY, headers={**bearer(keys["zen"]), **child})
    grandchild = {"X-Session-Affinity": "below", "X-Parent-Session-ID": "leaf"}
    of_acme = await http.post(CHAT, json=BODY, headers={**bearer(keys["acme"]), **grandchild})
    named = await http.get("/v1/programs/leaf", headers=bearer(keys["acme"]))

    assert of_acme.headers["x-autellix-program-id"] == named.json()["id"]


@pytest.mark.parametrize("path", ["/metrics%0A", "/metrics%0D%0A", "/%0Ametrics", "/health%00"])
async def test_paths_have_no_control_characters(http: httpx.AsyncClient, keys: dict[str, str], path: str) -> None:
    """A path that is nearly another one is no way around what is asked at the door."""
    answer = await http.get(path, headers=bearer(keys["acme"]))

    assert (404, "not_found") == (answer.status_code, answer.json()["error"]["code"])


async def test_a_browsers_log_in_changes_nothing(http: httpx.AsyncClient, keys: dict[str, str]) -> None:
    """What a browser sends by itself, from any site, opens pages and lists, and neither ends programs nor calls."""
    basic = {"Authorization": "Basic " + base64.b64encode(f"x:{keys['acme']}".encode()).decode()}
    looks = await http.get("/v1/programs", headers=basic)
    changes = [await http.post(path, headers=basic, json={}) for path in ("/programs/release", "/v1/programs")]

    assert 200 == looks.status_code
    assert [401, 401] == [answer.status_code for answer in changes]


async def test_metrics_are_for_operators(http: httpx.AsyncClient, keys: dict[str, str]) -> None:
    """They are of all tenants."""
    answers = [await http.get("/metrics", headers=bearer(keys[name])) for name in ("acme", "*")]

    assert [403, 200] == [answer.status_code for answer in answers]


async def test_the_page_shows_ones_own(http: httpx.AsyncClient, keys: dict[str, str]) -> None:
    """Programs and events of the page's stream are the tenant's."""
    acme, zen = bearer(keys["acme"]), bearer(keys["zen"])
    seen: dict[str, list[Any]] = {"state": [], "call": []}
    async with asyncio.timeout(15), http.stream("GET", "/page/stream", headers=acme) as stream:
        lines = stream.aiter_lines()
        while not any(event["type"] == "call.finished" for event in seen["call"]):
            name, data = await event_of(lines)
            seen[name].append(data)
            if name == "state" and len(seen["state"]) == 1:  # it listens
                for whose in (zen, acme):
                    await http.post(CHAT, json=BODY, headers=whose)

    assert {"acme"} == {event["program_id"].partition("~")[0] for event in seen["call"]}
    assert all(each["tenant"] == "acme" for state in seen["state"] for each in state["programs"] or [])


async def event_of(lines: AsyncIterator[str]) -> tuple[str, Any]:
    """Return the next event of the page's stream."""
    name = ""
    async for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            return name, json.loads(line.removeprefix("data: "))
    raise EOFError("the stream ended")


async def test_a_key_that_is_taken_out(http: httpx.AsyncClient, secured: Secured, keys: dict[str, str]) -> None:
    """It opens nothing from then on, without a restart."""
    before = secured.api_keys.read_text()
    digest = hashlib.sha256(keys["zen"].encode()).hexdigest()
    secured.api_keys.write_text("".join(line for line in before.splitlines(keepends=True) if digest not in line))
    refused = await http.get("/v1/models", headers=bearer(keys["zen"]))
    other = await http.get("/v1/models", headers=bearer(keys["acme"]))
    secured.api_keys.write_text(before)
    again = await http.get("/v1/models", headers=bearer(keys["zen"]))

    assert [401, 200, 200] == [refused.status_code, other.status_code, again.status_code]


async def test_secrets_stay_secret(
    http: httpx.AsyncClient, stack: Stack, secured: Secured, keys: dict[str, str]
) -> None:
    """Neither keys nor prompts are in any log, nor keys in any file but as digests."""
    prompt = "a prompt that is nobody's business"
    body = {**BODY, "messages": [{"role": "user", "content": prompt}]}
    for key in (*keys.values(), "ak_that-nobody-knows"):
        await http.post(CHAT, json=body, headers=bearer(key))
        await http.post(CHAT, json={**body, "n": "many"}, headers=bearer(key))
    written = {path: path.read_text() for path in [*stack.log_dir.glob("*.log"), secured.api_keys]}
    seeds = [path.read_text().strip() for path in (secured.folder / "access").rglob("*.nk")]
    secrets = (*keys.values(), "ak_that-nobody-knows", prompt, *seeds)

    assert len(written) > 5
    for path, text in written.items():
        assert not [secret for secret in secrets if secret in text], path


def test_files_are_private(secured: Secured, keys: dict[str, str]) -> None:
    """Seeds and keys are their owner's to read."""
    files = [*(secured.folder / "access").rglob("*.nk"), secured.api_keys, secured.folder / "access/nats-access.conf"]

    assert len(files) > 8
    assert {0o600} == {path.stat().st_mode & 0o777 for path in files}
