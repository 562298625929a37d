"""The model lab's worker: reads, runs, prepares and quantises untrusted models; all that it keeps
between two requests lies in files, so it may die at any time."""
