"""`python -m vernier` of an installed package: setup.py copies this file to where Python looks for it."""

from vernier.service.cli.main import main

main()
