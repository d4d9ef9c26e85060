"""Output: tables, bars, progress and JSON. Draws plain values; opens no connection."""
