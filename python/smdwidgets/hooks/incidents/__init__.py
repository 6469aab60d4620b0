"""What begins an incident, and the recorder that writes the last steps."""
