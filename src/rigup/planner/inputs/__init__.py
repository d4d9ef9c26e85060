"""What the planner starts from: raw values read into a rig and services, names looked up, facts from the lock."""
