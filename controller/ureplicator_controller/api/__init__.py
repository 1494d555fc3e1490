"""REST and dashboard: reads state, writes intents."""
