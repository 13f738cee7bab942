"""Begins, keeps alive and ends programs, and takes calls in: which program, which thread, is it allowed."""
