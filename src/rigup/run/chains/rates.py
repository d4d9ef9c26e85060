"""How fast something counts up, and how long it will take to its end. Pure."""

from __future__ import annotations

from collections import deque

WINDOW_S = 20.0
"""Long enough for a few status reports of a job, short enough to follow a line that gets slower."""
SHORTEST_S = 3.0


class ProgressRate:
    """The rate of one counter over the last WINDOW_S seconds. None until SHORTEST_S have passed, or while it stands."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def count(self, now: float, done: int) -> None:
        """Notes how far the counter is. A counter that went back has begun again."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()

    @property
    def per_second(self) -> float | None:
        """What is counted in a second."""
        if not self._seen:
            return None
        (began, first), (now, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - began) if now - began >= SHORTEST_S and last > first else None

    def seconds_left(self, total: int) -> float | None:
        """The seconds to the total at this rate."""
        rate = self.per_second
        return max(0, total - self._seen[-1][1]) / rate if rate else None
