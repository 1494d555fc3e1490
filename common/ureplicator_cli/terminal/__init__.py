"""The terminal of operators: completion of the shell, and pictures of the fleet that stay current."""
