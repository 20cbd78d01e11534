"""Programs: what is compiled, and what makes it compile again."""
