"""The terminal user interface: a viewer of the engine's event stream.

Nothing here measures or decides; whatever is drawn follows from `workbench.report.report.Report`.
"""
