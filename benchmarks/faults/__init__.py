"""The fault suite: kills, power cuts, full disks, damaged files and second writers, at every write of the library."""
