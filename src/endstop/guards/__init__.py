"""What is let through: permissions, redaction."""
