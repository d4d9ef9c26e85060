"""The steps of a host: what each needs, which run beside the others, and how long each took."""
