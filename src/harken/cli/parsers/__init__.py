"""Options and help texts of the commands, apart from the code that runs them.

A function describes one command: its name is the command, its docstring the summary. These modules
import nothing heavy, so that `--help` and error messages appear at once.
"""
