"""The only place that knows vLLM, of the one pinned version.

`scheduler.py` runs inside vLLM's engine-core process, `executor.py` in the worker's; `reports.py` is what the first
tells the second.
"""
