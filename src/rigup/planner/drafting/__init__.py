"""Speculative decoding: what drafts tokens, what the plan says of it, and when it is offered."""
