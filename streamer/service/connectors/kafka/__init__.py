"""Topics of Kafka: a source, a sink, and the client that both use."""
