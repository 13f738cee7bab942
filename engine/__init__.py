"""What an engine does: the scheduling policies, and vLLM behind one folder. No bus here."""
