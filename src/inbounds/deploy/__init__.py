"""How it leaves the lab: trained policies that act with numpy alone and cannot leave their constraint."""
