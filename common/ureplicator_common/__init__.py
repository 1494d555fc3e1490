"""What controller and worker share: values, settings, and the doors to the outside."""
