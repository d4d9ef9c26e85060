"""Documents: what verbs print with --json, one module a kind of verb. `rigup schema` prints their schemas."""
