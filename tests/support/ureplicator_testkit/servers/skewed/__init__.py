"""On PYTHONPATH, not imported: see `sitecustomize`."""
