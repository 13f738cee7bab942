"""What the services say to each other: ids, subjects, messages and their encoding.

Reading `messages.py` and `subjects.py` is reading the protocol. Only msgspec and the standard library are used here,
and nothing here does I/O, but for `traces`.
"""
