"""AMD's GPUs, by AMD SMI.  Unproven: it has run with a stand-in for that library only."""
