"""Command lines: turns a decision into the argv and environment of vLLM, SGLang and llama.cpp. Pure.

May import nouns, catalogue, planner and systemd's quoting.
"""
