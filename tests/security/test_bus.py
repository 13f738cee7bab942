"""On the bus everybody says and hears what is theirs, and nothing else."""

import asyncio
import ssl
from typing import Any

import msgpack
import nats
import nats.errors
import pytest
from nats.aio.client import Client

from autellix.client.stack import Stack
from autellix.schemas.nats_access import options
from tests.security.conftest import Secured, certificates

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "stream": True}
PATIENCE_S = 10.0


async def ask(client: Client, subject: str, kind: str, **fields: Any) -> Any:
    """Return the answer to a request, as an agent without our library gets it."""
    answer = await client.request(subject, msgpack.packb({"type": kind, **fields}), timeout=PATIENCE_S)
    return msgpack.unpackb(answer.data)


async def frames(client: Client, **fields: Any) -> list[dict[str, Any]]:
    """Submit a call and return all that is answered."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    message = {"type": "submit_call", "body": BODY, **fields}
    await client.publish("autellix.calls.submit", msgpack.packb(message), reply=inbox)
    found: list[dict[str, Any]] = []
    while not (found and found[-1]["type"] in ("finished", "failed")):
        found.append(msgpack.unpackb((await subscription.next_msg(timeout=PATIENCE_S)).data))
    return found


async def is_refused(secured: Secured, who: str, subject: str, *, says: bool) -> bool:
    """Tell whether the server refuses a user a subject."""
    refused = asyncio.Event()

    async def on_error(error: Exception) -> None:
        if "permissions violation" in str(error).lower():
            refused.set()

    client = await secured.connect(secured.user(who), error_cb=on_error)
    if says:
        await client.publish(subject, b"x")
    else:
        await client.subscribe(subject)
    await client.flush()
    try:
        async with asyncio.timeout(0.5):
            await refused.wait()
    except TimeoutError:
        return False
    finally:
        await client.close()
    return True


@pytest.mark.parametrize(
    ("who", "subject"),
    [
        ("gateway", "autellix.events.call.finished"),
        ("gateway", "autellix.tenants.acme.events.call.finished"),
        ("gateway", "autellix.internal.calls.admitted"),
        ("gateway", "autellix.engines.engine-0.control"),
        ("gateway", "$KV.AUTELLIX_STATE.session-manager.secret"),
        ("metrics", "autellix.calls.submit"),
        ("engine-worker", "autellix.events.program.ended"),
        ("engine-worker", "autellix.internal.calls.submitted"),
        ("process-table", "autellix.events.call.finished"),
        ("process-table", "$KV.AUTELLIX_STATE.session-manager"),
        ("load-balancer", "autellix.events.call.finished"),
        ("session-manager", "autellix.internal.engines.engine-0.calls"),
        ("session-manager", "$JS.API.STREAM.DELETE.AUTELLIX_EVENTS"),
        ("durable-calls", "autellix.events.call.finished"),
        ("durable-calls", "autellix.internal.calls.submitted"),
        ("operator", "autellix.events.call.finished"),
        ("operator", "$JS.API.STREAM.DELETE.AUTELLIX_EVENTS"),
    ],
)
async def test_nobody_says_what_is_not_theirs(secured: Secured, who: str, subject: str) -> None:
    """A user that is taken over cannot play another."""
    assert await is_refused(secured, who, subject, says=True)


@pytest.mark.parametrize(
    ("who", "subject"),
    [
        ("gateway", "autellix.internal.>"),
        ("gateway", "_INBOX.>"),
        ("metrics", "autellix.internal.calls.submitted"),
        ("operator", "_INBOX.>"),
        ("operator", "autellix.internal.calls.admitted"),
        ("engine-worker", "autellix.calls.submit"),
        ("process-table", "_INBOX.>"),
    ],
)
async def test_nobody_hears_what_is_not_theirs(secured: Secured, who: str, subject: str) -> None:
    """Prompts and answers are for those who need them."""
    assert await is_refused(secured, who, subject, says=False)


@pytest.mark.parametrize(
    ("who", "subject", "says"),
    [
        ("gateway", "autellix.tenants.acme.calls.submit", True),
        ("engine-worker", "autellix.events.call.finished", True),
        ("operator", "autellix.engines.nobody.control", True),
        ("operator", "autellix.events.>", False),
    ],
)
async def test_all_can_do_their_work(secured: Secured, who: str, subject: str, says: bool) -> None:  # noqa: FBT001
    """What is refused above is not refused because everything is."""
    assert not await is_refused(secured, who, subject, says=says)


async def test_strangers_stay_outside(secured: Secured) -> None:
    """Without an nkey, without a certificate, or with one of another authority nobody gets in."""
    known = options(secured.user("operator"))
    with pytest.raises(nats.errors.Error, match="uthorization"):
        await nats.connect(secured.url, allow_reconnect=False, tls=known["tls"])

    without = ssl.create_default_context(cafile=str(secured.folder / "ca.pem"))
    with pytest.raises((nats.errors.Error, OSError)):
        await nats.connect(secured.url, allow_reconnect=False, **{**known, "tls": without})


async def test_a_server_that_nobody_vouches_for(secured: Secured, tmp_path: Any) -> None:
    """A client does not talk to a server of another authority."""
    certificates(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        await secured.connect(secured.user("operator")._replace(ca=str(tmp_path / "ca.pem")))


async def test_a_tenants_agent_needs_nothing_special(stack: Stack, secured: Secured) -> None:
    """It submits where everybody does, streams, lists and ends its programs."""
    client = await secured.connect(secured.tenant("acme"))
    started = await ask(client, "autellix.sessions.start", "start_session", name="mine")
    answered = await frames(client, program_id=started["program_id"])
    listed = await ask(client, "autellix.programs.list", "list_programs")
    ended = await ask(client, "autellix.sessions.end", "end_session", program_id=started["program_id"])
    engines = await ask(client, "autellix.engines.list", "list_engines")
    await client.close()

    assert started["program_id"].startswith("acme~")
    assert ["accepted", "finished"] == [answered[0]["type"], answered[-1]["type"]]
    assert {"acme"} == {each["tenant"] for each in listed["programs"]}
    assert "session_ended" == ended["type"]
    assert {"engine-0", "engine-1"} >= {each["engine_id"] for each in engines["engines"]} != set()


async def test_tenants_do_not_meet(stack: Stack, secured: Secured) -> None:
    """Another tenant's program cannot be seen, joined, touched, ended or cancelled; a name means each one's own."""
    acme, zen = await secured.connect(secured.tenant("acme")), await secured.connect(secured.tenant("zen"))
    theirs = (await ask(acme, "autellix.sessions.start", "start_session"))["program_id"]
    same_name = [(await frames(client, session="shared"))[0]["program_id"] for client in (acme, zen)]

    listed = await ask(zen, "autellix.programs.list", "list_programs")
    found = await ask(zen, "autellix.programs.get", "get_program", program_id=theirs)
    joined = await frames(zen, program_id=theirs)
    named = await frames(zen, session=theirs)
    touched = await ask(zen, "autellix.sessions.touch", "touch_session", program_id=theirs)
    await ask(zen, "autellix.sessions.end", "end_session", program_id=theirs)
    await ask(zen, "autellix.calls.cancel", "cancel_calls", program_id=theirs)
    still = await ask(acme, "autellix.sessions.touch", "touch_session", program_id=theirs)
    await acme.close()
    await zen.close()

    assert theirs not in {each["program_id"] for each in listed["programs"]}
    assert [404, 404, 404] == [found["status"], joined[-1]["status"], touched["status"]]
    assert named[0]["program_id"].startswith("zen~")
    assert same_name[0] != same_name[1]
    assert "session_touched" == still["type"]


async def test_a_call_of_another_cannot_be_cancelled(stack: Stack, secured: Secured) -> None:
    """Who learnt a call's id can do nothing with it from another tenant's account."""
    acme, zen = await secured.connect(secured.tenant("acme")), await secured.connect(secured.tenant("zen"))
    inbox = acme.new_inbox()
    subscription = await acme.subscribe(inbox)
    body = {**BODY, "max_tokens": 1500, "stream": False}
    await acme.publish("autellix.calls.submit", msgpack.packb({"type": "submit_call", "body": body}), reply=inbox)
    accepted = msgpack.unpackb((await subscription.next_msg(timeout=PATIENCE_S)).data)
    await ask(zen, "autellix.calls.cancel", "cancel_calls", call_id=accepted["call_id"])
    last = msgpack.unpackb((await subscription.next_msg(timeout=PATIENCE_S)).data)
    await acme.close()
    await zen.close()

    assert "finished" == last["type"]


async def test_a_tenant_hears_of_its_own_programs(stack: Stack, secured: Secured) -> None:
    """Events of others, and what services say to each other, do not reach it, whatever it subscribes to."""
    acme, zen = await secured.connect(secured.tenant("acme")), await secured.connect(secured.tenant("zen"))
    everything = await acme.subscribe(">")
    await acme.flush()
    await frames(zen)
    mine = (await frames(acme))[0]["program_id"]
    heard: list[Any] = []
    while not (heard and (heard[-1]["type"], heard[-1]["program_id"]) == ("program.ended", mine)):
        message = await everything.next_msg(timeout=PATIENCE_S)
        if message.subject.startswith("autellix.events."):
            heard.append(msgpack.unpackb(message.data))
    await acme.close()
    await zen.close()

    assert {"acme"} == {each["program_id"].partition("~")[0] for each in heard}
    assert "call.finished" in {each["type"] for each in heard if each["program_id"] == mine}


async def test_a_tenant_cannot_speak_for_the_services(stack: Stack, secured: Secured) -> None:
    """Events and hops that a tenant's agent makes up stay in its own account, and so do other tenants' subjects."""
    operator, zen = await secured.connect(secured.user("operator")), await secured.connect(secured.tenant("zen"))
    heard = await operator.subscribe("autellix.events.>")
    await operator.flush()
    for subject in ("autellix.events.program.ended", "autellix.internal.calls.submitted"):
        await zen.publish(subject, b"forged")
    with pytest.raises(nats.errors.NoRespondersError):
        await zen.request("autellix.tenants.acme.calls.submit", b"{}", timeout=PATIENCE_S)
    with pytest.raises(nats.errors.NoRespondersError):
        await zen.request("autellix.engines.engine-0.control", b"{}", timeout=PATIENCE_S)
    await frames(zen)
    while (message := await heard.next_msg(timeout=PATIENCE_S)).subject != "autellix.events.program.ended":
        assert b"forged" != message.data
    await operator.close()
    await zen.close()

    assert b"forged" != message.data
