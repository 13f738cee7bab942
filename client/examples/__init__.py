"""Agent programs as their developers would write them; `python -m autellix.client.examples.chat` runs one."""
