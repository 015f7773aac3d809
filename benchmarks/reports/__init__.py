"""Tables, CSV files and plots of the records of a session."""
