"""For PYTHONPATH, not for import: see `sitecustomize`."""
