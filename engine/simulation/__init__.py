"""A vLLM engine without a model, in virtual time: the same queues, blocks and steps, and a formula for a step's time.

Nothing here waits, reads a clock or draws a random number: the caller says what time it is, and the same calls give the
same events to the last bit.
"""
