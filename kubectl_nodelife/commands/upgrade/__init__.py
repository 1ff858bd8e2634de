"""`kubectl nodelife upgrade`, a file for each verb."""
