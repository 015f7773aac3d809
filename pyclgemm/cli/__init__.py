"""``python -m pyclgemm``: the commands, and nothing that a program would import."""
