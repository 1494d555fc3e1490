"""The pages that a person looks at."""
