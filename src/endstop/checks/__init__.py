"""What is checked: gates, protected inputs, the judge."""
