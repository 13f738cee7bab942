"""Agent frameworks on Autellix, each as its own documentation has it: nothing is changed but the base URL.

Each file is a script for an environment that has the framework; Autellix need not be there. `autellix run` tells it the
URL and makes it one program:

    autellix run python client/examples/frameworks/with_langgraph.py

Without it, set OPENAI_BASE_URL (ANTHROPIC_BASE_URL), OPENAI_API_KEY (ANTHROPIC_API_KEY) and AUTELLIX_MODEL; each call
is then a program of its own, unless the framework says whose it is.
"""
