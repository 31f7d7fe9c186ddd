"""The console: pages for a browser. They ask the API on behalf of who is signed in, and know nothing else of the service."""
