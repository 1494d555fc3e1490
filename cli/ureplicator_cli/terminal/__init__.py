"""The terminal of operators: completion of the shell, and pictures of the fleet that stay current.

completion  the scripts for shells
picture     responses of REST -> tables and lines: pure
live, top   reading and showing, again and again
"""
