"""The whole product in virtual time: the cores of the services, simulated engines, and agents that replay traces."""
