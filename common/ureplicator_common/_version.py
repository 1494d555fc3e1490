"""The one place that says the version: the wheel and the programs read it here."""

__version__ = "0.1.0"
