"""Makes what users need to be let in: nkeys and the rules of the NATS server, and API keys of the gateway."""
