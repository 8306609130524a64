"""From text to ids and back: `tokenizer.Tokenizer`, one wrapper for the four tokenizers of the project."""
