"""What another device must offer, and how it is found."""
