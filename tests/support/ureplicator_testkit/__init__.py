"""What tests share: real clusters, processes under watch, and a log comparison that judges."""
