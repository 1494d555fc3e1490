"""A folder for PYTHONPATH, not for import: see `sitecustomize`."""
