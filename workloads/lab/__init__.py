"""The model lab's child: reads, runs, prepares and quantises a model that nobody has vouched for.

Everything it knows between two requests lies in the lab's folder, so that it may die at any time.
"""
