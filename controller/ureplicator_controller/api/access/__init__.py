"""Who may call what: tokens from files, two roles, and one check before everything."""
