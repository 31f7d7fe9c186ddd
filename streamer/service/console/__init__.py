"""The console: pages for a browser. They call the API on behalf of the signed-in user, and use no other part of the service."""
