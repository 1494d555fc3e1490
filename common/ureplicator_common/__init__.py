"""Code that controller and worker share: values, settings, and the clients of outside systems."""
