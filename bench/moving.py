"""The program that bench.through has the service run: distances in a moving graph."""

from bench.programs import program

app = program("bfs")
