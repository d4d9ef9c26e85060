"""Running plans over hosts. Reading an inventory (`inventory`, `planning`) imports neither pyinfra nor paramiko."""
