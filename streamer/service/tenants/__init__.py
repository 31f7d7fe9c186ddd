"""What a tenant owns: subscriptions, gateways, quotas, and the shard that serves them."""
