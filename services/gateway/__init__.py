"""The HTTP front: OpenAI requests become calls on the bus, and the frames that come back become HTTP answers."""
