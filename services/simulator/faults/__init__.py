"""The service cores under faults, in virtual time: what must always hold, tried seed by seed."""
