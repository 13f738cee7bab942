"""The rules of who may say and hear what, as the NATS server reads them: a file for it to include.

The services share one account, `AUTELLIX`. Each tenant has an account of its own: what its agents ask on
`autellix.calls.submit` the server brings to the services as `autellix.tenants.<tenant>.calls.submit`, and what it
brings back only they hear. No agent can say anything else to anybody else.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from autellix.schemas import tenants
from autellix.schemas.nats_access import inbox_prefix
from autellix.services.access.permissions import ASKED, OBSERVED, USERS

SERVICES: Final = "AUTELLIX"
"""The account of the services."""
LONGEST: Final = "24h"
"""How long a call may be silent before the server forgets where its answer goes."""


def account_of(tenant: str) -> str:
    """Return what a tenant's account is called."""
    return f"tenant-{tenant}"


def rules(public_keys: Mapping[str, str], tenant_keys: Mapping[str, str]) -> str:
    """Return the server's rules.

    Args:
        public_keys: The public half of each user's nkey, by the names of `permissions.USERS`.
        tenant_keys: That of each tenant's agents, by tenant.
    """
    exports = [export for tenant in tenant_keys for export in _exports(tenant)]
    services = {
        "jetstream": "enabled",
        "users": [_user(public_keys[name], says, hears) for name, (says, hears) in USERS.items()],
        "exports": exports,
    }
    accounts = {SERVICES: services}
    for tenant, public in tenant_keys.items():
        accounts[account_of(tenant)] = {"users": [{"nkey": public}], "imports": _imports(tenant)}
    head = "# Written by `autellix access nats`; what is changed here is lost. Included by nats-server.conf.\n"
    return head + "accounts: " + json.dumps(accounts, indent=2) + "\n"


def _user(public: str, says: tuple[str, ...], hears: tuple[str, ...]) -> dict[str, Any]:
    own = (f"{inbox_prefix(public)}.>", "$SRV.>")
    allowed = {"publish": {"allow": list(says)}, "subscribe": {"allow": [*hears, *own]}}
    return {"nkey": public, "permissions": allowed}


def _exports(tenant: str) -> list[dict[str, Any]]:
    mine = [account_of(tenant)]
    asked = [
        {
            "service": tenants.subject_of(tenant, subject),
            "response_type": "stream",
            "response_threshold": LONGEST,
            "accounts": mine,
        }
        for subject in ASKED
    ]
    observed = [{"stream": tenants.subject_of(tenant, subject), "accounts": mine} for subject in OBSERVED]
    return [*asked, *observed]


def _imports(tenant: str) -> list[dict[str, Any]]:
    def there(subject: str) -> dict[str, str]:
        return {"account": SERVICES, "subject": tenants.subject_of(tenant, subject)}

    asked = [{"service": there(subject), "to": subject} for subject in ASKED]
    observed = [{"stream": there(subject), "to": subject} for subject in OBSERVED]
    return [*asked, *observed]
