"""Services behind the routes: they write intents, read the fleet and query the Kafka clusters."""
