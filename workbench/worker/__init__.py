"""The process that measures: one backend on one device.

Standard library, the backend and NumPy only, since it may run under a foreign interpreter.
"""
