"""Tables, CSV files and plots of what a session measured."""
