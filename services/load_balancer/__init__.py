"""Chooses an engine for each call (paper section 4.3, Algorithm 2)."""
