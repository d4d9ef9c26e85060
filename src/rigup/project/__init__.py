"""A fleet's folder on the controlling machine: inventory, group_data, settings, and the plans made of them.

May import nouns, catalogue, planner, commands, monitoring and facts.
"""
