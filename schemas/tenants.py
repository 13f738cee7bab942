"""Tenants: who pays, and sees nothing of the others.

A program's id names its tenant, so that everybody who has the id knows it, and nothing else has to carry it. Who a
request comes from its subject says: a tenant's agents ask on `autellix.tenants.<tenant>.calls.submit` where others ask
on `autellix.calls.submit`, and the NATS server lets them ask nowhere else (`ops/docs/security.md`). Without tenants
there is one nameless tenant, `""`, whose ids and subjects are bare.
"""

import re
from typing import Final

from autellix.schemas.ids import ProgramId

NOBODY: Final = ""
"""The tenant of those who have none."""
PATTERN: Final = r"^[a-z0-9][a-z0-9-]{0,31}\Z"
"""What a tenant may be called: its name stands in ids, subjects and labels."""

_NAME = re.compile(PATTERN)
_BETWEEN = "~"
_ROOT = "autellix."
_TENANTS = "autellix.tenants."


def is_name(text: str) -> bool:
    """Tell whether a tenant may be called that."""
    return bool(_NAME.match(text))


def program_id(tenant: str, unique: str) -> ProgramId:
    """Return the id of a tenant's program."""
    return ProgramId(f"{tenant}{_BETWEEN}{unique}" if tenant else unique)


def tenant_of(program: ProgramId) -> str:
    """Return whose program it is; `NOBODY` for an id that no tenant's program has."""
    tenant, between, _ = program.partition(_BETWEEN)
    return tenant if between and is_name(tenant) else NOBODY


def may(tenant: str, program: ProgramId) -> bool:
    """Tell whether a tenant may know of a program; on bare subjects are those who run it all, and may."""
    return not tenant or tenant_of(program) == tenant


def subject_of(tenant: str, subject: str) -> str:
    """Return the subject that stands for a public one among a tenant's."""
    return f"{_TENANTS}{tenant}.{subject.removeprefix(_ROOT)}" if tenant else subject


def any_subject_of(subject: str) -> str:
    """Return the pattern that a public subject has among those of every tenant."""
    return subject_of("*", subject)


def asked_by(subject: str) -> str:
    """Return the tenant on whose subject something was said; `NOBODY` for a bare one."""
    if not subject.startswith(_TENANTS):
        return NOBODY
    return subject.removeprefix(_TENANTS).partition(".")[0]
