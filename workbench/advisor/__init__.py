"""From measurements to decisions: scenarios, the race, the verdict."""
