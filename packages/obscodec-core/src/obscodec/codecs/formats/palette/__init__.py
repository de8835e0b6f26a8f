"""Images of few colours, as places in a palette."""
