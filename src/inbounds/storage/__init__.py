"""How files reach the disk and come back: whole or not at all, one writer per folder, damage noticed."""
