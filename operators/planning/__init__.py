"""From what a program means to what workers run: fusing, sharing, placement, the physical plan."""
