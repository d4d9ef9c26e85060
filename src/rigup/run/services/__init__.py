"""Running services as a user meets them: journals, endpoints, chats. May import what `run` may."""
