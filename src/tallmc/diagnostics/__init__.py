"""Can the results be trusted?"""
