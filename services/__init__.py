"""The services: each a process of its own, a pure core on one runner, talking over NATS only."""
