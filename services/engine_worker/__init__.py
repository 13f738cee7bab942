"""Owns one engine: takes its calls from the bus, streams the answers back, tells how each call went."""
