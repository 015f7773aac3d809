"""The tuner, which searches configurations by trials, and calibration, which fits predictions."""
