"""From the claims of episodes to facts with valid time and transaction time. Pure, except for reads."""
