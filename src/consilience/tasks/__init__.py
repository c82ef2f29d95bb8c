"""Tasks: everything a party may be asked, and the one door through which its replies leave."""
