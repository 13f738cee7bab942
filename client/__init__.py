"""The front end of Autellix."""
