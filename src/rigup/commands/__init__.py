"""Command lines: from a decision to the argv and environment of vLLM, SGLang and llama.cpp. Pure.

May import nouns, catalogue, planner and systemd's quoting.
"""
