"""Log lines: no text from outside can forge, break or flood one."""

import json
import subprocess
import sys

PROGRAM = r"""
import logging, structlog
from autellix.services import logs
logs.setup("gateway", "info")
evil = 'a"b\n{"event": "forged"}\r\n\x1b[31m\x00\u2028' + "x" * 1_000_000
log = structlog.get_logger()
log.info("call ended", program_id=evil, model=evil)
log.debug("not shown")
logging.getLogger("nats").warning("foreign %s", evil)
logging.getLogger("nats").info("not shown either")
try:
    raise ValueError(evil)
except ValueError:
    log.exception("failed")
"""


def test_every_line_is_one_object() -> None:
    """Each line parses as JSON, names its service, level and time, and is bounded, whatever a value holds."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    ended, foreign, failed = lines

    assert (ended["event"], foreign["level"], failed["event"]) == ("call ended", "warning", "failed")
    assert ended["program_id"].startswith('a"b\n{"event": "forged"}')
    assert {line["service"] for line in lines} == {"gateway"}
    assert all(line["timestamp"].endswith("Z") for line in lines)
    assert "ValueError" in failed["exception"]
    assert len(failed["exception"]) <= 20_001
    assert max(map(len, done.stdout.split(b"\n")[:2])) < 5000
