"""Node groups in a run: binding, keeping members in step, reachability between them."""
