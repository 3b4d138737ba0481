"""How often a tested update points more than 90 degrees away from the update of all rows."""

from tallmc.reproduce.wrong_directions import Recorder, full_update, share_of_wrong_directions

__all__ = ["Recorder", "full_update", "share_of_wrong_directions"]
