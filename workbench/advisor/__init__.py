"""From measurements to decisions: who leaves a race, when it ends, and the verdict."""
