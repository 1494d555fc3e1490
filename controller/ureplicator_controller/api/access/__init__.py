"""Login of REST: tokens from files, two roles, and one check before everything."""
