"""From a request to what the model is called with: a text encoded as its task encodes it, and decoded."""
