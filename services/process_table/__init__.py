"""The global process table: what every program has attained and waited (paper section 4.2.1)."""
