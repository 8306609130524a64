"""Why an answer came out, by erasing words and by gradients; and, apart from it, where information moved."""
