"""Folds events into numbers and shows them to Prometheus."""
