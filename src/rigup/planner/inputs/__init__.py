"""The planner's inputs: reads raw values into a rig and services, looks up names, and adds facts from the lock."""
