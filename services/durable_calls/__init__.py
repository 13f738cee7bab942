"""Keeps durable calls until each has one result, executes them through the pipeline, and tells their results."""
