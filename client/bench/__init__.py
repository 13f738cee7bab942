"""The benchmark: recorded agent programs run again, as real programs against a real server.

`replay.replay(load, target)` runs them, `measures.summarize(run)` says how they fared.
"""
