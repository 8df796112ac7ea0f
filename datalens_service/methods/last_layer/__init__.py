"""Methods whose private descent moves one linear layer over fixed features."""
