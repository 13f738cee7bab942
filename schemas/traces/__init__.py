"""Recorded programs, as `ops/bench/traces/README.md` has them, and which of them a run replays.

The simulator and the benchmark read the same traces and draw the same programs from them. This is the one place in
`schemas` that reads files.
"""
