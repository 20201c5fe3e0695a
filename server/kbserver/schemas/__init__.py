"""Shapes of bodies: marshmallow checks the envelope, the language's own readers the atoms and rules
inside.
"""
