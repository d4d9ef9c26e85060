"""The page that `rigup status --html` and `rigup report --html` write: one file, drawn from plain values, no script."""
